"""Encoding and decoding of frames of the remoting protocol, in both header encodings.

Source: remoting/protocol/RemotingCommand.java, RocketMQSerializable.java; docs/formats/wire.md#frame.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from rmqtx.readers.model.layout import Field, Layout, VariablePart
from rmqtx.remoting.protocol.codes import IS_RESPONSE, LANGUAGES
from rmqtx.remoting.protocol.errors import BadFrame

#: Limit of the broker's decoder (com.rocketmq.remoting.frameMaxLength), of a frame with its length; it closes the
#: connection at a longer one. The broker never sends more.
FRAME_BYTES_MAX = 16 << 20
_HEADER_BYTES_MAX = (1 << 24) - 1


class Encoding(IntEnum):
    """The encoding of a header, which every frame contains."""

    JSON = 0
    ROCKETMQ = 1


FRAME = Layout(
    "frame",
    "Frame of the remoting protocol",
    (
        Field("length_bytes", "i", "bytes that follow", "byte"),
        Field("encoding_and_header_length", "i", "high byte: 0 JSON, 1 ROCKETMQ; low three: length of the header"),
    ),
    8,
    "remoting/protocol/RemotingCommand.java, docs/formats/wire.md#frame",
    (
        VariablePart("header", "header length", "JSON object, or the ROCKETMQ header"),
        VariablePart("body", "the rest", "depends on the request or response"),
    ),
)
ROCKETMQ_HEADER = Layout(
    "rocketmq-header",
    "Header of a frame in the ROCKETMQ encoding",
    (
        Field("code", "h", "request or response code; larger ones need the JSON encoding"),
        Field("language", "b", "language of the sender"),
        Field("version", "h", "version of the sender (MQVersion ordinal)"),
        Field("opaque", "i", "number that joins a response to its request"),
        Field("flag", "i", "bits: 1 response, 2 oneway"),
        Field("remark_length_bytes", "i", "length of the remark", "byte"),
    ),
    17,
    "remoting/protocol/RocketMQSerializable.java, docs/formats/wire.md#frame",
    (
        VariablePart("remark", "remark_length_bytes", "UTF-8"),
        VariablePart("fields_length_bytes", "4", "length of the fields"),
        VariablePart("fields", "fields_length_bytes", "i16 length, name, i32 length, value, repeated"),
    ),
)


@dataclass(frozen=True, slots=True)
class Frame:
    """One command, request or response. Shape: `fields`: texts by name (extFields); `remark`: None if there is none."""

    code: int
    opaque: int
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    flag: int = 0
    remark: str | None = None
    version: int = 0
    language: str = "OTHER"
    encoding: Encoding = Encoding.JSON

    @property
    def is_response(self) -> bool:
        """Whether it is a response."""
        return bool(self.flag & IS_RESPONSE)


def encoded(frame: Frame) -> bytes:
    """Return the frame's bytes. Raises: BadFrame if a value does not fit the encoding, or a text cannot be encoded."""
    try:
        header = _rocketmq_header(frame) if frame.encoding is Encoding.ROCKETMQ else _json_header(frame)
    except (ValueError, struct.error, OverflowError) as error:  # for example half of a surrogate pair
        raise BadFrame(f"cannot encode a frame: {error}") from error
    if len(header) > _HEADER_BYTES_MAX or len(header) + len(frame.body) > FRAME_BYTES_MAX - FRAME.size_bytes:
        raise BadFrame("the request is too large to be sent", expected=FRAME_BYTES_MAX, actual=len(frame.body))
    start = FRAME.pack(
        length_bytes=4 + len(header) + len(frame.body), encoding_and_header_length=frame.encoding << 24 | len(header)
    )
    return b"".join((start, header, frame.body))


def decoded(data: bytes) -> Frame:
    """Return the frame in some bytes, which must contain exactly one. Raises: BadFrame."""
    if len(data) < FRAME.size_bytes:
        raise BadFrame("a frame is cut off", expected=f"at least {FRAME.size_bytes} bytes", actual=len(data))
    place = FRAME.unpack(data)
    kind, length = place["encoding_and_header_length"] >> 24, place["encoding_and_header_length"] & 0xFFFFFF
    if place["length_bytes"] != len(data) - 4 or length > len(data) - 8:
        raise BadFrame(
            "the lengths in a frame contradict each other", expected=len(data) - 4, actual=place["length_bytes"]
        )
    header, body = data[8 : 8 + length], data[8 + length :]
    try:
        if kind == Encoding.JSON:
            return _from_json(header, body)
        if kind == Encoding.ROCKETMQ:
            return _from_rocketmq(header, body)
    except (ValueError, KeyError, TypeError, AttributeError, struct.error, IndexError, OverflowError) as error:
        raise BadFrame(f"cannot decode the header of a frame: {error}") from error
    raise BadFrame("unknown encoding of a frame", field="encoding", expected="0 or 1", actual=kind)


class FrameReader:
    """Splits the bytes received over a connection into frames."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add received bytes, and yield the frames that are complete. Raises: BadFrame for an impossible length."""
        self._data += data
        while len(self._data) >= 4:
            length = int.from_bytes(self._data[:4], "big", signed=True)
            if not 4 <= length <= FRAME_BYTES_MAX:
                raise _no_frame(bytes(self._data[:4]))
            if len(self._data) < 4 + length:
                return
            frame = bytes(self._data[: 4 + length])
            del self._data[: 4 + length]
            yield decoded(frame)

    @property
    def is_inside(self) -> bool:
        """Whether the last frame is incomplete."""
        return bool(self._data)


def _no_frame(start: bytes) -> BadFrame:
    if start == b"HTTP":
        return BadFrame("the port uses HTTP", advice="default ports: name servers 9876, brokers 10911")
    if start[:2] in (b"\x15\x03", b"\x16\x03"):
        return BadFrame("the port uses TLS", advice="add --tls")
    length = int.from_bytes(start, "big", signed=True)
    return BadFrame("not a frame", field="length", expected=f"4 to {FRAME_BYTES_MAX}", actual=length)


@contextmanager
def parsing(what: str) -> Iterator[None]:
    """Turn an error about missing or unexpected values of a response into a BadFrame that names `what`.

    Raises: BadFrame.
    """
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
        raise BadFrame(f"cannot parse {what}: {type(error).__name__} {error}"[:200]) from error


# Brokers write maps with bare numbers as names ({0:"10.0.0.1:10911"}) unless the request asks for names in quotes.
# An unterminated string is matched to the end: tried from each of its quotation marks, a long one would take hours.
_BARE_NAME = re.compile(r"""("(?:[^"\\]|\\.)*+(?:"|\\?$))|(?<=[{,])\s*(-?\d+)\s*:""", re.DOTALL)


def parsed_json(text: bytes) -> Any:
    """Parse JSON as brokers write it, with numbers as names. Raises: BadFrame."""
    try:
        plain = text.decode("utf-8", "replace")
        try:
            return json.loads(plain)
        except ValueError:
            return json.loads(_BARE_NAME.sub(lambda match: match[1] or f'"{match[2]}":', plain))
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"the broker's response is not JSON: {error}") from error


def _json_header(frame: Frame) -> bytes:
    header: dict[str, Any] = {
        "code": frame.code, "language": frame.language, "version": frame.version, "opaque": frame.opaque,
        "flag": frame.flag, "extFields": dict(frame.fields), "serializeTypeCurrentRPC": "JSON",
    }
    if frame.remark is not None:
        header["remark"] = frame.remark
    return json.dumps(header, ensure_ascii=False).encode()


def _from_json(header: bytes, body: bytes) -> Frame:
    value = parsed_json(header)
    fields = {str(name): str(text) for name, text in (value.get("extFields") or {}).items() if text is not None}
    remark = value.get("remark")
    return Frame(
        int(value["code"]), int(value["opaque"]), fields, body, int(value.get("flag", 0)),
        None if remark is None else str(remark), int(value.get("version", 0)), str(value.get("language", "OTHER")),
    )


def _rocketmq_header(frame: Frame) -> bytes:
    remark = (frame.remark or "").encode()
    if not -(1 << 15) <= frame.code < 1 << 15:
        raise BadFrame("the code does not fit the ROCKETMQ header", field="code", expected="16 bits", actual=frame.code)
    start = ROCKETMQ_HEADER.pack(
        code=frame.code, language=LANGUAGES.index(frame.language), version=frame.version, opaque=frame.opaque,
        flag=frame.flag, remark_length_bytes=len(remark),
    )
    parts = []
    for name, value in frame.fields.items():
        key, text = name.encode(), value.encode()
        parts += [len(key).to_bytes(2, "big"), key, len(text).to_bytes(4, "big"), text]
    fields = b"".join(parts)
    return b"".join((start, remark, len(fields).to_bytes(4, "big"), fields))


def _from_rocketmq(header: bytes, body: bytes) -> Frame:
    start = ROCKETMQ_HEADER.unpack(header)
    place = ROCKETMQ_HEADER.size_bytes
    remark, place = _text(header, place, start["remark_length_bytes"])
    length = int.from_bytes(header[place : place + 4], "big", signed=True)
    place += 4
    end = place + length
    if length < 0 or end != len(header):
        raise BadFrame("the fields of a header do not end at its end", expected=len(header), actual=end)
    fields: dict[str, str] = {}
    while place < end:
        name, place = _text(header, place + 2, int.from_bytes(header[place : place + 2], "big"))
        fields[name], place = _text(header, place + 4, int.from_bytes(header[place : place + 4], "big", signed=True))
    return Frame(
        start["code"], start["opaque"], fields, body, start["flag"], remark or None, start["version"],
        LANGUAGES[start["language"]] if 0 <= start["language"] < len(LANGUAGES) else "OTHER", Encoding.ROCKETMQ,
    )


def _text(data: bytes, place: int, length: int) -> tuple[str, int]:
    if not 0 <= length <= len(data) - place:
        raise BadFrame("a text in a header extends beyond its end", expected=len(data) - place, actual=length)
    return data[place : place + length].decode(), place + length
