"""The situations of transactions from the files of a store alone, for guards and plans; no broker is asked.

Before an act the records of its transaction are compared with queue slots, index and body CRC: as in a verification of
the whole store, for these few records. State table, redo log and RocksDB table are part of its verdict
(`design_tables.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rmqtx.readers.index.index_search import Index, open_index
from rmqtx.readers.log.prepared_records import is_prepared, is_rollback
from rmqtx.readers.log.properties import UNIQ_KEY
from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model import clock
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding, as_text
from rmqtx.readers.old_tables.beside_log import REDO_LOG, STATE_TABLE
from rmqtx.readers.old_tables.redo_log import DIRECTORY as REDO_LOG_DIRECTORY
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.readers.store.store import Store, opened_logs
from rmqtx.repairs.acts.named_copies import newest_records, reader_of
from rmqtx.repairs.acts.situation import ActConditions, Situation
from rmqtx.verdicts.evidence.store_facts import SettingsOf, known_until_ms
from rmqtx.verdicts.model.transaction import Transaction
from rmqtx.verdicts.model.verdict_words import EVIDENCE

_TABLE_CODES = ("table-", "redo-")
#: Findings of the whole store; their effect on a transaction is in its state, or in findings at its own slots.
_IN_THE_STATE = frozenset({
    "undecidable", "log-missing", "op-unreadable", "segment-gap", "segment-size", "half-number-taken",
})
#: Findings about the slot of a half copy whose number another half message has: that is the flag `number_taken`.
_OF_TAKEN_SLOTS = frozenset({"slot-missing", "slot-mismatch", "start-skips", "start-shifts"})
_OF_CURSORS = frozenset({"config-damaged", "cursor-beyond-end", "cursor-before-begin"})


def file_situations(
    stores: Sequence[Store], settings_of: SettingsOf, rows: Iterable[Transaction],
    findings: Sequence[Finding] | None = None,
) -> list[Situation]:
    """Return the situations of some transactions from files alone.

    `rows`: the transactions. `findings`: those of the reading that gave them; if given, each one's records are
    also compared with queues and index, and contradictions are listed. Connected producers and decisions under way in
    a broker are unknown here, and the guards of a plan do not use them.
    Order: that of the rows.
    """
    conditions = {store.root: _conditions(store, settings_of) for store in stores}
    with opened_logs(stores) as logs:
        situations = [_situation(row, logs, conditions) for row in rows]
        if findings is None:
            return situations
        indexes = {store.root: open_index(store, settings_of(store).max_hash_slots) for store in stores}
        return [
            replace(situation, conditions=replace(situation.conditions, contradictions=tuple(
                line for store in stores
                for line in contradictions(store, logs[store.root], indexes[store.root],
                                           situation.transaction.in_store(store.root), findings,
                                           is_prepared=situation.is_prepared)
            )))
            for situation in situations
        ]


def _conditions(store: Store, settings_of: SettingsOf) -> ActConditions:
    settings = settings_of(store)
    return ActConditions(
        version=settings.known_version,
        is_slave=False,  # a slave's files serve as evidence; the plan is applied at the master
        settle_ms=0, settled_ms=0,
        file_reserved_time_hours=settings.file_reserved_time_hours,
        now_ms=clock.now_ms(), producers=(), is_of_files=True,
        stopped_time_ms=None if store.in_use else known_until_ms(store),
    )


def _situation(
    transaction: Transaction, logs: dict[str, SegmentedLog], conditions: dict[str, ActConditions]
) -> Situation:
    half, discard = newest_records(transaction, reader_of(logs))
    root = next((record.store for record in (half, discard) if record is not None), str(transaction.store))
    return Situation(transaction, half, discard, half, conditions[root])


# The findings of a store that concern one transaction: an act on that transaction must heed them, other acts need
# not.
#
# Missing bytes, and decisions whose half message was not found, are already part of the verdict: where they could
# hide a decision of the transaction, it is UNDECIDABLE; where it is not, they provably cannot
# (`verdicts/transactions/judge.py`). What remains are findings at its own records, slots and entries, and findings
# without a place.


def contradictions(
    store: Store, log: SegmentedLog, index: Index, transaction: Transaction, findings: Sequence[Finding], *,
    is_prepared: bool,
) -> tuple[str, ...]:
    """Return the findings of a store that concern a transaction, as lines.

    `findings`: those of the scan that gave it. `is_prepared`: it is a prepared record (before 4.3), to which no
    cursor applies.
    Order: those of the scan, then those of its own records.
    Raises: SourceError if a file of the log cannot be read.
    """
    segments = {segment.file for segment in store.commit_log}
    row = transaction.row()
    cited = cited_offsets(row)
    found = [
        one for one in findings
        if one.store == store.root and one.is_error and one.code not in _IN_THE_STATE
        and not (one.code == "unreadable-file" and one.file in segments)
        and _concerns(one, transaction, cited, is_prepared=is_prepared)
    ]
    found += own_findings(store, log, index, row)
    if "number_taken" in transaction.flags:
        halves = {copy.commit_log_offset for copy in transaction.half_copies}
        found = [one for one in found if one.code not in _OF_TAKEN_SLOTS or one.commit_log_offset not in halves]
    return tuple(dict.fromkeys(one.line() for one in found))


def _concerns(finding: Finding, transaction: Transaction, cited: set[int], *, is_prepared: bool) -> bool:
    if finding.commit_log_offset is not None:
        begin = finding.commit_log_offset
        length = (finding.length_bytes or 1) if finding.code == "record-damaged" else 1
        return any(begin <= offset < begin + length for offset in cited)
    if finding.code.startswith(_TABLE_CODES):  # concerns it only if its own entries were not read
        kind = REDO_LOG if REDO_LOG_DIRECTORY[1] in (finding.file or "") else STATE_TABLE
        return is_prepared and all(entry.kind != kind for entry in transaction.state_entries)
    return finding.code not in _OF_CURSORS or not is_prepared


def cited_offsets(row: Mapping[str, Any]) -> set[int]:
    """Commit-log offsets of all records that are evidence for a row of TRANSACTIONS."""
    return {int(entry["commit_log_offset"]) for name in EVIDENCE for entry in row[name]}


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
    return Finding(
        store.root, code, *log.place_of(offset), commit_log_offset=offset, expected=expected, actual=actual
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
