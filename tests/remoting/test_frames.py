"""Frames survive the way to bytes and back, and no bytes do more than raise BadFrame."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtx.remoting.protocol.codes import LANGUAGES
from rmqtx.remoting.protocol.errors import BadFrame, RemotingError
from rmqtx.remoting.protocol.frames import (
    FRAME_BYTES_MAX,
    Encoding,
    Frame,
    FrameReader,
    decoded,
    encoded,
    parsed_json,
    parsing,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
FRAMES = st.builds(
    Frame,
    code=st.integers(-(1 << 15), (1 << 15) - 1), opaque=st.integers(0, (1 << 31) - 1),
    fields=st.dictionaries(TEXTS, TEXTS, max_size=6), body=st.binary(max_size=200), flag=st.integers(0, 3),
    remark=st.one_of(st.none(), TEXTS.filter(bool)), version=st.integers(0, 600), language=st.sampled_from(LANGUAGES),
    encoding=st.sampled_from(Encoding),
)


@given(FRAMES)
def test_a_frame_comes_back(frame: Frame) -> None:
    assert decoded(encoded(frame)) == frame


@given(st.lists(FRAMES, max_size=5), st.integers(1, 40))
def test_frames_are_cut_however_they_arrive(frames: list[Frame], step: int) -> None:
    data = b"".join(encoded(frame) for frame in frames)
    reader = FrameReader()
    found = [frame for place in range(0, len(data), step) for frame in reader.feed(data[place : place + step])]
    assert found == frames
    assert not reader.is_inside


@given(FRAMES, st.data())
def test_a_cut_frame_is_known_to_be_one(frame: Frame, data: st.DataObject) -> None:
    whole = encoded(frame)
    reader = FrameReader()
    assert list(reader.feed(whole[: data.draw(st.integers(1, len(whole) - 1))])) == []
    assert reader.is_inside


@settings(max_examples=400)
@given(FRAMES, st.data())
def test_damaged_frames_raise_nothing_else(frame: Frame, data: st.DataObject) -> None:
    damaged = bytearray(encoded(frame))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    reader = FrameReader()
    try:
        list(reader.feed(bytes(damaged)))
    except RemotingError as error:
        assert isinstance(error, BadFrame)  # noqa: PT017


@settings(max_examples=400)
@given(st.binary(max_size=120), st.integers(0, 2))
def test_any_header_raises_nothing_else(header: bytes, kind: int) -> None:
    data = (4 + len(header)).to_bytes(4, "big") + (kind << 24 | len(header)).to_bytes(4, "big") + header
    try:
        decoded(data)
    except RemotingError as error:
        assert isinstance(error, BadFrame)  # noqa: PT017


def json_frame(header: bytes) -> bytes:
    return (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 500_000, b'{"a":' * 100_000, b'{"code":' + b"9" * 1_000_000 + b"}", b'{"code":1e999,"opaque":1}',
        b'{"code":NaN,"opaque":1}', b"null", b"[]", b'"x"', b"", b"{}", b'{"code":{},"opaque":1}',
        b'{"code":1,"opaque":1,"extFields":[1]}', b'{"code":1,"opaque":1,"extFields":"x"}', b"\xff\xfe\xfa" * 50_000,
        b'{"code":0,"opaque":1,"extFields":{' + b'"a":"b",' * 100_000, b"{" + b'0:"x",' * 100_000,
        b'{"' + b'\\"' * 300_000, b'{"' * 300_000, b'{"\\' * 300_000, b"{,{," * 200_000, b'{0 :' * 200_000,
    ],
    ids=lambda header: repr(header[:24]),
)
def test_a_hostile_header_is_refused_soon(header: bytes) -> None:
    start = time.thread_time()  # of this thread's own work: what else the machine does takes nothing from it
    with pytest.raises(BadFrame):
        decoded(json_frame(header))
    assert time.thread_time() - start < 3


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 3, FRAME_BYTES_MAX + 1, (1 << 31) - 1])
def test_a_length_that_cannot_be_is_refused_at_once(length: int) -> None:
    with pytest.raises(BadFrame, match=r"not a frame .* found"):
        list(FrameReader().feed(length.to_bytes(4, "big", signed=True) + b"\0" * 4))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the port uses HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "the port uses TLS - add --tls"),
    ],
)
def test_other_protocols_are_named(data: bytes, says: str) -> None:
    with pytest.raises(BadFrame, match=says):
        list(FrameReader().feed(data))


@pytest.mark.parametrize(
    "frame",
    [
        Frame(1, 1, {"a": "\ud800"}, encoding=Encoding.ROCKETMQ), Frame(1, 1, {"a": "\ud800"}),
        Frame(200_050, 1, encoding=Encoding.ROCKETMQ), Frame(1, 1, body=bytes(FRAME_BYTES_MAX)),
        Frame(1, 1 << 40, encoding=Encoding.ROCKETMQ), Frame(1, 1, language="KLINGON", encoding=Encoding.ROCKETMQ),
    ],
    ids=["surrogate", "surrogate in JSON", "code", "size", "opaque", "language"],
)
def test_what_cannot_be_sent_is_said_before_it_is(frame: Frame) -> None:
    with pytest.raises(BadFrame):
        encoded(frame)


@pytest.mark.parametrize("length", range(8))
def test_less_than_the_lengths_of_a_frame_is_no_frame(length: int) -> None:
    with pytest.raises(BadFrame, match="cut off"):
        decoded(bytes(length))


def test_numbers_as_names_are_read_and_texts_that_look_so_are_left_alone() -> None:
    text = b'{"brokerAddrs":{0:"10.0.0.1:1",-1:"x",17:"{1:2, 3:4}"},"a":"\\",0:"}'
    assert parsed_json(text) == {"brokerAddrs": {"0": "10.0.0.1:1", "-1": "x", "17": "{1:2, 3:4}"}, "a": '",0:'}


def test_a_language_of_the_future_is_another() -> None:
    data = bytearray(encoded(Frame(0, 1, encoding=Encoding.ROCKETMQ)))
    data[10] = 99
    assert decoded(bytes(data)).language == "OTHER"


def test_what_is_missing_in_an_answer_is_named() -> None:
    with pytest.raises(BadFrame, match="cannot parse runtime information: KeyError 'table'"), parsing(
        "runtime information"
    ):
        {}["table"]  # type: ignore[index]
