"""One transaction's records compared with queue slots, index and body CRC, before an act on the transaction.

The same comparisons as in a verification of the whole store, for the few records of one transaction. State table, redo
log and RocksDB table are part of its verdict (`design_tables.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rmqtx.readers.index.index_search import Index
from rmqtx.readers.log.prepared_records import is_prepared, is_rollback
from rmqtx.readers.log.properties import UNIQ_KEY
from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding, as_text
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.readers.store.store import Store

_LISTS = ("half_copies", "op_marks", "final_records", "discard_copies")


def cited_offsets(row: Mapping[str, Any]) -> set[int]:
    """Commit-log offsets of all records that are evidence for a row of TRANSACTIONS."""
    return {int(entry["commit_log_offset"]) for name in _LISTS for entry in row[name]}


def own_findings(store: Store, log: SegmentedLog, index: Index, row: Mapping[str, Any]) -> Iterator[Finding]:
    """Return where queue, index or checksum contradict a record that is evidence for a row of TRANSACTIONS.

    Order: commit-log offset.
    Damage: record-body-crc, slot-mismatch, slot-missing, index-missing.
    Raises: SourceError if a file of the log cannot be read.
    """
    for offset in sorted(cited_offsets(row)):
        block = block_at(log, offset)
        if block is None:
            continue  # a damaged record: reported by the scan
        if int(block.body_lengths[0]) and not block.body_crc_matches()[0]:
            yield _finding(store, log, offset, "record-body-crc")
        if not (is_prepared(block)[0] or is_rollback(block)[0]):  # these are in no queue
            yield from _of_queue(store, log, block)
        yield from _of_index(store, log, index, block)


def _finding(
    store: Store, log: SegmentedLog, offset: int, code: str, expected: str | None = None, actual: str | None = None
) -> Finding:
    segment = log.segment_at(offset)
    return Finding(
        store.root, code, None if segment is None else segment.file,
        None if segment is None else offset - segment.base_offset, commit_log_offset=offset, expected=expected,
        actual=actual,
    )


def _of_queue(store: Store, log: SegmentedLog, block: Block) -> Iterator[Finding]:
    offset, number = int(block.commit_log_offsets[0]), int(block.header("queue_offset")[0])
    topic, queue_id = str(block.topic_texts()[0]), int(block.header("queue_id")[0])
    if queue_id < 0:
        yield _finding(store, log, offset, "record-header", "a queue number", str(queue_id))
        return
    try:
        with open_queue(store, topic, queue_id) as queue:
            if not queue.exists:  # a deleted queue, one of another kind, or one in RocksDB
                return
            name, begin, end = as_text(store.queue_directory(topic, queue_id)), queue.min_offset, queue.max_offset
            read = queue.read(number, number + 1) if begin <= number < end else None
            places = [] if read is None else list(zip(read[1].tolist(), read[2].tolist(), strict=True))
    except SourceError as error:
        yield Finding(store.root, "unreadable-file", error.file, error.position_bytes, actual=error.message)
        return
    expected = f"slot {number} of {topic}, queue {queue_id} ({name})"
    if number < begin or (number >= end and (store.aborted or store.in_use)):
        return
    if not places:
        yield _finding(store, log, offset, "slot-missing", expected, "no slot")
    elif places[0][0] != offset:
        yield _finding(store, log, offset, "slot-mismatch", expected, f"a slot that points to {places[0][0]}")
    elif places[0][1] != int(block.lengths[0]):  # a broker reads exactly this number of bytes
        length = int(block.lengths[0])
        yield _finding(
            store, log, offset, "slot-mismatch", f"{expected} of {length} bytes", f"a slot of {places[0][1]} bytes"
        )


def _of_index(store: Store, log: SegmentedLog, index: Index, block: Block) -> Iterator[Finding]:
    offset, topic = int(block.commit_log_offsets[0]), str(block.topic_texts()[0])
    identity = block.properties.text(UNIQ_KEY)[0].as_py()
    is_indexed = identity is not None and not is_rollback(block)[0]
    if not is_indexed or not any(begin <= offset <= end for begin, end in index.ranges):
        return
    if offset not in index.find([f"{topic}#{identity}".encode()])[1].tolist():
        yield _finding(
            store, log, offset, "index-missing", f"an entry for {topic}#{identity}",
            "none: the record or the index has another id",
        )
