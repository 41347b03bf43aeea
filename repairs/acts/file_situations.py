"""The situations of transactions from the files of a store alone, for guards and plans; no broker is asked."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rmqtx.readers.index.index_search import Index, open_index
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.old_tables.beside_log import REDO_LOG, STATE_TABLE
from rmqtx.readers.old_tables.redo_log import DIRECTORY as REDO_LOG_DIRECTORY
from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.readers.store.store import Store
from rmqtx.repairs.acts.named_copies import newest_records, reader_of
from rmqtx.repairs.acts.situation import ActConditions, Situation
from rmqtx.verdicts.evidence.own_witnesses import cited_offsets, own_findings
from rmqtx.verdicts.evidence.store_facts import SettingsOf, known_until_ms
from rmqtx.verdicts.model.transaction import Transaction

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
    logs = {store.root: store.log() for store in stores}
    conditions = {store.root: _conditions(store, settings_of) for store in stores}
    try:
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
        ]  # fmt: skip
    finally:
        for log in logs.values():
            log.close()


def _conditions(store: Store, settings_of: SettingsOf) -> ActConditions:
    settings = settings_of(store)
    is_known = settings.version_low is not None and settings.version_low == settings.version_high
    return ActConditions(
        version=settings.version_low if is_known else None,
        is_slave=False,  # a slave's files serve as evidence; the plan is applied at the master
        settle_ms=0, settled_ms=0,
        file_reserved_time_hours=settings.file_reserved_time_hours,
        now_ms=time.time_ns() // 1_000_000, producers=(), is_of_files=True,
        stopped_time_ms=None if store.in_use else known_until_ms(store),
    )  # fmt: skip


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
