"""Fields and parts of one record in bytes, by the declared layout; `record_block` decodes many records at once.

Hosts of IPv6 are longer than declared, and move the fields after them.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from rmqtx.readers.log.record_layout import (
    AT,
    BLANK,
    BORN_V6,
    IPV6_EXTRA_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD,
    STORE_V6,
)

_SIZES_BYTES = {field.name: field.size_bytes for field in RECORD.fields}
#: Bytes up to the end of a record's own offset, with which a record is recognised.
HEAD_BYTES = AT["commit_log_offset"] + _SIZES_BYTES["commit_log_offset"]
#: Length, magic code (unsigned) and own offset of the record at a position.
head_of = struct.Struct(f">iI{AT['commit_log_offset'] - AT['body_crc']}xq").unpack_from
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
    )  # fmt: skip


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
