"""Single records by their commit-log offset, and what can still be read of damaged ones."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

import numpy as np

from readers.columns import SLACK_BYTES
from readers.record_block import Block
from readers.record_layout import AT, BORN_V6, IPV6_EXTRA_BYTES, MAGIC_V1, MAGIC_V2, RECORD, RECORD_BYTES_MIN, STORE_V6
from readers.segment_scan import walk
from readers.sources import SegmentedLog
from readers.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC

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
    head = raw[place : place + RECORD.size_bytes]
    if len(head) < RECORD.size_bytes:
        return None
    for length in _possible_lengths(raw, place):
        body = bytearray(raw[place : place + length])
        magic = int.from_bytes(body[4:8], "big")
        body[0:4] = length.to_bytes(4, "big")
        body[28:36] = offset.to_bytes(8, "big")
        for code in (magic, MAGIC_V1, MAGIC_V2):
            if code not in (MAGIC_V1, MAGIC_V2):
                continue
            body[4:8] = code.to_bytes(4, "big")
            if _is_whole(bytes(body), offset):
                return bytes(body)
            if _mend_parts(body) and _is_whole(bytes(body), offset):
                return bytes(body)
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


def _mend_parts(body: bytearray) -> bool:
    """Put body, topic and properties lengths right around a topic that is known."""
    flag = int.from_bytes(body[AT["sys_flag"] : AT["sys_flag"] + 4], "big")
    shift = sum(IPV6_EXTRA_BYTES for bit in (BORN_V6, STORE_V6) if flag & bit)
    for topic in (HALF_TOPIC, OP_TOPIC, DISCARD_TOPIC):
        found = bytes(body).find(topic.encode())
        if found > RECORD.size_bytes + shift:
            body_length = found - 1 - RECORD.size_bytes - shift
            place = AT["body_length_bytes"] + shift
            body[place : place + 4] = body_length.to_bytes(4, "big")
            body[found - 1] = len(topic)
            sizes = found + len(topic)
            rest = len(body) - sizes - 2
            if 0 <= rest <= 32767:
                body[sizes : sizes + 2] = rest.to_bytes(2, "big")
                return True
    return False


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
