"""Records from brokers, exactly as in the commit log, collected into blocks for the decoder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import HEAD_BYTES, MAGIC_AT, MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN, head_of
from rmqtx.readers.model.columns import SLACK_BYTES, Bools
from rmqtx.readers.model.findings import Finding

_MAGIC = re.compile(b"|".join(re.escape((magic & 0xFFFFFFFF).to_bytes(4, "big")) for magic in (MAGIC_V1, MAGIC_V2)))
#: Size at which a block is decoded; the body of one record may be larger.
_BLOCK_BYTES = 4 << 20


def cut(body: bytes, place: int = 0) -> tuple[list[int], list[int], int]:
    """Return the positions of the records in some bytes, their commit-log offsets, and the position where they end.

    Units: bytes.
    """
    starts: list[int] = []
    offsets: list[int] = []
    last = len(body) - HEAD_BYTES
    while place <= last:
        length, magic, offset = head_of(body, place)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or not RECORD_BYTES_MIN <= length <= len(body) - place:
            break
        starts.append(place)
        offsets.append(offset)
        place += length
    return starts, offsets, place


def _next_head(body: bytes, place: int) -> int:
    """Return where the next record may begin, at a position or after it; the end of the bytes if nowhere.

    4.9.7 sends bytes of another record for an expired record at commit-log offset 0; sound records follow.
    """
    for word in _MAGIC.finditer(body, place + MAGIC_AT):
        start = word.start() - MAGIC_AT
        if start + HEAD_BYTES <= len(body) and RECORD_BYTES_MIN <= head_of(body, start)[0] <= len(body) - start:
            return start
    return len(body)


def blocks_of(bodies: Iterable[bytes], root: str, findings: list[Finding]) -> Iterator[Block]:
    """Yield the sound records in the bytes from a broker, in blocks of some megabytes.

    Shape:  in a record's columns `file` is the broker and `position_bytes` the commit-log offset.
    Order:  within a block that of the log; a record that comes twice is one.
    Damage: bytes that are not a record become findings and are skipped.
    """
    parts: list[bytes] = []
    starts: list[int] = []
    offsets: list[int] = []
    size = 0
    for body in bodies:
        stop = 0
        while stop < len(body):
            found, places, end = cut(body, stop)
            starts.extend(start + size for start in found)
            offsets.extend(places)
            stop = _next_head(body, end + 1) if end < len(body) else end
            if end < stop:
                findings.append(Finding(root, "record-damaged", root, length_bytes=stop - end))
        parts.append(body)
        size += len(body)
        if size > _BLOCK_BYTES:
            yield from _block(parts, starts, offsets, root, findings)
            parts, starts, offsets, size = [], [], [], 0
    yield from _block(parts, starts, offsets, root, findings)


def _block(
    parts: list[bytes], starts: list[int], offsets: list[int], root: str, findings: list[Finding]
) -> Iterator[Block]:
    if not starts:
        return
    order = np.argsort(np.array(offsets, np.int64), kind="stable")
    block = Block(
        b"".join([*parts, bytes(SLACK_BYTES)]), 0, 0, root,
        np.array(starts, np.int64)[order], np.array(offsets, np.int64)[order],
    )
    good = block.sound()
    for offset, length in zip(
        block.commit_log_offsets[~good].tolist(), block.lengths[~good].tolist(), strict=True
    ):
        findings.append(Finding(root, "record-damaged", root, offset, length, commit_log_offset=offset))
    block = block.take(good)
    block = block.take(_are_first(block))
    if len(block):
        yield block


def _are_first(block: Block) -> Bools:
    """Which records do not repeat the one before, byte for byte, at the same commit-log offset.

    Where a slot leads between two records, what the broker sends for it can contain a record of another slot.
    """
    are_first = np.ones(len(block), np.bool_)
    for number in (np.flatnonzero(np.diff(block.commit_log_offsets) == 0) + 1).tolist():
        rows = slice(number - 1, number + 1)
        ends = block.starts[rows] + block.lengths[rows]
        before, one = (bytes(block.data[begin:end]) for begin, end in zip(block.starts[rows], ends, strict=True))
        are_first[number] = before != one
    return are_first
