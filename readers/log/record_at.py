"""Read single records by their commit-log offset."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from readers.log.record_block import Block
from readers.log.record_layout import FILLER_MARK, MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN
from readers.log.segment_scan import walk
from readers.model.columns import SLACK_BYTES
from readers.storage.segments import Segment, SegmentedLog

#: Longer than brokers write (maxMessageSize is 4 MiB by default): a larger length is damage.
RECORD_BYTES_MAX = 256 << 20
_FIRST_READ_BYTES = 4096
_GATHERED_BYTES = 8 << 20
_PREPARED_RECORDS = 2048
_PREPARED_APART_BYTES = 64 << 10
_PREPARED_PLACES = 384


def block_at(log: SegmentedLog, offset: int) -> Block | None:
    """Return the sound record that begins at a commit-log offset, as a block of one; None if there is none.

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
    block = block_of_one(data[:length], offset, segment.file, offset - segment.base_offset)
    if block is None or not block.sound().all() or (FILLER_MARK in data and block.are_fillers().any()):
        return None
    return block


def block_of_one(data: bytes, offset: int, file: str, position: int) -> Block | None:
    """Return bytes as a block of one record, sound or not; None if their length is impossible for a record."""
    starts, stop = walk(data, offset, 0, len(data))
    if starts != [0] or stop != len(data):
        return None
    return Block(data + bytes(SLACK_BYTES), offset, position, file, np.zeros(1, np.int64))


def blocks_at(
    log: SegmentedLog, offsets: Iterable[int], lengths: Iterable[int] | None = None, *, with_fillers: bool = False
) -> Iterator[Block]:
    """Yield the sound records at given commit-log offsets, collected into blocks.

    `offsets` ascending; `lengths` of the records, if a consume queue has them. `with_fillers`: include the fillers of
    `rmqtx salvage`, which are records for a broker.
    Units: bytes.
    Shape: blocks of records of one file; places without a sound record are left out.
    Raises: FileChanged, UnreadableFile.
    """
    known: Iterable[int | None] = itertools.repeat(None) if lengths is None else lengths
    pairs = zip(offsets, known, strict=False)
    gathered: _Gathered | None = None
    for offset, length in _prepared(log, pairs) if log.is_remote else pairs:
        segment = log.segment_at(offset)
        if segment is None:
            continue
        if gathered is None or gathered.segment is not segment or gathered.size_bytes > _GATHERED_BYTES:
            if gathered is not None:
                yield from gathered.blocks(with_fillers=with_fillers)
            gathered = _Gathered(log, segment)
        gathered.add(offset, length)
    if gathered is not None:
        yield from gathered.blocks(with_fillers=with_fillers)


def _prepared(log: SegmentedLog, records: Iterable[tuple[int, int | None]]) -> Iterator[tuple[int, int | None]]:
    """Yield the records, fetched in portions that fit into the cache."""
    portion: list[tuple[int, int | None]] = []
    places: set[int] = set()
    for record in records:
        portion.append(record)
        places.add(record[0] // _PREPARED_APART_BYTES)
        if len(places) == _PREPARED_PLACES or len(portion) == _PREPARED_RECORDS:
            yield from _fetched(log, portion)
            portion, places = [], set()
    yield from _fetched(log, portion)


def _fetched(log: SegmentedLog, portion: list[tuple[int, int | None]]) -> list[tuple[int, int | None]]:
    log.prepare((offset, max(_FIRST_READ_BYTES, length or 0)) for offset, length in portion)
    return portion


class _Gathered:
    """Collects records of one segment into a block; adjacent records are read together."""

    def __init__(self, log: SegmentedLog, segment: Segment) -> None:
        self.segment = segment
        self.size_bytes = 0
        self._log = log
        self._records: list[bytes] = []
        self._offsets: list[int] = []
        self._ahead, self._ahead_offset = b"", 0

    def add(self, offset: int, length: int | None) -> None:
        """Read a record; one with an impossible length is left out."""
        if length is None:
            length = int.from_bytes(self._read(offset, 4), "big", signed=True)
        if not RECORD_BYTES_MIN <= length <= min(RECORD_BYTES_MAX, self.segment.end_offset - offset):
            return
        self._records.append(self._read(offset, length))
        self._offsets.append(offset)
        self.size_bytes += length

    def _read(self, offset: int, length: int) -> bytes:
        place = offset - self._ahead_offset
        if not 0 <= place <= len(self._ahead) - length:
            self._ahead = self._log.read(offset, max(length, _FIRST_READ_BYTES))
            self._ahead_offset, place = offset, 0
        return self._ahead[place : place + length]

    def blocks(self, *, with_fillers: bool) -> Iterator[Block]:
        """Yield the collected records as one block; nothing if no record is sound."""
        sizes = np.array([len(record) for record in self._records], np.int64)
        offsets = np.array(self._offsets, np.int64)
        block = Block(
            b"".join([*self._records, bytes(SLACK_BYTES)]),
            self.segment.base_offset, 0, self.segment.file, np.cumsum(sizes) - sizes, offsets,
        )
        magic = block.header("magic").astype(np.int64) & 0xFFFFFFFF
        good = (block.header("commit_log_offset") == offsets) & (block.lengths == sizes)
        good &= (magic == MAGIC_V1) | (magic == MAGIC_V2)
        block = block.take(good)
        block = block.take(block.sound())
        if not with_fillers and FILLER_MARK in block.raw and len(block):
            block = block.take(~block.are_fillers())
        if len(block):
            yield block
