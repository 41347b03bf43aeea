"""DLedger commit logs (4.5.0+, enableDLegerCommitLog): the entries in which records are framed, read-only.

An entry is a header and one ordinary record, whose stored offset is the record's place: queues, message ids and COMMIT
records point at records, not at entries. A scan of the log skips the headers (`segment_scan.py`); this module reads
them. Nothing is written: an entry's number, term and chain belong to its quorum.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from rmqtx.readers.log.commit_log import scan_segments
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.layout import Field, Layout, VariablePart
from rmqtx.readers.model.reading import Note, NoteKind, Reading
from rmqtx.readers.model.tables import DLEDGER_ENTRIES
from rmqtx.readers.storage.segments import DLEDGER_FRAME_BYTES, Segment
from rmqtx.readers.store.store import LEFT_OUT_TOPIC, Store

ENTRY_HEADER = Layout(
    "dledger_entry",
    "Header of a DLedger entry",
    (
        Field("magic", "i", "1; -1 for the blank at the end of a file, whose length follows"),
        Field("length_bytes", "i", "whole entry, with this header", "byte"),
        Field("entry_index", "q", "number of the entry, from 0"),
        Field("term", "q", "election term in which it was appended"),
        Field("entry_offset", "q", "commit-log offset of this header", "byte"),
        Field("channel", "i", "unused by brokers"),
        Field("chain_crc", "i", "unused by brokers"),
        Field("body_crc", "i", "CRC-32 of the body; 0 if the broker computed none"),
        Field("body_length_bytes", "i", "the body: one record", "byte"),
    ),
    DLEDGER_FRAME_BYTES,
    "io/openmessaging/storage/dledger/entry/DLedgerEntryCoder.java, docs/formats/dledger.md#entry",
    (VariablePart("record", "body_length_bytes", "a record of the commit log; its offset is this header's plus 48"),),
    since="4.5.0",
)
INDEX_ENTRY = Layout(
    "dledger_index_entry",
    "Entry of the index of a DLedger log",
    (
        Field("magic", "i", "1, as that of the entry"),
        Field("entry_offset", "q", "commit-log offset of the entry's header", "byte"),
        Field("length_bytes", "i", "whole entry, with its header", "byte"),
        Field("entry_index", "q", "number of the entry"),
        Field("term", "q", "term of the entry"),
    ),
    32,
    "io/openmessaging/storage/dledger/entry/DLedgerEntryCoder.java encodeIndex, docs/formats/dledger.md#index",
    since="4.5.0",
)
ENTRY_MAGIC, BLANK_MAGIC = 1, -1
#: The number of an entry in place of records that a bundle left out.
_UNKNOWN = -1


def scan_entries(store: Store, *, from_offset: int | None = None, to_offset: int | None = None) -> Reading:
    """Return the entries of a store's DLedger log that hold a sound record.

    Shape:  rows of DLEDGER_ENTRIES.
    Units:  commit-log offsets in bytes; an entry belongs to the range if its record begins in it.
    Order:  commit-log offset ascending.
    Damage: as a scan of the commit log; entry-header if a header contradicts its record.
    Source: DLedgerEntryCoder.java; docs/formats/dledger.md#entry.
    """
    reading = Reading(DLEDGER_ENTRIES, (), findings=list(store.findings))
    if not store.is_dledger:
        reading.notes.append(Note(NoteKind.WHY, f"{store.root} has no DLedger log (dledger-*/data)"))
    reading.batches = _batches(store, reading, from_offset, to_offset)
    return reading


def _batches(store: Store, reading: Reading, begin: int | None, end: int | None) -> Iterator[pa.RecordBatch]:
    framed = {segment.file: segment for segment in store.commit_log if segment.frame_bytes}
    headers_of = EntryHeaders(store.root)
    for block in scan_segments(store, reading.findings, reading.coverage, from_offset=begin, to_offset=end):
        segment = framed.get(block.file)
        if segment is None:  # written before the store was changed to DLedger
            continue
        reading.findings.extend(headers_of.findings(segment, block))
        yield _rows(store, block, headers_in_front(segment, block))


def headers_in_front(segment: Segment, block: Block) -> np.ndarray:
    """Return the entry headers in front of a block's records. Raises: UnreadableFile, FileChanged."""
    starts = block.starts - DLEDGER_FRAME_BYTES
    picked = block.data[np.maximum(starts, 0)[:, None] + np.arange(DLEDGER_FRAME_BYTES)]
    for row in np.flatnonzero(starts < 0).tolist():  # in front of the window
        with segment.open() as file:
            raw = file.read(int(block.positions[row]) - DLEDGER_FRAME_BYTES, DLEDGER_FRAME_BYTES)
        picked[row] = np.frombuffer(raw, np.uint8)
    return np.frombuffer(picked.tobytes(), ENTRY_HEADER.dtype)


class EntryHeaders:
    """The entry headers of consecutive blocks, compared with their records and with one another.

    A broker's recovery ends the log before an entry with a wrong place, length or magic code, with another number than
    the next, or with a lower term than the entry before it.
    Source: io/openmessaging/storage/dledger/store/file/DLedgerMmapFileStore.java recover; seen on 4.9.7.
    """

    def __init__(self, store: str) -> None:
        self._store = store
        self._index, self._term = _UNKNOWN, 0

    def findings(self, segment: Segment, block: Block) -> Iterator[Finding]:
        """Return a finding for each header of a block that contradicts its record, or the headers beside it.

        Order: of the block.
        Raises: UnreadableFile, FileChanged.
        """
        if not len(block):
            return
        headers = headers_in_front(segment, block)
        offsets, lengths = block.commit_log_offsets, block.lengths
        sound = headers["magic"] == ENTRY_MAGIC
        sound &= headers["entry_offset"] == offsets - DLEDGER_FRAME_BYTES
        sound &= headers["body_length_bytes"] == lengths
        sound &= headers["length_bytes"] == lengths + DLEDGER_FRAME_BYTES
        indexes = np.append(self._index, headers["entry_index"].astype(np.int64))
        terms = np.append(self._term, headers["term"].astype(np.int64))
        is_next = (indexes[1:] == indexes[:-1] + 1) | (indexes[:-1] == _UNKNOWN) | block.topic_is(LEFT_OUT_TOPIC)
        wrong = set(np.flatnonzero(~sound).tolist())
        wrong |= {_culprit(indexes, row + 1, 2) - 1 for row in np.flatnonzero(~is_next).tolist()}
        wrong |= {_culprit(terms, row + 1, 0) - 1 for row in np.flatnonzero(np.diff(terms) < 0).tolist()}
        for row in sorted(row for row in wrong if row >= 0):
            before = int(indexes[row])
            expected = (
                f"magic 1, {int(lengths[row]) + DLEDGER_FRAME_BYTES} bytes, "
                f"number {'unknown' if before == _UNKNOWN else before + 1}, place "
                f"{int(offsets[row]) - DLEDGER_FRAME_BYTES}, term {int(terms[row])} or later, not above the next"
            )
            names = ("magic", "length_bytes", "entry_index", "entry_offset", "term")
            yield Finding(
                self._store, "entry-header", segment.file, int(block.positions[row]) - DLEDGER_FRAME_BYTES,
                DLEDGER_FRAME_BYTES, commit_log_offset=int(offsets[row]), expected=expected,
                actual=", ".join(f"{name} {int(headers[name][row])}" for name in names),
            )
        self._index, self._term = int(indexes[-1]), int(terms[-1])


def _culprit(values: Int64s, place: int, step: int) -> int:
    """Return which of two neighbours is wrong, where the value at a place does not follow from the one before it.

    If it follows from the value two before it (`step`: their distance at least), the one between them is wrong.
    """
    is_between = place >= 2 and values[place - 2] != _UNKNOWN and (
        values[place] == values[place - 2] + step if step else values[place] >= values[place - 2]
    )
    return place - 1 if is_between else place


def _rows(store: Store, block: Block, headers: np.ndarray) -> pa.RecordBatch:
    count = len(block)

    def native(name: str) -> pa.Array:
        field = DLEDGER_ENTRIES.field(name)
        return pa.array(headers[name].astype(str(field.type)))

    columns = {
        "store": pa.repeat(pa.scalar(store.root, pa.string()), count),
        "file": pa.repeat(pa.scalar(block.file, pa.string()), count),
        "position_bytes": pa.array(block.positions - DLEDGER_FRAME_BYTES),
        "commit_log_offset": pa.array(block.commit_log_offsets),
        "topic": block.topic_texts().cast(pa.string()),
        "body_crc_matches": pa.array(list(_crc_matches(block, headers)), pa.bool_()),
    }
    arrays = [columns[field.name] if field.name in columns else native(field.name) for field in DLEDGER_ENTRIES]
    return pa.RecordBatch.from_arrays(arrays, schema=DLEDGER_ENTRIES)


def _crc_matches(block: Block, headers: np.ndarray) -> Iterator[bool | None]:
    """Return whether the entry's CRC matches its record; None if the broker computed none."""
    for start, length, stored in zip(
        block.starts.tolist(), block.lengths.tolist(), headers["body_crc"].tolist(), strict=True
    ):
        yield None if stored == 0 else zlib.crc32(block.raw[start : start + length]) == stored & 0xFFFFFFFF
