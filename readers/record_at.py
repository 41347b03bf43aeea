"""Single records by their commit-log offset, and what can still be read of damaged ones."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator

import numpy as np

from readers.columns import SLACK_BYTES, integers_at
from readers.record_block import Block
from readers.record_layout import AT, BORN_V6, IPV6_EXTRA_BYTES, MAGIC_V1, MAGIC_V2, RECORD, RECORD_BYTES_MIN, STORE_V6
from readers.segment_scan import walk
from readers.sources import SegmentedLog

#: More than brokers write at once (maxMessageSize is 4 MiB by default): a longer claim is damage.
RECORD_BYTES_MAX = 256 << 20
_FIRST_READ_BYTES = 4096
_TOGETHER_BYTES = 1 << 20


def block_at(log: SegmentedLog, offset: int) -> Block | None:
    """The sound record that begins at a commit-log offset, as a block of one; None where there is none.

    Raises: FileChanged, UnreadableFile.
    """
    segment = log.segment_at(offset)
    if segment is None:
        return None
    data = log.read(offset, _FIRST_READ_BYTES)
    length = int.from_bytes(data[:4], "big", signed=True)
    if not RECORD_BYTES_MIN <= length <= min(RECORD_BYTES_MAX, segment.end_offset - offset):
        return None
    if length > len(data):
        data = log.read(offset, length)
    block = _block(data[:length], offset, segment.file, offset - segment.base_offset)
    return block if block is not None and block.sound().all() else None


def _block(data: bytes, offset: int, file: str, position: int) -> Block | None:
    starts, stop = walk(data, offset, 0, len(data))
    if starts != [0] or stop != len(data):
        return None
    return Block(data + bytes(SLACK_BYTES), offset, position, file, np.zeros(1, np.int64))


def blocks_at(log: SegmentedLog, offsets: Iterable[int], lengths: Iterable[int]) -> Iterator[Block]:
    """The sound records at some commit-log offsets; neighbours are read together.

    Units: bytes. `offsets` ascending; `lengths` as the consume queue has them.
    Shape: blocks of one or more records, in the order of the offsets; places without a sound record are left out.
    Raises: FileChanged, UnreadableFile.
    """
    group: list[tuple[int, int]] = []
    for offset, length in zip(offsets, lengths, strict=True):
        if not RECORD_BYTES_MIN <= length <= RECORD_BYTES_MAX:
            continue
        if group and (
            offset + length - group[0][0] > _TOGETHER_BYTES
            or offset - (group[-1][0] + group[-1][1]) > _FIRST_READ_BYTES
        ):
            yield from _blocks_of(log, group)
            group = []
        group.append((offset, length))
    if group:
        yield from _blocks_of(log, group)


def _blocks_of(log: SegmentedLog, group: list[tuple[int, int]]) -> Iterator[Block]:
    begin = group[0][0]
    segment = log.segment_at(begin)
    if segment is None:
        if len(group) > 1:
            yield from _blocks_of(log, group[1:])
        return
    inside = [(offset, length) for offset, length in group if offset + length <= segment.end_offset]
    if inside:
        end = max(offset + length for offset, length in inside)
        data = log.read(begin, end - begin)
        starts = [
            offset - begin for offset, length in inside if walk(data, begin, offset - begin, offset - begin + length)[0]
        ]
        block = Block(
            data + bytes(SLACK_BYTES), begin, begin - segment.base_offset, segment.file, np.array(starts, np.int64)
        )
        block = block.take(block.sound())
        if len(block):
            yield block
    outside = group[len(inside) :]
    if outside and outside[0][0] >= segment.end_offset:
        yield from _blocks_of(log, outside)


def mended_blocks(raw: bytes, offset: int, file: str, position: int) -> list[Block] | None:
    """Damaged bytes as the records they must have been, if they are whole records with one damaged field each.

    Shape: one block per record; None where the bytes cannot be cut into records. What is read of them is a hint of
           whom they concern, never evidence.
    """
    blocks = []
    place = 0
    while place < len(raw):
        mended = _mended(raw, place, offset + place)
        if mended is None:
            return None
        block = Block(
            mended + bytes(SLACK_BYTES), offset + place, position + place, file, np.zeros(1, np.int64)
        )
        blocks.append(block)
        place += len(mended)
    return blocks


def _mended(raw: bytes, place: int, offset: int) -> bytes | None:
    """The record at a place of damaged bytes, with its length, magic, offset or part lengths put right."""
    if len(raw) - place < RECORD.size_bytes:
        return None
    claimed = int.from_bytes(raw[place : place + 4], "big", signed=True)
    magic = int.from_bytes(raw[place + 4 : place + 8], "big")
    codes = (magic,) if magic in (MAGIC_V1, MAGIC_V2) else (MAGIC_V1, MAGIC_V2)
    for length in _possible_lengths(raw, place):
        body = bytearray(raw[place : place + length])
        body[0:4] = length.to_bytes(4, "big")
        body[28:36] = offset.to_bytes(8, "big")
        for code in dict.fromkeys((*codes, MAGIC_V1, MAGIC_V2)):
            body[4:8] = code.to_bytes(4, "big")
            if _is_whole(bytes(body), offset):
                return bytes(body)
            if length == claimed:
                mended = _with_parts_mended(bytes(body), is_v2=code == MAGIC_V2)
                if mended is not None and _is_whole(mended, offset):
                    return mended
    return None


def _possible_lengths(raw: bytes, place: int) -> list[int]:
    """Lengths that end at the end of the bytes, or where another record seems to begin."""
    claimed = int.from_bytes(raw[place : place + 4], "big", signed=True)
    ends = [len(raw) - place]
    found = raw.find(b"\xda\xa3\x20", place + 8)
    while found >= 0 and len(ends) < 64:
        ends.append(found - 4 - place)
        found = raw.find(b"\xda\xa3\x20", found + 1)
    lengths = [length for length in ends if length >= RECORD_BYTES_MIN]
    return sorted(lengths, key=lambda length: (length != claimed, length))


def _is_whole(data: bytes, offset: int) -> bool:
    block = _block(data, offset, "", 0)
    return block is not None and bool(block.sound().all())


def _with_parts_mended(record: bytes, *, is_v2: bool) -> bytes | None:
    """The record with its body, topic or properties length, or the flag bits that move them, put right; None if not.

    All but one of them are right, so the parts must still follow from the others: only one way of cutting the record
    gives a topic that can be one. A body whose CRC is right settles which, if there are several.
    """
    at_flag = AT["sys_flag"]
    flag = int.from_bytes(record[at_flag : at_flag + 4], "big")
    found: list[tuple[bool, bytes]] = []
    for bits in dict.fromkeys((flag & _V6, 0, BORN_V6, STORE_V6, _V6)):
        shift = sum(IPV6_EXTRA_BYTES for bit in (BORN_V6, STORE_V6) if bits & bit)
        for body_length, topic_length in _cuts(record, shift, is_v2=is_v2, is_flag_kept=bits == flag & _V6):
            mended = bytearray(record)
            mended[at_flag : at_flag + 4] = ((flag & ~_V6) | bits).to_bytes(4, "big")
            place = AT["body_length_bytes"] + shift
            mended[place : place + 4] = body_length.to_bytes(4, "big")
            body_at = RECORD.size_bytes + shift
            topic_at = body_at + body_length
            width = 2 if is_v2 else 1
            mended[topic_at : topic_at + width] = topic_length.to_bytes(width, "big")
            sizes_at = topic_at + width + topic_length
            mended[sizes_at : sizes_at + 2] = (len(record) - sizes_at - 2).to_bytes(2, "big")
            stored = int.from_bytes(record[AT["body_crc"] : AT["body_crc"] + 4], "big") & 0x7FFFFFFF
            is_proved = zlib.crc32(record[body_at:topic_at]) & 0x7FFFFFFF == stored
            found.append((is_proved, bytes(mended)))
    proved = [mended for is_proved, mended in found if is_proved]
    if proved:
        return proved[0]
    return found[0][1] if len(found) == 1 else None


_V6 = BORN_V6 | STORE_V6
_TOPIC = re.compile(rb"[%|a-zA-Z0-9_-]+")


def _cuts(record: bytes, shift: int, *, is_v2: bool, is_flag_kept: bool) -> Iterator[tuple[int, int]]:
    """Body and topic lengths that cut a record so that at most one of its three part lengths must be another."""
    width = 2 if is_v2 else 1
    body_at = RECORD.size_bytes + shift

    def number(place: int, size: int) -> int:
        return int.from_bytes(record[place : place + size], "big", signed=True)

    def is_topic(topic_at: int, length: int) -> bool:
        return length > 0 and _TOPIC.fullmatch(record[topic_at : topic_at + length]) is not None

    claimed = number(AT["body_length_bytes"] + shift, 4)
    last = len(record) - 2
    if 0 <= claimed <= last - body_at - width:
        topic_at = body_at + claimed + width
        topic_length = number(topic_at - width, width)
        rest = last - topic_at - topic_length
        if 0 <= rest <= _PROPERTIES_BYTES_MAX and is_topic(topic_at, topic_length):
            if is_flag_kept or number(topic_at + topic_length, 2) == rest:
                yield claimed, topic_length
        elif is_flag_kept:  # the topic's length is the wrong one: where the properties' fits, the topic ends
            for sizes_at in range(topic_at + 1, min(topic_at + _TOPIC_BYTES_MAX, last) + 1):
                if number(sizes_at, 2) == last - sizes_at and is_topic(topic_at, sizes_at - topic_at):
                    yield claimed, sizes_at - topic_at
    if is_flag_kept:  # the body's length is the wrong one
        data = np.frombuffer(record, np.uint8)
        topics_at = np.arange(body_at + width, last)
        lengths = integers_at(data, topics_at - width, ">i2" if is_v2 else ">i1").astype(np.int64)
        sizes_at = topics_at + lengths
        inside = (lengths > 0) & (sizes_at <= last)
        topics_at, lengths, sizes_at = topics_at[inside], lengths[inside], sizes_at[inside]
        fits = integers_at(data, sizes_at, ">i2") == last - sizes_at
        for topic_at, topic_length in zip(topics_at[fits].tolist(), lengths[fits].tolist(), strict=True):
            if is_topic(topic_at, topic_length):
                yield topic_at - width - body_at, topic_length


_PROPERTIES_BYTES_MAX = 32_767
_TOPIC_BYTES_MAX = 255


def mended_op_numbers(body: bytes, stored_crc: int) -> list[int] | None:
    """The half queue offsets of an op body whose CRC is wrong, if one wrong byte explains it; None if not.

    Tries every digit and comma at every place: a body has at most some thousand bytes, and the CRC proves the hit.
    """
    def numbers(text: bytes) -> list[int] | None:
        if not text or text.strip(b"0123456789,"):
            return None
        return [int(part) for part in text.split(b",") if part]

    computed = zlib.crc32(body) & 0x7FFFFFFF
    difference = computed ^ (stored_crc & 0x7FFFFFFF)
    if difference == 0 or sum(1 for shift in (0, 8, 16, 24) if (difference >> shift) & 0xFF) == 1:
        return numbers(body)  # the body is intact, one byte of the CRC field is not
    if len(body) > 16_384:
        return None
    for place in range(len(body)):
        before, after = zlib.crc32(body[:place]), body[place + 1 :]
        for value in b"0123456789,":
            if zlib.crc32(after, zlib.crc32(bytes([value]), before)) & 0x7FFFFFFF == stored_crc & 0x7FFFFFFF:
                return numbers(body[:place] + bytes([value]) + after)
    return None
