"""The findings of a store that concern one transaction: an act on that transaction must heed them, other acts need not.

Missing bytes, and decisions whose half message was not found, are already part of the verdict: where they could hide a
decision of the transaction, it is UNDECIDABLE; where it is not, they provably cannot
(`verdicts/transactions/judge.py`). What remains are findings at its own records, slots and entries, and findings
without a place.
"""

from __future__ import annotations

from collections.abc import Sequence

from rmqtx.readers.index.index_search import Index
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.old_tables.beside_log import REDO_LOG, STATE_TABLE
from rmqtx.readers.old_tables.redo_log import DIRECTORY as REDO_LOG_DIRECTORY
from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.evidence.own_witnesses import cited_offsets, own_findings
from rmqtx.verdicts.model.transaction import Transaction

_TABLE_CODES = ("table-", "redo-")
#: Findings of the whole store; their effect on a transaction is in its state, or in findings at its own slots.
_IN_THE_STATE = frozenset({
    "undecidable", "log-missing", "op-unreadable", "segment-gap", "segment-size", "half-number-taken",
})
#: Findings about the slot of a half copy whose number another half message has: that is the flag `number_taken`.
_OF_TAKEN_SLOTS = frozenset({"slot-missing", "slot-mismatch", "start-skips", "start-shifts"})
_OF_CURSORS = frozenset({"config-damaged", "cursor-beyond-end", "cursor-before-begin"})


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
