"""The queues that the check reads, and the state table of 3.0 and 3.1, compared with their records: for an audit.

A verification compares every queue; an audit those on which the check, and so the future of a transaction, depends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from rmqtx.readers.finding_kinds.kind import Severity
from rmqtx.readers.log.prepared_records import OldRecords
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.ranges import LogRanges, merged
from rmqtx.readers.old_tables.beside_tables import expects_tables
from rmqtx.readers.queues.slot_files import topic_bytes
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.store import CHECK_TOPICS, TABLE_TOPICS, Store
from rmqtx.verdicts.compared.queue_claims import QueueClaims, QueueParts, unread_op_queues
from rmqtx.verdicts.compared.rocksdb_queues import rocksdb_queue_findings
from rmqtx.verdicts.compared.state_table import state_table_findings
from rmqtx.verdicts.compared.unclaimed_slots import QueueComparison
from rmqtx.verdicts.startup.queues import QueueFacts

#: Contradictions between a table and the log; what the table makes of a transaction is in its row.
_TABLE_CODES = frozenset({
    "table-entry-invalid", "table-gap", "table-missing", "table-lost", "redo-log-missing", "table-slot-mismatch",
    "redo-entry-mismatch", "redo-entry-missing", "table-remade",
})


#: What is damaged or lost in a queue, and shows nothing of the record.
_OF_QUEUE_ONLY = frozenset({"queue-missing", "queue-gap", "slot-invalid", "slot-missing"})


class CheckedClaims:
    """The slots that the half and op messages of a split claim, and its records of designs with tables."""

    def __init__(self, store: Store) -> None:
        self._claims = QueueClaims(store)
        self._old: list[OldRecords] = []
        self._has_tables = expects_tables(store)

    def add(self, block: Block) -> None:
        """Add the records of a block."""
        is_mine = block.topic_is(CHECK_TOPICS[0])
        for topic in CHECK_TOPICS[1:]:
            is_mine |= block.topic_is(topic)
        if is_mine.any():
            self._claims.add(block.take(is_mine))
        if self._has_tables:
            self._old.append(OldRecords.of_block(block))

    def queues(self) -> QueueParts:
        """Return the comparison of the split."""
        return self._claims.compared()

    def old_records(self) -> OldRecords:
        """Return the records with a transaction type; none for a store without tables."""
        return OldRecords.joined(self._old)


def checked_queue_findings(
    store: Store, parts: Sequence[QueueParts], ranges: LogRanges, known: Iterable[Finding], facts: list[QueueFacts]
) -> Iterator[Finding]:
    """Return the faults of the queues that the check reads; `facts` gets what the prediction of a start needs.

    Other tags codes are not among them: the check reads none. Nor is what queues of transactions in RocksDB have lost:
    the checks of 5.4.0 and 5.5.0 asked about the same transactions without these queues.

    A store with queues in RocksDB can have them in files too, because its broker writes both and reads either.
    `known`: what is reported already; of one queue, each code is reported once.
    Order:  queue by queue; slots, then records.
    """
    known = list(known)
    reported = {(one.code, topic) for one in known for topic in CHECK_TOPICS if topic in _words_of(one)}
    if store.has_rocksdb_queues:
        codes = {one.code for one in known}
        for finding in rocksdb_queue_findings(store, ranges, CHECK_TOPICS):
            if _bears_on_check(finding, _topic_of(finding)) and finding.code not in codes:
                yield finding
    topics = frozenset(topic_bytes(topic) for topic in CHECK_TOPICS)
    comparison = QueueComparison(store, list(parts), ranges, topics=topics, unread=unread_op_queues(store))
    for finding in comparison.findings():
        topic = _topic_of(finding)
        if _bears_on_check(finding, topic) and (finding.code, topic) not in reported:
            yield finding
    if not store.has_rocksdb_queues:  # else no start is predicted
        facts += comparison.facts


def table_findings(
    store: Store, settings: BrokerSettings, records: OldRecords, ranges: LogRanges, known: Iterable[Finding]
) -> Iterator[Finding]:
    """Return where the state table or the redo log contradicts the log; nothing for a store without tables.

    `known`: what is reported already.
    """
    if not expects_tables(store):
        return
    reported = {(one.code, one.file, one.position_bytes) for one in known}
    for finding in state_table_findings(store, settings, records, ranges):
        if finding.code in _TABLE_CODES and (finding.code, finding.file, finding.position_bytes) not in reported:
            yield finding


def _bears_on_check(finding: Finding, topic: str) -> bool:
    if topic in TABLE_TOPICS and finding.code in _OF_QUEUE_ONLY:
        return False
    return finding.kind.severity is not Severity.NOTE and finding.code != "slot-tags-mismatch"


def _topic_of(finding: Finding) -> str:
    return next((topic for topic in CHECK_TOPICS if topic in _words_of(finding)), "")


def _words_of(finding: Finding) -> str:
    return f"{finding.file} {finding.expected} {finding.actual}"


def ranges_of_log(store: Store, end_offset: int, damaged: list[Int64s]) -> LogRanges:
    """Return the parts of a log that can contain records.

    `end_offset`: past its last record. `damaged`: rows [begin, end) that are damaged or were not read.
    Units: bytes of the commit log.
    """
    held = merged([np.array([(one.base_offset, one.end_offset) for one in store.commit_log], np.int64).reshape(-1, 2)])
    gaps = np.stack([held[:-1, 1], held[1:, 0]], axis=1)
    return LogRanges(
        store.log_begin_offset, max(end_offset, store.log_begin_offset), merged([gaps, *damaged]), held
    )
