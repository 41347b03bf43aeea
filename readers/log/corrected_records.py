"""Read damaged records as far as possible: a hint which transaction they belong to, never evidence."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

import numpy as np

from rmqtx.readers.log.record_at import block_of_one
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import (
    BORN_V6,
    CRC_MASK,
    FILLER_MARK,
    MAGIC_AT,
    MAGIC_START,
    MAGIC_V1,
    MAGIC_V2,
    PREPARED,
    PROPERTIES_BYTES_MAX,
    RECORD,
    RECORD_BYTES_MIN,
    STORE_V6,
    TRANSACTION_MASK,
    VALUE_END,
    header_bytes,
    number_at,
    span_of,
)
from rmqtx.readers.model.columns import SLACK_BYTES, integers_at

_V6 = BORN_V6 | STORE_V6
_TOPIC = re.compile(rb"[%|a-zA-Z0-9_-]+")
_TOPIC_BYTES_MAX = 255
_DIGITS_MAX = 18
_OP_BODY_BYTES_MAX = 1 << 16
#: The contribution of one byte to a CRC-32 register; the top bytes of the entries are all different.
_TABLE = tuple(zlib.crc32(bytes([number])) ^ zlib.crc32(b"\0") for number in range(256))
_TABLE_NUMBER = tuple(number for _, number in sorted((entry >> 24, number) for number, entry in enumerate(_TABLE)))


def corrected_blocks(raw: bytes, offset: int, file: str, position: int) -> list[Block] | None:
    """Return damaged bytes as corrected records, if they are whole records with one damaged field each.

    Shape: one block per record; None if the bytes cannot be divided into records. A corrected record is a hint which
           transaction it belongs to, never evidence. Fillers of `rmqtx salvage` belong to none.
    """
    if FILLER_MARK in raw:
        return None
    blocks = []
    place = wrong_bytes = 0
    while place < len(raw):
        corrected = _corrected(raw, place, offset + place)
        wrong_bytes += _wrong_place_bytes(raw, place, offset + place)
        if corrected is None or wrong_bytes > 1:
            return None
        block = Block(
            corrected + bytes(SLACK_BYTES), offset + place, position + place, file, np.zeros(1, np.int64)
        )
        blocks.append(block)
        place += len(corrected)
    return blocks


def _wrong_place_bytes(raw: bytes, place: int, offset: int) -> int:
    """Return the number of bytes in which a record's stored offset differs from its place.

    One different byte in all is a damaged record of this place. More are records that were copied or moved here, which
    show nothing about the record that stood here before.
    """
    stored = raw[place:][span_of("commit_log_offset")]
    return sum(one != other for one, other in zip(stored, offset.to_bytes(8, "big"), strict=False))


def _corrected(raw: bytes, place: int, offset: int) -> bytes | None:
    """Return the record at a place of damaged bytes with its length, magic code, offset or part lengths corrected."""
    if len(raw) - place < RECORD.size_bytes:
        return None
    claimed = number_at(raw, "length_bytes", place)
    magic = number_at(raw, "magic", place) & 0xFFFFFFFF
    codes = (magic,) if magic in (MAGIC_V1, MAGIC_V2) else (MAGIC_V1, MAGIC_V2)
    for length in _possible_lengths(raw, place):
        body = bytearray(raw[place : place + length])
        if body[-1] == 0 and body[-2] != 0:
            body[-1] = VALUE_END
        body[span_of("length_bytes")] = length.to_bytes(4, "big")
        body[span_of("commit_log_offset")] = offset.to_bytes(8, "big")
        for code in dict.fromkeys((*codes, MAGIC_V1, MAGIC_V2)):
            body[span_of("magic")] = code.to_bytes(4, "big")
            if _is_whole(bytes(body), offset):
                return bytes(body)
            if length == claimed:
                corrected = _with_parts_corrected(bytes(body), is_v2=code == MAGIC_V2)
                if corrected is not None and _is_whole(corrected, offset):
                    return corrected
    return None


def _possible_lengths(raw: bytes, place: int) -> list[int]:
    """Return lengths that end at the end of the bytes, or where another record seems to begin."""
    claimed = number_at(raw, "length_bytes", place)
    ends = [len(raw) - place]
    found = raw.find(MAGIC_START, place + span_of("magic").stop)
    while found >= 0 and len(ends) < 64:
        ends.append(found - MAGIC_AT - place)
        found = raw.find(MAGIC_START, found + 1)
    lengths = [length for length in ends if length >= RECORD_BYTES_MIN]
    return sorted(lengths, key=lambda length: (length != claimed, length))


def _is_whole(data: bytes, offset: int) -> bool:
    block = block_of_one(data, offset, "", 0)
    return block is not None and bool(block.sound().all())


def _with_parts_corrected(record: bytes, *, is_v2: bool) -> bytes | None:
    """Return the record with its body, topic or properties length, or the flag bits of IPv6 hosts, corrected, or None.

    All but one of the fields are correct, so that one follows from the others: only one division of the record gives a
    possible topic. If there are several, the one with a matching body CRC is chosen.
    """
    flag = number_at(record, "sys_flag") & 0xFFFFFFFF
    found: list[tuple[bool, bytes]] = []
    for bits in dict.fromkeys((flag & _V6, 0, BORN_V6, STORE_V6, _V6)):
        for body_length, topic_length in _cuts(record, bits, is_v2=is_v2, is_flag_kept=bits == flag & _V6):
            corrected = bytearray(record)
            corrected[span_of("sys_flag")] = ((flag & ~_V6) | bits).to_bytes(4, "big")
            corrected[span_of("body_length_bytes", bits)] = body_length.to_bytes(4, "big")
            body_at = header_bytes(bits)
            topic_at = body_at + body_length
            width = 2 if is_v2 else 1
            corrected[topic_at : topic_at + width] = topic_length.to_bytes(width, "big")
            sizes_at = topic_at + width + topic_length
            corrected[sizes_at : sizes_at + 2] = (len(record) - sizes_at - 2).to_bytes(2, "big")
            stored = number_at(record, "body_crc") & CRC_MASK
            is_proved = zlib.crc32(record[body_at:topic_at]) & CRC_MASK == stored
            found.append((is_proved, bytes(corrected)))
    proved = [corrected for is_proved, corrected in found if is_proved]
    if proved:
        return proved[0]
    return found[0][1] if len(found) == 1 else None


def _cuts(record: bytes, bits: int, *, is_v2: bool, is_flag_kept: bool) -> Iterator[tuple[int, int]]:
    """Yield body and topic lengths of a record with which at most one of its three part lengths is wrong.

    `bits`: those of its flags that show how long its hosts are.
    """
    width = 2 if is_v2 else 1
    body_at = header_bytes(bits)

    def number(place: int, size: int) -> int:
        return int.from_bytes(record[place : place + size], "big", signed=True)

    def is_topic(topic_at: int, length: int) -> bool:
        return length > 0 and _TOPIC.fullmatch(record[topic_at : topic_at + length]) is not None

    claimed = number_at(record, "body_length_bytes", 0, bits)
    last = len(record) - 2
    if 0 <= claimed <= last - body_at - width:
        topic_at = body_at + claimed + width
        topic_length = number(topic_at - width, width)
        # The topic ends where the properties' length fits; if it fits nowhere, the properties' length is wrong.
        ends = [
            end
            for end in range(topic_at + 1, min(topic_at + _TOPIC_BYTES_MAX, last) + 1)
            if number(end, 2) == last - end and is_topic(topic_at, end - topic_at)
        ]
        if is_flag_kept:
            yield from ((claimed, end - topic_at) for end in ends)
        elif topic_at + topic_length in ends:
            yield claimed, topic_length
        is_rest = 0 <= last - topic_at - topic_length <= PROPERTIES_BYTES_MAX
        if is_flag_kept and not ends and is_rest and is_topic(topic_at, topic_length):
            yield claimed, topic_length
    if is_flag_kept:  # the body's length is wrong
        data = np.frombuffer(record, np.uint8)
        topics_at = np.arange(body_at + width, last)
        lengths = integers_at(data, topics_at - width, ">i2" if is_v2 else ">i1").astype(np.int64)
        inside = (lengths > 0) & (topics_at + lengths <= last)
        topics_at, lengths = topics_at[inside], lengths[inside]
        sizes_at = topics_at + lengths
        fits = integers_at(data, sizes_at, ">i2") == last - sizes_at
        for topic_at, topic_length in zip(topics_at[fits].tolist(), lengths[fits].tolist(), strict=True):
            if is_topic(topic_at, topic_length):
                yield topic_at - width - body_at, topic_length


def corrected_op_numbers(body: bytes, stored_crc: int) -> list[int] | None:
    """Return the half queue offsets of an op body with a wrong CRC, if one wrong byte explains it; else None.

    The CRC proves the result: only the correct byte at the correct place gives it.
    """
    def numbers(text: bytes) -> list[int] | None:
        if not text or text.strip(b"0123456789,"):
            return None
        return [int(part) for part in text.split(b",") if len(part) in range(1, _DIGITS_MAX + 1)]

    difference = (zlib.crc32(body) ^ stored_crc) & CRC_MASK
    if difference == 0 or sum(1 for shift in (0, 8, 16, 24) if (difference >> shift) & 0xFF) == 1:
        return numbers(body)  # the body is intact, one byte of the CRC field is not
    if len(body) > _OP_BODY_BYTES_MAX:
        return None
    for place, change in _single_errors(len(body), difference):
        found = numbers(body[:place] + bytes([body[place] ^ change]) + body[place + 1 :])
        if found is not None:
            return found
    return None


def _single_errors(length: int, difference: int) -> Iterator[tuple[int, int]]:
    """Return places and bit patterns of one wrong byte that changes a CRC-32 by `difference`, whose top bit is unknown.

    A CRC is linear: the difference, shifted back by one byte for each byte after the wrong byte, is a table entry.
    """
    for state in (difference, difference | 0x80000000):
        for place in range(length - 1, -1, -1):
            number = _TABLE_NUMBER[state >> 24]
            if _TABLE[number] == state:
                yield place, number
            state = ((state ^ _TABLE[number]) << 8 | number) & 0xFFFFFFFF


def with_topic(block: Block, topic: str) -> Block | None:
    """Return a sound record with another topic of the same length, for a block of one; None for another length."""
    text = topic.encode()
    if len(block) != 1 or int(block.topic_lengths[0]) != len(text):
        return None
    begin, length = int(block.starts[0]), int(block.lengths[0])
    record = bytearray(block.data[begin : begin + length].tobytes())
    at = int(block.topic_starts[0]) - begin
    record[at : at + len(text)] = text
    place = block.position_bytes + begin
    return Block(
        bytes(record) + bytes(SLACK_BYTES), block.base_offset + begin, place, block.file, np.zeros(1, np.int64)
    )


def as_prepared(block: Block) -> Block | None:
    """Return a sound record with PREPARED in its flag, for a block of one; None for more."""
    if len(block) != 1:
        return None
    begin, length = int(block.starts[0]), int(block.lengths[0])
    record = bytearray(block.data[begin : begin + length].tobytes())
    flag = (int(block.sys_flag[0]) & ~TRANSACTION_MASK & 0xFFFFFFFF) | PREPARED
    record[span_of("sys_flag")] = flag.to_bytes(4, "big")
    place = block.position_bytes + begin
    return Block(
        bytes(record) + bytes(SLACK_BYTES), block.base_offset + begin, place, block.file, np.zeros(1, np.int64)
    )
