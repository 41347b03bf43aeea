"""Read single records by their commit-log offset."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence

import numpy as np

from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import FILLER_MARK, HEAD_BYTES, MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN, number_at
from rmqtx.readers.log.segment_scan import misplaced_length, walk
from rmqtx.readers.model.columns import SLACK_BYTES, Int32s, Int64s, integers_at
from rmqtx.readers.storage.open_file import Portion, portions
from rmqtx.readers.storage.segments import Segment, SegmentedLog
from rmqtx.readers.store.store import Store, open_store

#: Longer than brokers write (maxMessageSize is 4 MiB by default): a larger length is damage.
RECORD_BYTES_MAX = 256 << 20
_FIRST_READ_BYTES = 4096
#: What is read of a record of unknown length: most records are shorter.
_GUESSED_BYTES = 1024
#: Records in which the properties are searched sooner than all bytes.
_MANY = 256
#: Bytes that are digested if the log does not begin with a record: the header of a DLedger entry, or damage.
_HEAD_BYTES = 48
_RECORD_BYTES_MAX = 1 << 24


def block_at(log: SegmentedLog, offset: int) -> Block | None:
    """Return the sound record that begins at a commit-log offset, as a block of one; None if there is none.

    Raises: FileChanged, UnreadableFile.
    """
    segment = log.segment_at(offset)
    if segment is None:
        return None
    data = log.read(offset, _FIRST_READ_BYTES)
    length = possible_length(data, segment, offset)
    if length is None:
        return None
    if length > len(data):
        data = log.read(offset, length)
    block = block_of_one(data[:length], offset, segment.file, offset - segment.base_offset)
    if block is None and is_misplaced_at(log, offset):
        block = _block_of(data[:length], offset, segment.file, offset - segment.base_offset)
    if block is None or not block.sound().all() or (FILLER_MARK in data and block.are_fillers().any()):
        return None
    return block


def possible_length(data: bytes, segment: Segment, offset: int) -> int | None:
    """Return the length of a record at a commit-log offset by its first bytes; None if that is impossible."""
    length = number_at(data, "length_bytes")
    return length if RECORD_BYTES_MIN <= length <= min(RECORD_BYTES_MAX, segment.end_offset - offset) else None


def stored_block(store: Store, offset: int) -> Block | None:
    """Return what `block_at` returns for the log of a store. Raises: FileChanged, UnreadableFile."""
    with store.log() as log:
        return block_at(log, offset)


def block_of_one(data: bytes, offset: int, file: str, position: int) -> Block | None:
    """Return bytes as a block of one record, sound or not; None if their length is impossible for a record."""
    starts, stop = walk(data, offset, 0, len(data))
    if starts.tolist() != [0] or stop != len(data):
        return None
    return _block_of(data, offset, file, position)


def _block_of(data: bytes, offset: int, file: str, position: int) -> Block:
    return Block(data + bytes(SLACK_BYTES), offset, position, file, np.zeros(1, np.int64))


def is_misplaced_at(log: SegmentedLog, offset: int) -> bool:
    """Whether a record stands at a commit-log offset of which only the own offset is damaged.

    Raises: FileChanged, UnreadableFile.
    """
    segment, file = log.segment_at(offset), log.file_at(offset)
    if segment is None or file is None:
        return False
    return misplaced_length(file, offset - segment.base_offset, segment, 0) is not None


def blocks_at(
    log: SegmentedLog, offsets: Int64s | Sequence[int], lengths: Int64s | Int32s | None = None, *,
    with_fillers: bool = False,
) -> Iterator[Block]:
    """Yield the sound records at given commit-log offsets, collected into blocks.

    `offsets` ascending; `lengths` of the records, if a consume queue has them. `with_fillers`: include the fillers of
    `rmqtx salvage`, which are records for a broker.
    Units: bytes.
    Shape: blocks of records of one file; places without a sound record are left out.
    Raises: FileChanged, UnreadableFile.
    """
    places = np.asarray(offsets, np.int64)
    sizes = None if lengths is None else np.asarray(lengths).astype(np.int64)
    for segment, rows in log.segments_of(places):
        gathered = _Gathered(log, segment, places[rows], None if sizes is None else sizes[rows])
        yield from gathered.blocks(with_fillers=with_fillers)


class _Gathered:
    """Records of one segment, read in portions, close ones together.

    `sizes`: their lengths; None if these are not known.
    """

    def __init__(self, log: SegmentedLog, segment: Segment, offsets: Int64s, sizes: Int64s | None) -> None:
        self._log, self._segment = log, segment
        self._has_sizes = sizes is not None
        rooms = segment.end_offset - offsets
        if sizes is None:
            sizes = np.minimum(rooms, _FIRST_READ_BYTES if log.is_remote else _GUESSED_BYTES)
        possible = (sizes >= RECORD_BYTES_MIN) & (sizes <= np.minimum(rooms, RECORD_BYTES_MAX))
        self._offsets, self._sizes = offsets[possible], sizes[possible]

    def blocks(self, *, with_fillers: bool) -> Iterator[Block]:
        """Yield the records of each portion as one block; nothing if no record is sound."""
        for portion in portions(self._offsets, self._offsets + self._sizes, self._log.limits):
            block = self._block(portion)
            block = block.take(block.sound())
            if not with_fillers and (len(block) >= _MANY or FILLER_MARK in block.raw):
                block = block.take(~block.are_fillers())
            if len(block):
                yield block

    def _block(self, portion: Portion) -> Block:
        """Return the records of a portion that have the length of their place and their own offset."""
        rows = slice(portion.first, portion.last)
        offsets, sizes, starts = self._offsets[rows], self._sizes[rows], portion.starts
        data = self._log.read_runs(portion.begins, portion.ends, SLACK_BYTES)
        if not self._has_sizes:
            offsets, sizes, starts, data = self._with_lengths(offsets, sizes, starts, data)
        base = self._segment.base_offset
        block = Block(data, base, 0, self._segment.file, starts, offsets)
        magic = block.header("magic").astype(np.int64) & 0xFFFFFFFF
        good = (block.header("commit_log_offset") == offsets) & (block.lengths == sizes)
        for row in np.flatnonzero(~good & (block.lengths == sizes)).tolist():
            good[row] = is_misplaced_at(self._log, int(offsets[row]))
        return block.take(good & ((magic == MAGIC_V1) | (magic == MAGIC_V2)))

    def _with_lengths(
        self, offsets: Int64s, sizes: Int64s, starts: Int64s, data: bytearray
    ) -> tuple[Int64s, Int64s, Int64s, bytearray]:
        """Return the records with the lengths that they begin with; the rest of longer ones is read after the data."""
        view = np.frombuffer(data, np.uint8)
        lengths = integers_at(view, starts, ">i4").astype(np.int64)
        rooms = self._segment.end_offset - offsets
        possible = (lengths >= RECORD_BYTES_MIN) & (lengths <= np.minimum(rooms, RECORD_BYTES_MAX))
        offsets, lengths, sizes, starts = offsets[possible], lengths[possible], sizes[possible], starts[possible]
        longer = np.flatnonzero(lengths > sizes)
        if not len(longer):
            return offsets, lengths, starts, data
        del view  # a buffer with a view keeps its length
        starts = starts.copy()
        ends = offsets + lengths
        for portion in portions(offsets[longer], ends[longer], self._log.limits):
            starts[longer[portion.first : portion.last]] = len(data) + portion.starts
            data += self._log.read_runs(portion.begins, portion.ends)
        data += bytes(SLACK_BYTES)
        return offsets, lengths, starts, data


# Identify a store, wherever it is copied, by the first record of its log.
#
# The record contains the broker's address, times and a message. Only copies and replicas of the store have the same
# record at that offset, and neither a broker nor rmqtx changes it. It is deleted when its file expires, so this shows
# whether two stores are the same now.


def first_record_of(root: str | os.PathLike[str]) -> str | None:
    """Return the begin of a store's log and the digest of its first record, as one text; None for an empty log.

    Raises: NotAStore, UnreadableFile; FileChanged.
    """
    store = open_store(root)
    first = next((segment for segment in store.commit_log if segment.size_bytes), None)
    if first is None:
        return None
    with first.open() as file:
        length = number_at(file.read(0, HEAD_BYTES), "length_bytes")
        is_length = RECORD_BYTES_MIN <= length <= min(first.size_bytes, _RECORD_BYTES_MAX)
        data = file.read(0, length if is_length else _HEAD_BYTES)
    if not data.strip(b"\0"):
        return None
    return f"{first.base_offset}:{hashlib.sha256(data).hexdigest()}"


def why_another(known: str | None, root: str | os.PathLike[str]) -> str | None:
    """Return the reason why the store at a place is not the known store; None if it is.

    Raises: as `first_record_of`.
    """
    found = first_record_of(root)
    if found == known:
        return None
    if found is None or known is None:
        return "its log is empty" if found is None else "its log was empty"
    return "the first record of its log is different"
