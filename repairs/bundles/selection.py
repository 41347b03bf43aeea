"""What a bundle must contain so that its transactions and findings are the same as in the whole store.

First the transactions' own witnesses: cheap, and nearly always enough. If rows then differ, the log is scanned once and
further evidence is added: decisions on other records that an op message may belong to, with the transactions of both;
damaged and missing bytes; the highest check count of any half copy; the first and the last op message, which causes
depend on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.model.errors import EvidenceMissing, NoSuchTransaction
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.rocksdb.slots_of_ranges import slots_of_ranges
from rmqtx.readers.store.store import HALF_TOPIC, Store
from rmqtx.repairs.bundles.files import KeptRange
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import Scan, rows_named, show
from rmqtx.verdicts.audit.message_ids import not_found, stores_of_message_id
from rmqtx.verdicts.causes.judging import store_evidence
from rmqtx.verdicts.evidence.store_conclusion import conclude, without_stale
from rmqtx.verdicts.evidence.store_facts import SettingsOf, StoreFacts, store_facts
from rmqtx.verdicts.evidence.witness_scan import IDENTIFIED, SplitFacts, scan_witnesses
from rmqtx.verdicts.model.marked_copies import REDELIVERED, FileCopies
from rmqtx.verdicts.model.transaction import Transaction
from rmqtx.verdicts.model.verdict_inputs import MissingRange

#: Most damaged bytes that are kept of a range; of the rest only the place is kept.
_LOOSE_BYTES_MAX = 64 << 10


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """A record of the bundle, with the facts that its slot and its neighbours need."""

    offset: int
    length_bytes: int
    topic: str
    queue_id: int
    queue_offset: int
    store_time_ms: int
    tags: bytes
    has_unique_key: bool

    @staticmethod
    def of(block: Block) -> KeptRecord:
        """Make it from a block with one record."""
        unique = block.properties.value("UNIQ_KEY").to_pylist()[0]
        return KeptRecord(
            int(block.commit_log_offsets[0]), int(block.lengths[0]),
            block.topics().to_pylist()[0].decode("utf-8", "surrogateescape"), int(block.header("queue_id")[0]),
            int(block.header("queue_offset")[0]), int(block.header("store_time_ms")[0]),
            block.properties.value("TAGS").to_pylist()[0] or b"", unique is not None,
        )


@dataclass(slots=True)
class Selection:
    """The content of a bundle.

    Shape: `rows`: requested transactions; `brought`: further ones that a verdict needs; `records` by commit-log
           offset; `ranges`: bytes and holes besides the records; `slots` by (topic, queue number): kept whatever they
           point at; `files`: small files that a finding concerns; `cursors`: kept cursors of groups (topic, group,
           queue number). `check_max`: the value to write for transactionCheckMax.
    """

    store: Store
    rows: list[Transaction] = field(default_factory=list)
    brought: list[Transaction] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    records: dict[int, KeptRecord] = field(default_factory=dict)
    ranges: list[KeptRange] = field(default_factory=list)
    slots: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    cursors: set[tuple[str, str, int]] = field(default_factory=set)
    check_max: int | None = None

    def add_records(self, offsets: Iterable[int]) -> None:
        """Add the sound records at some commit-log offsets."""
        with self.store.log() as log:
            for offset in sorted(set(offsets) - self.records.keys()):
                block = block_at(log, offset)
                if block is not None:
                    self.records[offset] = KeptRecord.of(block)

    @property
    def every(self) -> Sequence[Transaction]:
        """The requested transactions and the further ones."""
        return (*self.rows, *self.brought)

    def add_transactions(self, rows: pa.Table | Iterable[Transaction], *, asked: bool) -> None:
        """Add transactions with all their witnesses, each once. `rows`: of TRANSACTIONS, or as values."""
        known = {row.transaction_id for row in self.every}
        for row in map(Transaction.of, rows.to_pylist()) if isinstance(rows, pa.Table) else rows:
            if row.transaction_id not in known:
                known.add(row.transaction_id)
                (self.rows if asked else self.brought).append(row)
                self.add_records(one.commit_log_offset for one in row.witnesses)
                if REDELIVERED in row.flags:
                    copies = FileCopies(self.store).of({row.transaction_id: row.topic or ""})
                    self.add_records(one.record.commit_log_offset for some in copies.values() for one in some)

    def kept_ranges(self) -> list[KeptRange]:
        """Return all kept ranges of the log. Order: offset ascending, without overlaps: records take precedence."""
        kept = [KeptRange(one.offset, one.length_bytes) for one in self.records.values()]
        taken = sorted(kept)
        for one in sorted(self.ranges):
            kept.extend(_without(one, taken))
        return sorted(kept)


def _without(one: KeptRange, taken: list[KeptRange]) -> Iterator[KeptRange]:
    begin, end = one.offset, one.offset + one.length_bytes
    for other in taken:
        if other.offset < end and begin < other.offset + other.length_bytes:
            if begin < other.offset:
                yield KeptRange(begin, other.offset - begin, one.kind)
            begin = other.offset + other.length_bytes
    if begin < end:
        yield KeptRange(begin, end - begin, one.kind)


def selected(store: Store, settings_of: SettingsOf, identities: Iterable[str], *, scan: bool) -> Selection:
    """Select the transactions that some ids, message ids or keys name.

    `scan`: judge them by the whole log, as an audit does; else by queues and index, which do not show damage elsewhere.
    Raises: NoSuchTransaction, EvidenceMissing.
    """
    selection = Selection(store)
    if scan:
        _add_by_scan(selection, settings_of, list(identities))
    else:
        for identity in identities:
            selection.add_transactions(show([store], settings_of, identity).table(), asked=True)
    return selection


def _add_by_scan(selection: Selection, settings_of: SettingsOf, identities: list[str]) -> None:
    found: dict[str, list[Transaction]] = {identity: [] for identity in identities}
    known_as = {identity: stores_of_message_id([selection.store], identity) for identity in found}
    reading = audit([selection.store], settings_of)
    for batch in reading if identities else ():
        rows = pa.Table.from_batches([batch])
        for identity, mine in found.items():
            mine.extend(map(Transaction.of, rows_named(rows, identity, known_as[identity]).to_pylist()))
    for identity, mine in found.items():
        if not mine:
            raise not_found([selection.store], identity, reading)
        selection.add_transactions(mine, asked=True)


def loose(offset: int, length: int) -> Iterator[KeptRange]:
    """Yield the ranges for bytes that are not a record: the first bytes unchanged, the rest as a hole."""
    head = min(length, _LOOSE_BYTES_MAX)
    yield KeptRange(offset, head, "bytes")
    if length > head:
        yield KeptRange(offset + head, length - head, "hole")


# --- further evidence -------------------------------------------------------------------------------------------------


def complete(selection: Selection, settings_of: SettingsOf, offsets: Iterable[int] = ()) -> None:
    """Add the evidence for the transactions' verdicts that only a scan of the whole log shows.

    `offsets`: offsets of records that belong to other transactions too, which are added.
    """
    store = selection.store
    _judge_again(selection, settings_of)
    for identity in _message_ids(store, offsets):
        _bring(selection, identity, settings_of)
    facts = store_facts(store, settings_of)  # cursors before records
    facts = conclude(facts, _scanned(selection)).facts
    settings = facts.settings
    if settings.checks_show_limit:
        limit = settings.transaction_check_max
        selection.check_max = min(limit, facts.checks_seen_max or limit)
    evidence = store_evidence(facts)
    ends = (evidence.first_op_offset, evidence.last_op_offset)
    selection.add_records(offset for offset in ends if offset is not None and offset >= 0)
    _bring_along(selection, facts, settings_of)
    for missing in facts.missing:
        _add_missing(selection, missing)
    holes = [(one.begin_offset, one.end_offset) for one in facts.missing if not one.is_identified]
    for (begin, end), queues in zip(holes, slots_of_ranges(store, holes) or (), strict=False):
        for queue in (one for one in queues if one.is_readable):  # entries for a hole limit what it can hide
            inside = queue.numbers[(queue.offsets >= begin) & (queue.offsets < end)].tolist()
            selection.slots.setdefault((queue.topic, queue.queue_id), set()).update(inside)


def _judge_again(selection: Selection, settings_of: SettingsOf) -> None:
    """Replace the rows by those of an audit: with damaged derived files, a lookup may have missed records."""
    asked = {row.transaction_id for row in selection.rows}
    rows = (row for batch in audit([selection.store], settings_of) for row in batch.to_pylist())
    mine = [Transaction.of(row) for row in rows if row["transaction_id"] in asked]
    if {row.transaction_id for row in mine} == asked:
        selection.rows = []
        selection.add_transactions(mine, asked=True)


def _message_ids(store: Store, offsets: Iterable[int]) -> list[str]:
    with store.log() as log:
        blocks = [block_at(log, offset) for offset in sorted(set(offsets))]
        return [block.message_ids().to_pylist()[0] for block in blocks if block is not None]


def _scanned(selection: Selection) -> list[SplitFacts]:
    """Scan every split of the log, and add the records with the id of a chosen transaction.

    A half copy with a delay level is in no list of its transaction, but counts for its verdict.
    """
    ids = {row.transaction_id for row in selection.every}
    parts: list[SplitFacts] = []
    for split in plan_splits([selection.store]):
        found = scan_witnesses(split, None)
        parts.append(found.facts)
        for name in IDENTIFIED:
            for batch in getattr(found, name):
                named = zip(batch["transaction_id"].to_pylist(), batch["commit_log_offset"].to_pylist(), strict=True)
                selection.add_records(offset for identity, offset in named if identity in ids)
    return without_stale(parts)


def _bring_along(selection: Selection, facts: StoreFacts, settings_of: SettingsOf) -> None:
    """Add the decisions that explain an op message of a transaction, with the transactions that they belong to."""
    while True:
        numbers = {mark.half_queue_offset for row in selection.every for mark in row.op_marks}
        finals = [one.final_offset for one in facts.misdirected_decisions if one.queue_offset in numbers]
        before = len(selection.records)
        with selection.store.log() as log:
            for offset in finals:
                final = block_at(log, offset)
                if final is None:
                    continue
                named = int(final.header("prepared_transaction_offset")[0])
                selection.add_records([offset, named])
                for block in (final, block_at(log, named)):
                    if block is not None:
                        _bring(selection, block.message_ids().to_pylist()[0], settings_of)
        if len(selection.records) == before:
            return


def _bring(selection: Selection, message_id: str, settings_of: SettingsOf) -> None:
    try:
        rows = show([selection.store], settings_of, message_id, scan=Scan()).table()
    except (NoSuchTransaction, EvidenceMissing):
        return
    selection.add_transactions(rows, asked=False)


def _add_missing(selection: Selection, missing: MissingRange) -> None:
    """Add a range without evidence: a hole if it may concern any transaction, its bytes if it names a chosen one."""
    length = missing.end_offset - missing.begin_offset
    segment = selection.store.log().segment_at(missing.begin_offset)
    if segment is None:
        return
    length = min(length, segment.end_offset - missing.begin_offset)
    if not missing.is_identified:
        selection.ranges.append(KeptRange(missing.begin_offset, length, "hole"))
        return
    ids = {row.transaction_id for row in selection.every}
    copies = [copy for row in selection.every for copy in row.half_copies]
    if (
        ids & set(missing.transaction_ids)
        or {copy.commit_log_offset for copy in copies} & set(missing.prepared_offsets)
        or {copy.queue_offset for copy in copies} & set(missing.half_queue_offsets)
    ):
        selection.ranges.extend(loose(missing.begin_offset, length))
        numbers = {copy.queue_offset for copy in copies if copy.commit_log_offset == missing.begin_offset}
        if numbers:
            selection.slots.setdefault((HALF_TOPIC, 0), set()).update(numbers)
