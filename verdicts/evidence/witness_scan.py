"""Scans one split of a log: its witnesses, and facts that only all splits together can judge.

Both engines call this for every split, group the witnesses by transaction, and pass the facts of all splits to
`store_conclusion.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.commit_log import crc_findings
from rmqtx.readers.log.dledger import EntryHeaders
from rmqtx.readers.log.header_doubts import header_findings
from rmqtx.readers.log.header_rules import (
    RECORD_RULES,
    STATE_RULES,
    break_any_rule,
    broken_rules,
    have_property_crc,
    word_crc_findings,
)
from rmqtx.readers.log.kernels import accelerated
from rmqtx.readers.log.op_messages import marks_of, op_findings
from rmqtx.readers.log.prepared_records import OldRecords
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.segment_scan import Span
from rmqtx.readers.log.splits import Split
from rmqtx.readers.log.topic_doubts import topic_findings
from rmqtx.readers.log.torn_properties import (
    have_torn_properties,
    may_be_unreadable,
    torn_findings,
    torn_witnesses,
    unreadable_copies,
)
from rmqtx.readers.log.transaction_records import witnesses_of
from rmqtx.readers.model.columns import Bools, Int64s, int64s, no_numbers
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.identities import UInt64s, identities, identity_hashes
from rmqtx.readers.store.store import (
    DISCARD_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    WAITING_TOPICS,
)
from rmqtx.verdicts.compared.checked_queues import CheckedClaims
from rmqtx.verdicts.compared.queue_claims import QueueParts
from rmqtx.verdicts.compared.rocksdb_queues import unfound_rocksdb_slots
from rmqtx.verdicts.ends.index_ids import doubtful_ids
from rmqtx.verdicts.ends.named_halves import IdentifiedRows, unmatched_ends
from rmqtx.verdicts.ends.taken_numbers import half_queue_end, highest_marks
from rmqtx.verdicts.ends.unfound_entries import unfound_entries
from rmqtx.verdicts.missing.split_numbers import SplitNumbers, split_numbers
from rmqtx.verdicts.missing.unfound_slots import UnfoundSlot, unfound_slots
from rmqtx.verdicts.model.marked_copies import SeenCopies
from rmqtx.verdicts.model.verdict_inputs import DoubtfulId
from rmqtx.verdicts.startup.log_cut import earliest_read, unaccepted_bodies


@dataclass(slots=True)
class SplitFacts:
    """The facts of one split; small for any size of the split, unless the log is badly damaged.

    Shape: the three `unmatched_` arrays describe the decisions without a matching half copy in this split, in one
           order: `unmatched_offsets`: their places; `unmatched_named_offsets`: the places that they name;
           `unmatched_hashes`: the hashes of their identities. Most name a copy before the split, and match if a half
           with that identity is there; a decision with hash 0 must be examined in any case.
           `later_hashes`: the identities of half and discard copies stored after the given time, `later_commit_hashes`:
           those of COMMIT records. `last_op_offset`: that of the last op message, `last_half_number`: the highest half
           queue offset of a half copy; -1 without any.
           `high_marks`: op marks beyond the end of the half queue, rows of op message and number.
           `numbers`: the queue offsets of the half messages of half queue 0. `has_op_messages`: not only
           ROLLBACK records of the design before. `queues`: the queues of the check compared with the split, None if
           they were not; `old_records`: those of a store with a state table. `body_breaks`: rows [from, to) of the
           file, records whose body does not match its CRC and that the next start may read. `end_offset`: the place
           past the last record, 0 without one. `copies`: what rmqtx redelivered; None if it was not searched for.
    Units: bytes of the commit log; milliseconds.
    """

    split: Split
    decoded_bytes: int = 0
    records_count: int = 0
    spans: list[Span] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    halves_count: int = 0
    rocksdb_halves_count: int = 0
    prepared_count: int = 0
    unfound: list[UnfoundSlot] = field(default_factory=list)
    unmatched_named_offsets: Int64s = field(default_factory=no_numbers)
    unmatched_offsets: Int64s = field(default_factory=no_numbers)
    unmatched_hashes: UInt64s = field(default_factory=lambda: np.empty(0, np.uint64))
    checks_seen_max: int = 0
    last_op_offset: int = -1
    has_op_messages: bool = False
    last_half_number: int = -1
    high_marks: Int64s = field(default_factory=lambda: np.empty((0, 2), np.int64))
    doubtful_ids: list[DoubtfulId] = field(default_factory=list)
    later_hashes: UInt64s = field(default_factory=lambda: np.empty(0, np.uint64))
    later_commit_hashes: UInt64s = field(default_factory=lambda: np.empty(0, np.uint64))
    numbers: SplitNumbers = field(default_factory=SplitNumbers)
    queues: QueueParts | None = None
    old_records: OldRecords = field(default_factory=OldRecords.none)
    body_breaks: Int64s = field(default_factory=lambda: np.empty((0, 2), np.int64))
    end_offset: int = 0
    error: SourceError | None = None
    copies: SeenCopies | None = None

    @property
    def is_segment_ended(self) -> bool:
        """Whether the segment's data ended here: records in later splits were cut off by a recovery."""
        size = self.split.segment.size_bytes
        return any(span.position_bytes + span.length_bytes == size for span in self.spans)

    @property
    def matching_identities(self) -> pa.Array:
        """Return for each unmatched end the identity of a half that would match it; null: it must be examined."""
        return pa.array(self.unmatched_hashes.view(np.int64), mask=self.unmatched_hashes == 0)

    @property
    def offsets(self) -> tuple[int, int]:
        """Return the range of the log, without what a running broker wrote after the scan.

        Queues are read later than the log.
        """
        begin, end = self.split.offsets
        if self.split.store.in_use:
            places = [span.position_bytes for span in self.spans if span.kind in ("preallocated", "torn")]
            end = min([end, *(self.split.segment.base_offset + place for place in places)])
        return begin, max(begin, end)


@dataclass(slots=True)
class SplitWitnesses:
    """The witnesses of one split, in log order, and its facts.

    Shape: `halves` and `discards` JUDGED_HALVES, `finals` JUDGED_FINALS, `marks` MARKS, `offset_marks` OFFSET_MARKS;
           lists of batches. The hashes are those of the identities of the rows, all batches together.
    """

    facts: SplitFacts
    halves: list[pa.RecordBatch] = field(default_factory=list)
    discards: list[pa.RecordBatch] = field(default_factory=list)
    finals: list[pa.RecordBatch] = field(default_factory=list)
    offset_marks: list[pa.RecordBatch] = field(default_factory=list)
    marks: list[pa.RecordBatch] = field(default_factory=list)
    hashes: dict[str, UInt64s] = field(default_factory=dict)


#: The witnesses that contain their identity; a mark contains only a half queue offset.
IDENTIFIED = ("halves", "discards", "finals", "offset_marks")


_WRITTEN_BY_THE_CHECK = (HALF_TOPIC, DISCARD_TOPIC)


def scan_witnesses(split: Split, past_ms: int | None, *, with_copies: bool = False) -> SplitWitnesses:
    """Return the witnesses in one split; records stored after `past_ms` are skipped, and nothing is compared.

    `with_copies`: search for what rmqtx redelivered too. Otherwise this is done only where it costs less than look-ups:
    with the accelerator, which finds the mark with the other properties, and in a store that is read over a network; by
    the reference path it takes a fifth of the time.
    Damage: spans and findings of `facts`; if the rest of a file cannot be read, `error` has the cause.
    """
    is_cheap = split.store.is_remote or accelerated() is not None
    facts = SplitFacts(split, copies=SeenCopies() if with_copies or is_cheap else None)
    result = SplitWitnesses(facts)
    ops: list[pa.RecordBatch] = []
    scan = split.scan()
    entries = EntryHeaders(split.store.root) if split.segment.frame_bytes else None
    claims = CheckedClaims(split.store) if past_ms is None else None
    bodies = StartedBodies(split) if past_ms is None else None
    try:
        for block in scan:
            facts.records_count += len(block)
            facts.end_offset = block.end_offset
            kept = block if past_ms is None else block.within(None, past_ms + 1)
            if facts.copies is not None:  # first: it finds the properties of all records, for what follows too
                facts.copies.add(kept, split.store.root)
            if claims is not None:
                claims.add(block)
            if bodies is not None:
                facts.findings.extend(bodies.findings(block))
            if entries is not None:
                facts.findings.extend(entries.findings(split.segment, block))
            if past_ms is not None:
                _note_later(facts, block.within(past_ms + 1, None))
            _add_block(result, ops, kept)
    except SourceError as error:
        facts.error = error
    facts.decoded_bytes, facts.spans = scan.decoded_bytes, scan.spans
    if claims is not None:
        facts.queues, facts.old_records = claims.queues(), claims.old_records()
    if bodies is not None:
        facts.body_breaks = bodies.breaks()
    for rows in ops:
        result.marks.append(marks_of(rows))
        facts.findings.extend(op_findings(rows, split.store.root))
    for name in IDENTIFIED:
        hashes = [identity_hashes(identities(rows)) for rows in getattr(result, name)]
        result.hashes[name] = np.concatenate([np.empty(0, np.uint64), *hashes])
    _count_halves(result)
    facts.checks_seen_max = int(column(result.halves, "checks_count").max(initial=0))
    facts.has_op_messages = any(batch.num_rows for batch in ops)
    facts.last_op_offset = int(column([*ops, *result.offset_marks], "commit_log_offset").max(initial=-1))
    witnesses = {name: getattr(result, name) for name in IDENTIFIED}
    facts.unmatched_offsets, facts.unmatched_named_offsets, facts.unmatched_hashes = unmatched_ends(
        *(IdentifiedRows(witnesses[name], result.hashes[name]) for name in ("halves", "finals", "offset_marks"))
    )
    facts.doubtful_ids.extend(doubtful_ids(split.store, witnesses, result.hashes))
    facts.numbers = split_numbers(split.store, *_of_half_queue(result), *facts.offsets)
    if past_ms is None:
        if not split.store.in_use:
            facts.high_marks = highest_marks(result.marks, half_queue_end(split.store))
        _compare_with_queues(result, ops)
        _compare_with_redo_log(result)
    return result


def _add_block(result: SplitWitnesses, ops: list[pa.RecordBatch], block: Block) -> None:
    """Add the witnesses of one block, its op messages, and findings about single records."""
    facts, store = result.facts, result.facts.split.store
    found = witnesses_of(block, store.root)
    for name in IDENTIFIED:
        if name in found:
            getattr(result, name).append(found[name])
    if "ops" in found:
        ops.append(found["ops"])
    facts.findings.extend(header_findings(block, found, store.root))
    facts.findings.extend(topic_findings(store, block))
    facts.findings.extend(_crc_findings(block, found, store.root))
    facts.findings.extend(torn_findings(torn_witnesses(block), store.root))
    facts.findings.extend(witness_findings(block, found, store.root))
    if any(may_be_unreadable(found[name]) for name in ("halves", "discards") if name in found):
        facts.findings.extend(unreadable_copies(block, store.root))


def _crc_findings(block: Block, found: dict[str, pa.RecordBatch], store: str) -> list[Finding]:
    """Findings for witnesses of a block that contradict their property CRC; most brokers write no property CRC."""
    marked = block.take(have_property_crc(block))
    if not len(marked):
        return []
    places = [np.asarray(rows["commit_log_offset"]) for rows in found.values()]
    mine = np.isin(marked.commit_log_offsets, np.concatenate([np.empty(0, np.int64), *places]))
    return list(word_crc_findings(marked.take(mine), store))


def _note_later(facts: SplitFacts, block: Block) -> None:
    """Keep the identities of half and discard copies, and of COMMIT records, that were written later.

    A copy that the check puts back or discards was ahead of the check until then. A transaction that was committed then
    had not been rolled back.
    """
    found = witnesses_of(block, facts.split.store.root)
    for name in ("halves", "discards"):
        if name in found:
            rows = found[name].filter(pc.is_in(found[name]["topic"], value_set=pa.array(_WRITTEN_BY_THE_CHECK)))
            facts.later_hashes = np.concatenate([facts.later_hashes, identity_hashes(identities(rows))])
    if "finals" in found:
        commits = identity_hashes(identities(found["finals"]))
        facts.later_commit_hashes = np.concatenate([facts.later_commit_hashes, commits])


def _count_halves(result: SplitWitnesses) -> None:
    """Count half copies of the half topic, of RocksDB, and prepared records."""
    facts = result.facts
    for rows in result.halves:
        numbers = int64s(rows["queue_offset"])[are_of_half_topic(rows)]
        facts.last_half_number = max(facts.last_half_number, int(numbers.max(initial=-1)))
        counts = {row["values"]: row["counts"] for row in pc.value_counts(rows["topic"]).to_pylist()}
        facts.rocksdb_halves_count += counts.pop(ROCKSDB_HALF_TOPIC, 0)
        facts.halves_count += sum(counts.pop(topic, 0) for topic in (HALF_TOPIC, *WAITING_TOPICS))
        facts.prepared_count += sum(counts.values())
    for rows in result.offset_marks:  # the prepared record may have left the log
        facts.prepared_count += pc.sum(pc.not_equal(rows["topic"], ROCKSDB_OP_TOPIC)).as_py() or 0


def are_of_half_topic(rows: pa.RecordBatch) -> Bools:
    """Which half copies are of the half topic; those of other designs are in no op message and no slot of its queue."""
    chosen: Bools = np.asarray(pc.is_in(rows["topic"], value_set=pa.array([HALF_TOPIC, *WAITING_TOPICS])))
    return chosen


def column(batches: list[pa.RecordBatch], name: str) -> Int64s:
    """Return a column of all batches as native integers; 0 for null."""
    parts = [int64s(rows[name], 0) for rows in batches]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _of_half_queue(result: SplitWitnesses) -> tuple[Int64s, Int64s]:
    """Return the commit-log and queue offsets of the half messages of half queue 0."""
    here = [_are_of(rows, HALF_TOPIC) for rows in result.halves]
    mine = np.concatenate([np.empty(0, np.bool_), *here]) & (column(result.halves, "queue_id") == 0)
    return column(result.halves, "commit_log_offset")[mine], column(result.halves, "queue_offset")[mine]


def _are_of(rows: pa.RecordBatch, topic: str) -> Bools:
    chosen: Bools = np.asarray(pc.equal(rows["topic"], topic))
    return chosen


def _compare_with_queues(result: SplitWitnesses, ops: list[pa.RecordBatch]) -> None:
    facts = result.facts
    of_topic = {
        HALF_TOPIC: result.halves, OP_TOPIC: ops, DISCARD_TOPIC: result.discards,
        ROCKSDB_HALF_TOPIC: result.halves, ROCKSDB_OP_TOPIC: result.offset_marks,
    }
    found: dict[str, tuple[Int64s, Int64s]] = {}
    for topic, batches in of_topic.items():
        mine = column(batches, "queue_id") == 0
        if batches is result.halves or batches is result.offset_marks:
            is_chosen = are_of_half_topic if topic == HALF_TOPIC else functools.partial(_are_of, topic=topic)
            mine &= np.concatenate([np.empty(0, np.bool_), *map(is_chosen, batches)])
        places, numbers = (column(batches, name)[mine] for name in ("commit_log_offset", "queue_offset"))
        if topic == HALF_TOPIC:
            numbers = facts.numbers.slots_of(places, numbers)
        facts.unfound.extend(unfound_slots(facts.split.store, topic, places, numbers, *facts.offsets))
        found[topic] = places, numbers
    known = set(facts.unfound)  # queues may be in files and in RocksDB
    in_rocksdb = unfound_rocksdb_slots(facts.split.store, found, *facts.offsets)
    facts.unfound.extend(slot for slot in in_rocksdb if slot not in known)


def _compare_with_redo_log(result: SplitWitnesses) -> None:
    facts = result.facts
    prepared = column(result.halves, "commit_log_offset")
    ends = np.concatenate([column(rows, "commit_log_offset") for rows in (result.finals, result.offset_marks)])
    facts.unfound.extend(unfound_entries(facts.split.store, prepared, ends, *facts.offsets))


# Faults of witnesses that leave their state readable, and bodies at which the next start ends the log.
#
# A verification reports the same faults of every record.


def witness_findings(block: Block, found: dict[str, pa.RecordBatch], store: str) -> Iterator[Finding]:
    """Return impossible header values, and properties that are not names and values, of the witnesses of a block.

    `found`: the witnesses by kind. What is wrong with the fields and properties that decide is reported elsewhere.
    Order: kind of finding, then of the block.
    Damage: record-header, record-properties.
    """
    if not found:
        return
    mine = _witnesses_in(block, found)
    broken = break_any_rule(mine, _WITNESS_RULES)
    if broken.any():
        yield from broken_rules(mine.take(broken), store, _WITNESS_RULES)
    malformed = mine.properties.malformed()
    if not malformed.any():
        return
    mine = mine.take(malformed)
    for row in np.flatnonzero(~have_torn_properties(mine)).tolist():
        yield Finding(
            store, "record-properties", mine.file, int(mine.positions[row]), int(mine.lengths[row]),
            commit_log_offset=int(mine.commit_log_offsets[row]), expected="names and values",
        )


def _witnesses_in(block: Block, found: dict[str, pa.RecordBatch]) -> Block:
    """Return the records of a block that are witnesses. Order: of the block, which is that of the log."""
    is_mine = np.zeros(len(block), np.bool_)
    for rows in found.values():
        is_mine[np.searchsorted(block.commit_log_offsets, np.asarray(rows["commit_log_offset"]))] = True
    return block.take(is_mine)


_STATE_FIELDS = frozenset(rule.field for rule in STATE_RULES)
_WITNESS_RULES = tuple(rule for rule in RECORD_RULES if rule.field not in _STATE_FIELDS)


class StartedBodies:
    """The bodies of one split that the next start of a stopped broker compares with their CRCs."""

    def __init__(self, split: Split) -> None:
        begin = earliest_read(split.store)
        self._split = split
        self._is_read = begin is not None and split.segment.base_offset >= begin
        self._breaks: list[Int64s] = [np.empty((0, 2), np.int64)]

    def findings(self, block: Block) -> Iterator[Finding]:
        """Return the records of a block whose body does not match its CRC.

        Damage: record-body-crc; op messages are reported where their numbers are read.
        """
        if not self._is_read:
            return
        wrong = unaccepted_bodies(block)
        self._breaks.append(wrong)
        if len(wrong):
            is_reported = block.topic_is(OP_TOPIC)
            yield from crc_findings(self._split.store, block, pa.array(block.body_crc_matches() | is_reported))

    def breaks(self) -> Int64s:
        """Return rows [from, to) of the file: the records with such bodies."""
        return np.concatenate(self._breaks)
