"""Redacted records: bodies replaced by length and hash, names by pseudonyms of the same length.

Positions and lengths stay, so offsets, slots and verdicts stay too. A pseudonym comes from an HMAC with a key that is
not in the bundle: a name has the same pseudonym everywhere and in all bundles of one key, and without the key names
cannot be guessed and verified. With a hash without a key, short bodies and names could be.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import zlib
from collections.abc import Callable
from pathlib import Path

from rmqtx.readers.log import compression
from rmqtx.readers.log.op_messages import TRANS_OFFSET
from rmqtx.readers.log.properties import (
    CHECK_TIMES,
    HALF_MARK,
    IMMUNITY,
    KEYS,
    ORIGIN,
    PREPARED_QUEUE_OFFSET,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    TRANSACTION_ID,
    UNIQ_KEY,
)
from rmqtx.readers.log.record_layout import (
    COMPRESSED,
    MAGIC_V1,
    MAGIC_V2,
    NAME_END,
    RECORD,
    VALUE_END,
    number_at,
    parts_of,
    signed,
    span_of,
)
from rmqtx.readers.model.errors import BadRequest, UnreadableFile, UnwritableFile
from rmqtx.readers.model.identities import is_of_grpc_client
from rmqtx.readers.storage.places import naming_unreadable
from rmqtx.readers.store.store import (
    CHECK_GROUP,
    DISCARD_TOPIC,
    HALF_TOPIC,
    LEFT_OUT_TOPIC,
    OP_TOPIC,
    OP_TOPICS,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    WAITING_TOPICS,
)
from rmqtx.repairs.records.record_writer import PROPERTY_CRC, PROPERTY_CRC_BYTES

#: Names of RocketMQ itself, not of its users.
SYSTEM_NAMES = frozenset(
    {
        HALF_TOPIC, OP_TOPIC, DISCARD_TOPIC, LEFT_OUT_TOPIC, CHECK_GROUP, *WAITING_TOPICS, "TBW102",
        "AUTO_CREATE_TOPIC_KEY", ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC,
    }
)
#: Topics of op messages: their bodies and tags are the broker's.
_OP_TOPICS = frozenset(topic.encode() for topic in OP_TOPICS)
_PREFIXES = (b"%RETRY%", b"%DLQ%", b"%LMQ%", b"%")
#: Properties of RocketMQ (MessageConst) whose values come from applications.
_NAMED = {KEYS, TAGS, UNIQ_KEY, ORIGIN, TRANSACTION_ID, PRODUCER_GROUP, REAL_TOPIC, "RETRY_TOPIC", "ORIGIN_MESSAGE_ID",
          "INSTANCE_ID", "CORRELATION_ID", "REPLY_TO_CLIENT", "CLUSTER", "__SHARDINGKEY", "MSG_REGION", "TRACE_CONTEXT",
          "INNER_MULTI_DISPATCH", "BORN_HOST"}
#: Properties whose values stay if they are numbers or booleans.
_PLAIN = {REAL_QUEUE_ID, CHECK_TIMES, IMMUNITY, PREPARED_QUEUE_OFFSET, HALF_MARK, "WAIT", "DELAY", "RECONSUME_TIME",
          "MIN_OFFSET", "MAX_OFFSET", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "TRACE_ON", "INNER_NUM",
          "INNER_BASE", "INNER_MULTI_QUEUE_OFFSET", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS",
          "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "MSG_TYPE", "TTL",
          "POP_CK", "FIRST_POP_TIME", "REAL_QUEUE_OFFSET", TRANS_OFFSET}
_PLAIN_VALUE = re.compile(rb"-?[0-9]{1,19}|true|false")
_HEX = re.compile(rb"[0-9A-F]{16,}|[0-9a-f]{16,}")
_LETTERS = b"abcdefghijklmnopqrstuvwxyz"
_KEY_BYTES_MIN, _KEY_BYTES_MAX = 16, 4096
_ATTEMPTS_MAX = 10_000


class Redactor:
    """Pseudonyms for the names of one bundle, and records with them.

    Shape:  every method returns the same number of bytes as its argument has, and equal results for equal arguments.
    Raises: BadRequest for a key that is too short, or if there are more names of one length than pseudonyms.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) < _KEY_BYTES_MIN:
            raise BadRequest(
                f"the key has only {len(key)} bytes and could be guessed", advice=f"use at least {_KEY_BYTES_MIN} bytes"
            )
        self._key = key
        self._given: dict[tuple[str, bytes], bytes] = {}
        self._taken: set[tuple[str, bytes]] = set()

    def _digest(self, kind: str, raw: bytes, number: int, length: int) -> bytes:
        parts: list[bytes] = []
        count = 0
        while count * hashlib.sha256().digest_size < length:
            message = b"\0".join([kind.encode(), str(number).encode(), str(count).encode(), raw])
            parts.append(hmac.digest(self._key, message, "sha256"))
            count += 1
        return b"".join(parts)[:length]

    def _pseudonym(self, kind: str, raw: bytes, spell: Callable[[bytes], bytes]) -> bytes:
        """Return a unique pseudonym."""
        known = self._given.get((kind, raw))
        if known is not None:
            return known
        for number in range(_ATTEMPTS_MAX):
            found = spell(self._digest(kind, raw, number, len(raw)))
            if (kind, found) not in self._taken:
                self._taken.add((kind, found))
                self._given[kind, raw] = found
                return found
        raise BadRequest(
            f"too many different names of {len(raw)} bytes: there are not enough pseudonyms of this length",
            advice="bundle fewer transactions",
        )

    def name(self, raw: bytes) -> bytes:
        """Redact a name: a topic, group, key, tag, id or property name. Names of RocketMQ itself stay."""
        if not raw or raw.decode("utf-8", "replace") in SYSTEM_NAMES:
            return raw
        for prefix in _PREFIXES:
            if raw.startswith(prefix):
                return prefix + self.name(raw[len(prefix) :])
        if _HEX.fullmatch(raw):  # ids keep the form of ids, and those of gRPC clients their version
            digits = b"0123456789ABCDEF" if raw.upper() == raw else b"0123456789abcdef"
            kept = raw[:2] if is_of_grpc_client(raw.decode("ascii")) else b""
            return self._pseudonym(
                "name", raw, lambda digest: kept + bytes(digits[value & 15] for value in digest[len(kept):])
            )
        return self._pseudonym("name", raw, lambda digest: bytes(_LETTERS[value % 26] for value in digest))

    def text(self, name: str) -> str:
        """Redact a name from a row."""
        return self.name(name.encode("utf-8", "surrogateescape")).decode("ascii", "surrogateescape")

    def words(self, raw: bytes) -> bytes:
        """Redact business keys: each word is a name."""
        return b" ".join(self.name(word) for word in raw.split(b" "))

    def host(self, raw: bytes) -> bytes:
        """Redact an address: 10.x.x.x for IPv4, fd... for IPv6. An address of zeros stays."""
        if not any(raw):
            return raw
        first = b"\x0a" if len(raw) == 4 else b"\xfd"
        return self._pseudonym("host", raw, lambda digest: first + digest[1:])

    def message_id(self, text: str) -> str:
        """Redact an offset message id, which begins with a broker's address."""
        raw = bytes.fromhex(text)
        return (self.host(raw[:-12]) + raw[-12:]).hex().upper()

    # -- records -------------------------------------------------------------------------------------------------------

    def record(self, data: bytes) -> bytes:
        """Redact a sound record. Its CRCs are right if they were right before, else wrong."""
        sys_flag, parts = number_at(data, "sys_flag"), parts_of(data)
        topic, body, area = data[parts.topic], data[parts.body], data[parts.properties]
        changed = bytearray(data)
        for host in (parts.born_host, parts.store_host):
            address = slice(host.start, host.stop - _PORT_BYTES)
            changed[address] = self.host(data[address])
        new_body = _op_body(body) if topic in _OP_TOPICS else self.body(body, sys_flag)
        changed[parts.body] = new_body
        if body:
            stored = number_at(data, "body_crc") & 0xFFFFFFFF
            crc = stored ^ zlib.crc32(body) & 0x7FFFFFFF ^ zlib.crc32(new_body) & 0x7FFFFFFF
            changed[span_of("body_crc")] = crc.to_bytes(4, "big")
        changed[parts.topic] = self.name(topic)
        changed[parts.properties] = self._properties(area, keeps_tags=topic in _OP_TOPICS)
        if area[-PROPERTY_CRC_BYTES:].startswith(PROPERTY_CRC + bytes([NAME_END])):
            changed[-11:-1] = _property_crc(data, bytes(changed))
        return bytes(changed)

    def _properties(self, area: bytes, *, keeps_tags: bool) -> bytes:
        pieces = area.split(bytes([VALUE_END]))
        return bytes([VALUE_END]).join(self._property(piece, keeps_tags=keeps_tags) for piece in pieces)

    def _property(self, piece: bytes, *, keeps_tags: bool) -> bytes:
        raw, separator, value = piece.partition(bytes([NAME_END]))
        name = raw.decode("utf-8", "replace")
        if raw == PROPERTY_CRC:
            return piece
        if name not in _NAMED and name not in _PLAIN:
            return self.name(raw) + separator + self.value(value)
        if name in _PLAIN and _PLAIN_VALUE.fullmatch(value):
            return piece
        if name == TAGS and keeps_tags:
            return piece
        if name == KEYS:
            return raw + separator + self.words(value)
        return raw + separator + self.value(value)

    def value(self, raw: bytes) -> bytes:
        """Redact a property's value; separators in it, which damage may have caused, stay."""
        return bytes([NAME_END]).join(self.name(part) for part in raw.split(bytes([NAME_END])))

    def body(self, body: bytes, sys_flag: int) -> bytes:
        """Replace a body by its HMAC and length as text, cut or padded to its length; a stream stays a stream."""
        digest = hmac.digest(self._key, b"body\0" + body, "sha256").hex()
        text = f"{digest} is the HMAC-SHA256 of {len(body)} bytes ".encode("ascii")
        is_stream = bool(sys_flag & COMPRESSED) and compression.is_stream(body[:4], sys_flag)
        stream = _stored_stream(text, len(body), sys_flag) if is_stream else None
        if stream is not None:
            return stream
        if is_stream:
            return (body[: 4 if sys_flag & compression.KIND_MASK in _LONG_MAGICS else 2] + text.ljust(len(body), b"."))[
                : len(body)
            ]
        plain = text.ljust(len(body), b".")[: len(body)]
        if sys_flag & COMPRESSED and compression.is_stream(plain[:4], sys_flag):
            plain = b"-" + plain[1:]
        return plain

    def loose_bytes(self, data: bytes, *, offset: int) -> bytes:
        """Redact bytes that are not a record: only zeros stay, and the numbers of a proven record header.

        `offset`: their commit-log offset, which a header contains; other bytes may be any content.
        """
        changed = bytearray(120 if value else 0 for value in data)
        if data[span_of("commit_log_offset")] == offset.to_bytes(8, "big"):
            for name, (low, high) in _HEADER_NUMBERS.items():
                span = span_of(name)
                if span.stop <= len(data) and low <= number_at(data, name) <= high:
                    changed[span] = data[span]
        return bytes(changed)


#: Numbers of a header that stay in damaged bytes if their values are plausible. The body's CRC does not stay: a short
#: body could be found from it.
_HEADER_NUMBERS = {
    "length_bytes": (RECORD.size_bytes, 1 << 26), "magic": (signed(MAGIC_V1), signed(MAGIC_V2)),
    "queue_id": (0, 1 << 16), "flag": (0, 1 << 8), "queue_offset": (0, 1 << 40), "commit_log_offset": (0, 1 << 62),
}
_PORT_BYTES = 4
_LONG_MAGICS = (0x100, 0x200)


def _op_body(body: bytes) -> bytes:
    """Redact the body of an op message: queue offsets and commas stay, other bytes do not."""
    return bytes(value if value in b"0123456789,\0" else 120 for value in body)


#: Compression bits of the system flag → head, longest block, bytes before a block, and what ends the stream.
_STORED_LZ4 = (b"\x04\x22\x4d\x18\x60\x40\x82", 64 << 10, 4, 4)
_STORED_ZSTD = (b"\x28\xb5\x2f\xfd\x00\x38", 100 << 10, 3, 0)
_STORED_ZLIB = (b"\x78\x01", 65_535, 5, 4)


def _stored_stream(text: bytes, length: int, sys_flag: int) -> bytes | None:
    """Return a stream of uncompressed blocks with a given length that begins with a text; None if it is too short."""
    kind = sys_flag & compression.KIND_MASK
    head, block_max, overhead, end = {0x100: _STORED_LZ4, 0x200: _STORED_ZSTD}.get(kind, _STORED_ZLIB)
    room = length - len(head) - end
    count = -(-room // (block_max + overhead))
    if room < count * (overhead + 1) or count < 1:
        return None
    inflated = text.ljust(room - count * overhead, b".")[: room - count * overhead]
    edges = [len(inflated) * number // count for number in range(count + 1)]
    parts = [head]
    for number in range(count):
        block = inflated[edges[number] : edges[number + 1]]
        is_last = number == count - 1
        if kind == 0x100:
            parts.append((0x80000000 | len(block)).to_bytes(4, "little"))
        elif kind == 0x200:
            parts.append((len(block) << 3 | int(is_last)).to_bytes(3, "little"))
        else:
            size = len(block).to_bytes(2, "little")
            parts.append(bytes([is_last]) + size + bytes(255 - value for value in size))
        parts.append(block)
    if kind == 0x100:
        parts.append(bytes(4))
    elif kind != 0x200:
        parts.append(zlib.adler32(inflated).to_bytes(4, "big"))
    return b"".join(parts)


def _property_crc(old: bytes, new: bytes) -> bytes:
    """The CRC of a record as ten digits, the least significant first; wrong if the old digits were wrong.

    Source: docs/formats/record.md#property-crc.
    """
    digits = old[-11:-1]
    if not digits.isdigit():
        return digits
    was = zlib.crc32(old[:-PROPERTY_CRC_BYTES]) & 0x7FFFFFFF
    crc = zlib.crc32(new[:-PROPERTY_CRC_BYTES]) & 0x7FFFFFFF ^ was ^ int(digits[::-1])
    return str(crc)[::-1].encode("ascii").ljust(10, b"0")[:10]


def redaction_key(file: Path | None) -> bytes:
    """Return the key in a file, or a new key, written to the file so that later bundles have the same pseudonyms.

    Without a file a new key is used and not kept.
    Raises: BadRequest for a key that is too short; UnreadableFile, UnwritableFile.
    """
    fresh = secrets.token_hex(32).encode("ascii")
    if file is None:
        return fresh
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return _read_key(file)
    except OSError as error:
        raise UnwritableFile(f"cannot write {file}: {error.strerror}", file=file) from error
    with open(descriptor, "wb") as stream:
        stream.write(fresh + b"\n")
    return fresh


def _read_key(file: Path) -> bytes:
    with naming_unreadable(file):
        if not file.is_file():
            raise UnreadableFile(f"{file} is not a file", file=file, advice="give a file with a key, or a new name")
        with open(file, "rb") as stream:
            key = stream.read(_KEY_BYTES_MAX + 1).strip()
    if not _KEY_BYTES_MIN <= len(key) <= _KEY_BYTES_MAX:
        raise BadRequest(
            f"{file} does not contain a key: it has {len(key)} bytes",
            advice=f"give a file with {_KEY_BYTES_MIN} to {_KEY_BYTES_MAX} bytes, or a new name",
        )
    return key
