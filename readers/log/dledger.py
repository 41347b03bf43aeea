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

from readers.log.commit_log import scan_segments
from readers.log.record_block import Block
from readers.model.findings import Finding
from readers.model.layout import Field, Layout, VariablePart
from readers.model.reading import Note, NoteKind, Reading
from readers.model.tables import DLEDGER_ENTRIES
from readers.storage.segments import DLEDGER_FRAME_BYTES, Segment
from readers.store.store import LEFT_OUT_TOPIC, Store

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
        reading.notes.append(Note(NoteKind.HOW, f"{store.root} has no DLedger log (dledger-*/data)"))
    reading.batches = _batches(store, reading, from_offset, to_offset)
    return reading


def _batches(store: Store, reading: Reading, begin: int | None, end: int | None) -> Iterator[pa.RecordBatch]:
    framed = {segment.file: segment for segment in store.commit_log if segment.frame_bytes}
    last_index: int | None = None
    for block in scan_segments(store, reading.findings, reading.coverage, from_offset=begin, to_offset=end):
        segment = framed.get(block.file)
        if segment is None:  # written before the store was changed to DLedger
            continue
        headers = _headers(segment, block)
        records = block.commit_log_offsets, block.lengths
        sound = headers["magic"] == ENTRY_MAGIC
        sound &= headers["entry_offset"] == records[0] - DLEDGER_FRAME_BYTES
        sound &= headers["body_length_bytes"] == records[1]
        sound &= headers["length_bytes"] == records[1] + DLEDGER_FRAME_BYTES
        indexes = headers["entry_index"].astype(np.int64)
        before = np.concatenate([[_UNKNOWN if last_index is None else last_index], indexes[:-1]])
        sound &= (indexes == before + 1) | (before == _UNKNOWN) | block.topic_is(LEFT_OUT_TOPIC)
        last_index = int(indexes[-1])
        for row in np.flatnonzero(~sound).tolist():
            reading.findings.append(_contradiction(store, segment, headers[row], records[0][row], records[1][row]))
        yield _rows(store, block, headers)


def _headers(segment: Segment, block: Block) -> np.ndarray:
    """Return the entry headers in front of a block's records."""
    places = block.positions - DLEDGER_FRAME_BYTES
    first = int(places[0])
    with segment.open() as file:
        data = file.read(first, int(block.positions[-1]) - first)
    starts = places - first
    raw = np.frombuffer(data, np.uint8)
    picked = raw[starts[:, None] + np.arange(DLEDGER_FRAME_BYTES)]
    return np.frombuffer(picked.tobytes(), ENTRY_HEADER.dtype)


def _contradiction(store: Store, segment: Segment, header: np.void, offset: int, length: int) -> Finding:
    found = {name: int(header[name]) for name in ("magic", "length_bytes", "entry_index", "entry_offset")}
    return Finding(
        store.root, "entry-header", segment.file, int(offset) - DLEDGER_FRAME_BYTES - segment.base_offset,
        DLEDGER_FRAME_BYTES, commit_log_offset=int(offset),
        expected=f"magic 1, {int(length) + DLEDGER_FRAME_BYTES} bytes, the next number, its place",
        actual=", ".join(f"{name} {value}" for name, value in found.items()),
    )  # fmt: skip


def _rows(store: Store, block: Block, headers: np.ndarray) -> pa.RecordBatch:
    count = len(block)

    def native(name: str) -> pa.Array:
        field = DLEDGER_ENTRIES.field(name)
        return pa.array(headers[name].astype(field.type.to_pandas_dtype()))

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
