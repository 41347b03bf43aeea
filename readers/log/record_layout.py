"""The record of the commit log and the blank record, as declared data, and the fields and parts of one record in bytes.

`record_block` decodes many records at once. Hosts of IPv6 are longer than declared, and move the fields after them.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from rmqtx.readers.model.layout import Field, Layout, VariablePart

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
#: Brokers store a CRC-32 without its top bit.
CRC_MASK = 0x7FFFFFFF
#: The most that the length field of the properties allows: brokers refuse a message with more.
PROPERTIES_BYTES_MAX = 32_767

RECORD = Layout(
    "record",
    "Record of the commit log (hosts of 4 address bytes)",
    (
        Field("length_bytes", "i", "length of the whole record, with this field", "byte"),
        Field(
            "magic", "i",
            "DAA320A7: version 1; DAA320AB: version 2 (5.1.0+); CBD43194: blank record up to the file's end"
        ),
        Field("body_crc", "i", "CRC-32 of the stored body, top bit cleared; 0 for an empty one"),
        Field("queue_id", "i", "queue number"),
        Field("flag", "i", "user flag, opaque to the broker"),
        Field("queue_offset", "q", "number in its consume queue; 0 for prepared and ROLLBACK records"),
        Field("commit_log_offset", "q", "commit-log offset of this record", "byte"),
        Field("sys_flag", "i", "bits: 1 compressed, 0xC transaction type, 0x10/0x20 hosts are IPv6, 0x700 compression"),
        Field("born_time_ms", "q", "producer clock when the message was created", "ms"),
        Field("born_address", "4s", "producer address; 16 bytes when sys_flag has 0x10 (4.6.0+)"),
        Field("born_port", "i", "producer port"),
        Field("store_time_ms", "q", "broker clock at append; 12 bytes later if the born host is IPv6", "ms"),
        Field("store_address", "4s", "broker address; 16 bytes when sys_flag has 0x20 (4.6.0+)"),
        Field("store_port", "i", "broker port"),
        Field("reconsume_times", "i", "failed deliveries before this copy"),
        Field(
            "prepared_transaction_offset", "q", "COMMIT record: commit-log offset of the half copy that it commits",
            "byte"
        ),
        Field("body_length_bytes", "i", "length of the stored body", "byte"),
    ),
    88,
    "store/CommitLog.java (AppendMessageCallback), docs/formats/record.md#record",
    (
        VariablePart("body", "body_length_bytes", "as stored, may be compressed"),
        VariablePart("topic_length_bytes", "1, version 2: 2", "length of the topic"),
        VariablePart("topic", "topic_length_bytes", "UTF-8"),
        VariablePart("properties_length_bytes", "2", "length of the properties"),
        VariablePart("properties", "properties_length_bytes", "name 0x01 value 0x02, repeated"),
    ),
)
BLANK = Layout(
    "blank",
    "Blank record at the end of a full commit-log file",
    (Field("length_bytes", "i", "bytes up to the end of the file", "byte"), Field("magic", "i", "CBD43194")),
    8,
    "store/CommitLog.java doAppend END_OF_FILE, docs/formats/record.md#blank",
)

RECORD_BYTES_MIN = RECORD.size_bytes + 1 + 2
AT = RECORD.offsets
IPV6_EXTRA_BYTES = 12
BORN_V6, STORE_V6, COMPRESSED = 0x10, 0x20, 0x1
TRANSACTION_MASK, PREPARED, COMMIT, ROLLBACK = 0xC, 0x4, 0x8, 0xC

#: A property is `name` NAME_END `value` VALUE_END.
NAME_END, VALUE_END = 1, 2

#: Topic of the fillers that `rmqtx salvage` writes in place of lost records, and the property of fillers that also have
#: a lost record's number in its queue: brokers skip both, and rmqtx counts them as the damage that they stand for.
FILLER = "RMQTX_FILLER"
FILLER_MARK = FILLER.encode()


def signed(number: int) -> int:
    """Return an unsigned 32-bit number, such as a magic code, as the signed number in a record's field."""
    return int.from_bytes(number.to_bytes(4, "big"), "big", signed=True)


_SIZES_BYTES = {field.name: field.size_bytes for field in RECORD.fields}
#: Bytes up to the end of a record's own offset, with which a record is recognised.
HEAD_BYTES = AT["commit_log_offset"] + _SIZES_BYTES["commit_log_offset"]
#: Length, magic code (unsigned) and own offset of the record at a position.
head_of = struct.Struct(f">iI{AT['commit_log_offset'] - AT['body_crc']}xq").unpack_from
#: Length of a record in a buffer, as a tuple.
length_of = struct.Struct(">i").unpack_from
#: Bytes that have all fields of a header, whatever the hosts.
HEADER_BYTES_MAX = RECORD.size_bytes + 2 * IPV6_EXTRA_BYTES
MAGIC_AT = AT["magic"]
#: The bytes with which both magic codes of records begin.
MAGIC_START = MAGIC_V1.to_bytes(4, "big")[:3]
BLANK_MAGIC = MAGIC_BLANK.to_bytes(4, "big")
_HOST_BYTES = _SIZES_BYTES["born_address"] + _SIZES_BYTES["born_port"]


def host_extras(sys_flag: int) -> tuple[int, int]:
    """Return how many bytes longer than declared the born host and the store host are."""
    return IPV6_EXTRA_BYTES if sys_flag & BORN_V6 else 0, IPV6_EXTRA_BYTES if sys_flag & STORE_V6 else 0


def place_of(name: str, sys_flag: int = 0) -> int:
    """Return the position of a field in a record with these flags."""
    born, store = host_extras(sys_flag)
    place = AT[name]
    return place + (born if place > AT["born_address"] else 0) + (store if place > AT["store_address"] else 0)


def span_of(name: str, sys_flag: int = 0) -> slice:
    """Return the bytes of a field that is a number in a record with these flags."""
    place = place_of(name, sys_flag)
    return slice(place, place + _SIZES_BYTES[name])


def header_bytes(sys_flag: int) -> int:
    """Return the length of the header of a record with these flags: its body begins there."""
    return RECORD.size_bytes + sum(host_extras(sys_flag))


def topic_width(magic: int) -> int:
    """Return the width of the length of a record's topic, by its magic code, signed or not."""
    return 2 if magic & 0xFFFFFFFF == MAGIC_V2 else 1


def number_at(data: bytes | bytearray, name: str, start: int = 0, sys_flag: int | None = None) -> int:
    """Return a field of the record that begins at `start`, as a signed number; of missing bytes 0.

    `sys_flag`: flags that show how long the hosts are; None: those of the record.
    """
    if sys_flag is None:
        sys_flag = number_at(data, "sys_flag", start, 0) if AT[name] > AT["born_address"] else 0
    span = span_of(name, sys_flag)
    return int.from_bytes(data[start + span.start : start + span.stop], "big", signed=True)


def is_blank_head(head: bytes, left_bytes: int) -> bool:
    """Whether some bytes begin a blank record of this length."""
    return (
        len(head) >= BLANK.size_bytes and number_at(head, "length_bytes") == left_bytes
        and head[span_of("magic")] == BLANK_MAGIC
    )


class Parts(NamedTuple):
    """The places of the parts of a sound record whose widths are in other fields."""

    born_host: slice
    store_host: slice
    body: slice
    topic: slice
    properties: slice


def parts_of(record: bytes) -> Parts:
    """Return the places of the parts of a sound record, which ends where the bytes end."""
    sys_flag = number_at(record, "sys_flag")
    born, store = (
        slice(place, place + _HOST_BYTES + extra)
        for place, extra in zip(
            (place_of("born_address"), place_of("store_address", sys_flag)), host_extras(sys_flag), strict=True
        )
    )
    body_at = header_bytes(sys_flag)
    length_at = body_at + number_at(record, "body_length_bytes", 0, sys_flag)
    topic_at = length_at + topic_width(number_at(record, "magic"))
    topic_end = topic_at + int.from_bytes(record[length_at:topic_at], "big", signed=True)
    return Parts(born, store, slice(body_at, length_at), slice(topic_at, topic_end), slice(topic_end + 2, len(record)))
