"""The witnesses of some transactions from a live broker, by requests.

The steps are those of `rmqtx.verdicts.evidence.indexed_lookup`.

The broker works on meanwhile, so the order of the reads keeps a decided transaction from being reported as open:
cursors before halves, so that a half which the check passes in between still counts as one that it will reach; halves
before ops, because an op is only assigned to a known copy; ops before COMMIT records, because a commit writes its
COMMIT record before its op: if the op is read, the COMMIT record is read afterwards, and no commit appears as a
rollback. A decision during the reading may be visible or not; a decision before it is visible, except for an op that is
still in the broker's memory (5.1.0+).
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.properties import TRANSACTION_ID
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.torn_properties import torn_findings, torn_witnesses, unreadable_copies
from rmqtx.readers.log.transaction_records import is_delayed_half
from rmqtx.readers.model.columns import Int64s, int64s
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.identities import AT, NamedPlace, offset_of
from rmqtx.readers.model.releases import REFUSED_TAKES_NUMBER, TIMERS
from rmqtx.readers.store.store import (
    CHECK_TOPICS,
    DISCARD_TOPIC,
    HALF_TOPIC,
    HALF_TOPICS,
    OP_TOPIC,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)
from rmqtx.remoting.connections.batched_reads import Pace
from rmqtx.remoting.live.half_numbers import (
    PulledHalves,
    damaged_numbers,
    live_half_numbers,
    live_number_findings,
    slots_by_place,
)
from rmqtx.remoting.live.op_reads import LiveOps
from rmqtx.remoting.live.queues import left_slots
from rmqtx.remoting.live.record_reads import (
    HOLE_RECORDS_MAX,
    RECORDS_PER_QUERY,
    LiveReads,
    LiveRecords,
    only_with,
    read_place,
    read_prepared,
    walk_behind_prepared,
)
from rmqtx.remoting.live.slot_reads import hidden_topic, live_slot_reads
from rmqtx.remoting.live.store_facts import LiveStore
from rmqtx.remoting.protocol.errors import Refused
from rmqtx.verdicts.audit.message_ids import other_id_clause
from rmqtx.verdicts.check.check_rules import CheckRules
from rmqtx.verdicts.check.state import CheckState
from rmqtx.verdicts.check.stored_records import halves_of_records, ops_of_records
from rmqtx.verdicts.check.window import CheckWindow, begins_again
from rmqtx.verdicts.ends.doubtful_ends import misdirected_decisions
from rmqtx.verdicts.evidence.witness_collector import Names, incomplete_chains
from rmqtx.verdicts.missing.missing_ranges import range_of_torn_discard_copy, range_of_unreadable_half
from rmqtx.verdicts.missing.split_numbers import REFUSED_MAX
from rmqtx.verdicts.model.witnesses import Witnesses

#: The most entries of the half queue that are examined for slots that a power loss left.
_LEFT_SLOTS_MAX = 100_000
#: Identity → real topic, as in `rmqtx.verdicts.audit.lookups`.
Named = dict[str, str | None]


class LiveWitnesses:
    """One live broker, read by its queues and its index.

    Shape:  `window()` and `named_by(words)` name transactions, `witnesses(...)` returns all their witnesses. Findings
            are added to the facts.
    Raises: Unreachable, NoAnswer, Refused.
    """

    def __init__(self, facts: LiveStore, pace: Pace | None = None) -> None:
        self._facts = facts
        self._broker = facts.broker
        self._pace = pace or Pace()
        self._reads = LiveReads(facts, self._pace)
        self._gathered = self._reads.gathered
        #: The half queue offset from which on all copies are known.
        self._halves_known_from = facts.half_end
        self._halves_asked_for: set[str] = set()
        #: What the check will reach, as far as it was read.
        self._check_halves: list[Block] = []
        self._ops = LiveOps(facts, self._reads)
        self._pulled = PulledHalves()
        self._knows_rocksdb_halves = self._knows_rocksdb_ops = False
        self._known_as: dict[str, list[Names]] = {}

    # -- which transactions ---------------------------------------------------------------------------------------

    def window(self, *, is_whole: bool = False) -> Named:
        """Name every transaction with a half copy that the check will reach; `is_whole`: with any half copy.

        A broker before 4.3 has no half queue, and its prepared records are in no queue: this is a finding.
        """
        if not self._facts.has_half_topic:
            self._facts.findings.append(Finding(self._facts.root, "prepared-unlisted"))
            return {}
        begin = self._facts.half_begin if is_whole else max(self._facts.half_cursor, self._facts.half_begin)
        self._read_halves_from(begin)
        self._read_diverted()
        halves = self._gathered.table("halves")
        if self._facts.rocksdb_end > self._facts.rocksdb_begin:
            halves = self._with_all_of_rocksdb(is_whole=is_whole)
        return self._named(halves)

    def ask_index(self, words: Sequence[str]) -> list[str]:
        """Read the records that the index has for some ids or business keys, and return those that it does not have."""
        self._read_keys(list(words))
        return self._unknown(words)

    def named_by(self, words: Iterable[str], *, only_ids: bool = False) -> Named:
        """Return the transactions that some words name, among those read. `only_ids`: not by business keys."""
        self._learn_names(words := list(words))
        return {
            name.identity: name.topic
            for word in words
            for name in reversed(self._known_as.get(word, ()))
            if name.identity is not None and (not only_ids or name.transaction_id in (None, word))
        }

    @property
    def shows_op_slots(self) -> bool:
        """Whether the broker serves its op queue (from 4.7 on), so far as the op messages of its check were read."""
        return self._ops.shows_slots

    @property
    def root(self) -> str:
        """The broker's value in the column `store`."""
        return self._facts.root

    def at_place(self, place: NamedPlace) -> tuple[Named, list[int]]:
        """Return the transactions of the records at a place, and where these records begin."""
        offsets = read_place(self._reads, self._facts, place)
        words = {f"{AT}:{offset}": offset for offset in offsets}
        known = self._gathered.named_by(words)
        named = {name.identity: name.topic for names in known.values() for name in names if name.identity is not None}
        return named, offsets

    def _with_all_of_rocksdb(self, *, is_whole: bool) -> pa.Table:
        """Return the half copies, with those of all transactions in RocksDB; if not `is_whole`, only unsettled ones.

        There is no cursor that shows what the broker will check there: both queues are read to their ends.
        """
        self._read_rocksdb_halves()
        self._read_rocksdb_ops(None, 0)
        halves, marks = self._gathered.table("halves"), self._gathered.table("offset_marks")
        if is_whole:
            return halves
        ended = pc.is_in(halves["commit_log_offset"], value_set=pc.unique(marks["half_commit_log_offset"]))
        return halves.filter(pc.invert(pc.and_(pc.equal(halves["topic"], ROCKSDB_HALF_TOPIC), ended)))

    def undecided_in_rocksdb(self) -> list[str]:
        """Return the transactions in RocksDB without an op message.

        The broker still checks those that its table has, which no request reads; it has dropped the others.
        """
        halves = self._with_all_of_rocksdb(is_whole=False)
        return list(self._named(halves.filter(pc.equal(halves["topic"], ROCKSDB_HALF_TOPIC))))

    def other_id_words(self, identity: str) -> str:
        """Return a clause about a record with only the offset of a message id; empty without one."""
        own, offset = self._reads.other_ids.get(identity), offset_of(identity)
        return "" if own is None or offset is None else other_id_clause(offset, own, self._facts.root)

    def _learn_names(self, names: Iterable[str]) -> None:
        """Note which of the records read so far have these names."""
        self._known_as.update(self._gathered.named_by({name: self._reads.message_ids.get(name) for name in names}))

    def _unknown(self, names: Sequence[str]) -> list[str]:
        """Return the names that no record read so far has."""
        self._learn_names(names)
        return [name for name in names if name not in self._known_as]

    def search_without_index(self, names: list[str]) -> None:
        """Look for names that the index does not have, until all are found.

        In this order: as message ids; in the delay queues; in the half queue from the check cursor on; among halves in
        RocksDB; among halves stored before the broker's last start; as prepared records.
        """
        for name in names:
            self._reads.read_view(name)
        if not self._facts.has_half_topic:
            return
        if self._unknown(names):
            self._read_diverted()
        if self._unknown(names):
            self._read_halves_from(max(self._facts.half_cursor, self._facts.half_begin))
        if self._unknown(names):
            self._read_rocksdb_halves()
        if self._unknown(names):
            self._read_halves_before_the_start_from(self._facts.half_begin, None)
        if self._facts.has_index and (left := self._unknown(names)):
            read_prepared(self._facts, self._gathered, left, self._pace)

    def _read_halves_before_the_start_from(self, begin: int, names: list[str] | None) -> None:
        """Read half copies from an offset on that were stored before the broker's last start; `names`: only theirs."""
        facts = self._facts
        if begin >= self._halves_known_from:
            return
        end = self._reads.place_at(HALF_TOPIC, 0, facts.index_whole_since_ms, self._halves_known_from)
        if end - begin > HOLE_RECORDS_MAX:
            facts.findings.append(Finding(facts.root, "index-unproven", actual=f"{end - begin} half messages"))
            return
        for block in self._reads.queue(HALF_TOPIC, 0, begin, end):
            self._gathered.add(block if names is None else only_with(block, names))

    @staticmethod
    def _named(halves: pa.Table) -> Named:
        keys = pc.coalesce(halves["transaction_id"], halves["fingerprint"])
        return dict(zip(keys.to_pylist(), halves["real_topic"].to_pylist(), strict=True))

    # -- whole transactions ---------------------------------------------------------------------------------------

    def witnesses(self, named: Named) -> Witnesses:
        """Return the half copies, op marks, finals and discard copies of some transactions."""
        facts = self._facts
        if named:
            if facts.has_half_topic:
                self._read_other_halves(named)
                self._read_other_rocksdb_halves(named)
                if (halves := self._halves_outside_rocksdb(named)).num_rows:
                    self._ops.read(
                        halves, self._numbers_and_slots(halves), lambda: self._halves_outside_rocksdb(named)
                    )
                    self._read_left_slots(named)
                self._read_rocksdb_ops_of(named)
                self._read_decisions(named)
            walk_behind_prepared(facts, self._gathered, list(named), self._pace)
        kept = self._gathered.kept(named)
        if facts.has_half_topic:
            self._read_beside(kept)
            facts.half_numbers = live_half_numbers(facts, kept, self._pulled, self._ops.checked)
            facts.findings.extend(live_number_findings(facts))
            facts.missing.extend(damaged_numbers(facts, self._pulled, *self._gathered.named_numbers()))
        self._look_for_missing_copies(kept)
        facts.misdirected_decisions.extend(misdirected_decisions(facts.root, kept, LiveRecords(facts, self._pace)))
        facts.findings.extend(self._gathered.findings)
        return kept

    def note_unread(self) -> None:
        """Add findings for records that the broker did not return; called when all is read, also for the check.

        And for copies of which id, group or real topic cannot be read, and discard copies whose id is torn: they may be
        of other transactions. A power loss can take the end of a record; the broker sends what is left of it.
        """
        facts = self._facts
        for gap in self._reads.gaps:
            facts.findings.append(gap.finding(facts.root))
            hidden = None if gap.topic in CHECK_TOPICS else hidden_topic(facts, gap)
            facts.add_missing(f"queue offsets {gap.begin} to {gap.end - 1} of {gap.topic}", hidden)
        for block in self._gathered.unreadable:
            for finding in unreadable_copies(block, facts.root):
                copy = block.take(block.commit_log_offsets == finding.commit_log_offset)
                facts.findings.append(finding)
                facts.missing.append(range_of_unreadable_half(facts.root, copy))
            torn = torn_witnesses(block)
            facts.findings.extend(torn_findings(torn, facts.root))
            ranges = (range_of_torn_discard_copy(facts.root, torn.take(np.array([row]))) for row in range(len(torn)))
            facts.missing.extend(one for one in ranges if one is not None)

    # -- halves ---------------------------------------------------------------------------------------------------

    def _read_halves_from(self, begin: int) -> None:
        """Read all half copies from a queue offset on that are not known yet."""
        end = self._halves_known_from
        if begin >= end:
            return
        self._halves_known_from = begin
        self._pulled.note_range(begin, end)
        for block in self._reads.queue(HALF_TOPIC, 0, begin, end):
            self._gathered.add(block)
            self._pulled.add(block)
            self._check_halves.append(block.take(block.header("queue_offset") >= self._facts.checked_from))

    def _read_diverted(self) -> None:
        """Read half messages with a delay level that are not due yet (clients before 4.6.1).

        Source: docs/formats/half_and_op.md#delayed-half.
        """
        for queue_id, (begin, end) in sorted(self._facts.scheduled.items()):
            for block in self._reads.queue(SCHEDULE_TOPIC, queue_id, begin, end):
                self._gathered.add(block.take(is_delayed_half(block)))

    def _read_other_halves(self, named: Named) -> None:
        """Read copies at lower queue offsets than those read so far.

        Not for a transaction whose original was read: then all its copies are known.
        """
        begin, known_from = self._facts.half_begin, self._halves_known_from
        if known_from <= begin:
            return
        whole = set(self._halves_asked_for)
        if known_from < self._facts.half_end:
            whole.update(self._with_original(self._halves_outside_rocksdb(named)))
        lacking = [name for name in named if name not in whole]
        ids = [name for name in lacking if name not in self._reads.lone_names]
        is_less = known_from - begin <= RECORDS_PER_QUERY * len(ids)
        if len(ids) < len(lacking) or (lacking and (is_less or not self._facts.has_index)):
            self._read_halves_from(begin)
        else:
            self._reads.read_index((HALF_TOPIC, name) for name in ids)
            self._read_halves_before_the_start(named)

    def _read_left_slots(self, named: Named) -> None:
        """Read the slots after the first copy of some transactions that a power loss left, if they show it.

        The check reads those from its cursor on. A slot that leads before the next one looks like others.
        """
        facts = self._facts
        numbers = self._gathered.chosen("halves", named).filter(pc.field("topic") == HALF_TOPIC)["queue_offset"]
        begin, end = pc.min(numbers).as_py(), min(self._halves_known_from, facts.checked_from)
        if begin is None or end - begin > _LEFT_SLOTS_MAX or self._ops.keeps_slots:
            return
        with contextlib.suppress(Refused):  # an account may have the right to pull and not the right to read entries
            for number in sorted({*left_slots(self._broker, max(begin, facts.half_begin), end, facts.log_end_offset)}):
                for block in self._reads.queue(HALF_TOPIC, 0, number, number + 1):
                    self._gathered.add(block)

    def _read_beside(self, kept: Witnesses) -> None:
        """Read the half messages that may have the number of one of some copies, where the broker numbers some twice.

        Their op messages name a number, which may be that of the other one.
        """
        facts, settings = self._facts, self._facts.settings
        if REFUSED_TAKES_NUMBER.between(None, settings.version_high) is False:
            return
        halves = kept.halves.filter(pc.field("topic") == HALF_TOPIC)
        if REFUSED_TAKES_NUMBER.between(settings.version_low, settings.version_high) is False:
            # One of these may have written the log of a later release. No op message changes what is committed.
            committed = kept.finals["transaction_id"].combine_chunks()
            halves = halves.filter(pc.invert(pc.is_in(halves["transaction_id"], committed, skip_nulls=True)))
        numbers = int64s(halves["queue_offset"])
        for begin, end in self._pulled.unread_beside(numbers, facts.half_begin, facts.half_end):
            self._pulled.note_range(begin, end)
            for block in self._reads.queue(HALF_TOPIC, 0, begin, end):
                self._pulled.add(block)

    @staticmethod
    def _with_original(halves: pa.Table) -> set[str]:
        originals = halves.filter(pc.is_null(halves["checks_count"]))
        return set(pc.coalesce(originals["transaction_id"], originals["fingerprint"]).to_pylist())

    def _read_halves_before_the_start(self, named: Named) -> None:
        """Read copies stored before the broker's last start by the queue, because the index may lack them.

        All of them for a transaction of which the index has only a discard copy.
        """
        facts, halves = self._facts, self._halves_outside_rocksdb(named)
        oldest = halves.select(["queue_offset", "store_time_ms"]).sort_by("queue_offset").slice(0, 1).to_pylist()
        known = pc.unique(pc.coalesce(self._gathered.chosen("halves", named)["transaction_id"], ""))
        discarded = self._gathered.chosen("discards", named)["transaction_id"]
        lost = incomplete_chains(halves) or not pc.all(pc.is_in(discarded, value_set=known), min_count=0).as_py()
        if lost or (oldest and oldest[0]["store_time_ms"] < facts.index_whole_since_ms):
            begin = facts.half_begin if lost else oldest[0]["queue_offset"]
            self._read_halves_before_the_start_from(begin, list(named))

    def _halves_outside_rocksdb(self, named: Named) -> pa.Table:
        """The half copies of some transactions outside the topic of RocksDB."""
        halves = self._gathered.chosen("halves", named)
        return halves.filter(pc.not_equal(halves["topic"], ROCKSDB_HALF_TOPIC))

    def _numbers_and_slots(self, halves: pa.Table) -> Int64s:
        """The numbers of some half messages, and the slots in which they are, or shortly before which they may be."""
        numbers, places = int64s(halves["queue_offset"]), int64s(halves["commit_log_offset"])
        unread = numbers[~np.isin(places, self._pulled.places)]
        before = (unread[:, None] - np.arange(REFUSED_MAX)).reshape(-1)
        slots = np.array([*slots_by_place(self._facts, self._pulled).values()], np.int64)
        return np.concatenate([numbers, slots, before])

    # -- transactions in RocksDB ----------------------------------------------------------------------------------

    def _read_rocksdb_halves(self) -> None:
        """Read all halves of transactions in RocksDB."""
        if self._knows_rocksdb_halves:
            return
        self._knows_rocksdb_halves = True
        for block in self._reads.queue(ROCKSDB_HALF_TOPIC, 0, self._facts.rocksdb_begin, self._facts.rocksdb_end):
            self._gathered.add(block)

    def _read_other_rocksdb_halves(self, named: Named) -> None:
        """Read all halves in RocksDB of some transactions: a resume makes another half at another offset."""
        if not self._knows_rocksdb_halves and self._facts.rocksdb_end > self._facts.rocksdb_begin:
            self._reads.read_topic(ROCKSDB_HALF_TOPIC, {0}, list(named), 0)

    def _read_rocksdb_ops_of(self, named: Named) -> None:
        """Read the op messages of some transactions in RocksDB; the index does not have them under these ids."""
        if self._knows_rocksdb_ops:
            return
        halves = self._gathered.chosen("halves", named)
        halves = halves.filter(pc.equal(halves["topic"], ROCKSDB_HALF_TOPIC))
        if halves.num_rows:
            ids = pc.drop_null(pc.unique(halves["transaction_id"].combine_chunks()))
            self._read_rocksdb_ops(ids, pc.min(halves["store_time_ms"]).as_py())

    def _read_rocksdb_ops(self, ids: pa.Array | None, since_ms: int) -> None:
        """Read the op messages of transactions in RocksDB, or of some of them, from a time on."""
        self._knows_rocksdb_ops = ids is None
        for queue_id, begin, end in self._reads.ranges(ROCKSDB_OP_TOPIC, {0}, since_ms)[0]:
            for block in self._reads.queue(ROCKSDB_OP_TOPIC, queue_id, begin, end):
                if ids is not None:
                    block = block.take(np.asarray(pc.is_in(block.properties.text(TRANSACTION_ID), value_set=ids)))
                self._gathered.add(block)

    # -- the check ------------------------------------------------------------------------------------------------

    def check_window(self, rules: CheckRules) -> CheckWindow:
        """Return what the check will reach: half and op messages from its cursors on; nothing is read twice.

        Raises: OpsUnreadable if this broker does not serve its op queue (4.3.0), and the log from the first of these
                halves on is too long to be read.
        """
        facts = self._facts
        begin = facts.checked_from
        self._read_halves_from(begin)
        op_cursor, op_begin = self._ops.read_checked(self._check_halves)
        halves = self._with_slots(self._check_halves)
        found = [(block, block.header("queue_offset")) for block in self._ops.checked if len(block)]
        op_end = max((int(numbers.max()) + 1 for _, numbers in found), default=max(op_begin, self._ops.end))
        least = facts.half_cursor if facts.half_cursor <= facts.half_end else 0
        first_op = op_begin if op_cursor > op_end else max(op_cursor, op_begin)
        op_reads = live_slot_reads(facts, OP_TOPIC, first_op, self._ops.end, self._reads.gaps)
        op_end = max(op_end, self._ops.end) if op_reads else op_end
        stored_ops = ops_of_records(found, rules, first_op, op_end, least)
        if least and begins_again(stored_ops, facts.half_begin, facts.half_end, rules):
            blocks = self._reads.queue(HALF_TOPIC, 0, facts.half_begin, begin)
            halves = [*self._with_slots(blocks), *halves]
            begin = facts.half_begin
            stored_ops = ops_of_records(found, rules, first_op, op_end, 0)
        half_reads = live_slot_reads(facts, HALF_TOPIC, begin, facts.half_end, self._reads.gaps)
        stored = halves_of_records(
            [(block.take(in_queue), slots[in_queue]) for block, slots in halves
             if (in_queue := (slots >= begin) & (slots < facts.half_end)).any()],
            rules, begin, max(begin, facts.half_end),
        )
        state = CheckState(
            0, facts.half_cursor, facts.half_begin, facts.half_end, op_cursor, op_begin, op_end, stored, stored_ops,
            reads=half_reads, op_reads=op_reads,
        )
        # Also of copies that the check cannot decode, before 4.6.0 those with a spoiled body.
        places = [block.commit_log_offsets for block, _ in halves]
        slot_offsets = np.concatenate([np.zeros(0, np.int64), *places])
        hides_new = {HALF_TOPIC: (half_reads, facts.half_end), OP_TOPIC: (op_reads, op_end)}
        return CheckWindow(
            state, stored.words, stored.diverted_count, slot_offsets=slot_offsets,
            hides_new=frozenset(
                topic for topic, (reads, end) in hides_new.items() if any(read.hides(end) for read in reads.values())
            ),
            has_slotless_ops=self._ops.has_slotless,
        )

    def _with_slots(self, blocks: Iterable[Block]) -> list[tuple[Block, Int64s]]:
        """Half copies with the slots from which they were read; a slot can lead to a record with another number."""
        slots = slots_by_place(self._facts, self._pulled)
        found = []
        for block in blocks:
            numbers = block.header("queue_offset").astype(np.int64)
            for row in np.flatnonzero(np.isin(block.commit_log_offsets, list(slots))).tolist():
                numbers[row] = slots[int(block.commit_log_offsets[row])]
            found += [(block, numbers)] if len(block) else []
        return found

    # -- finals and discard copies --------------------------------------------------------------------------------

    def _read_decisions(self, named: Named) -> None:
        """Read finals and discard copies by the index or by their queues, whichever is less."""
        halves = self._gathered.chosen("halves", named)
        copies = pa.concat_tables([halves, self._gathered.chosen("discards", named)])
        since_ms = pc.min(halves["store_time_ms"]).as_py() or 0
        places: dict[str, set[int]] = defaultdict(set)
        queues = zip(copies["real_topic"].to_pylist(), copies["real_queue_id"].to_pylist(), strict=True)
        for topic, queue_id in set(queues):
            if topic is not None and queue_id is not None:
                places[topic].add(queue_id)
        by_topic: dict[str, list[str]] = defaultdict(list)
        for name, topic in named.items():
            if topic is not None and topic not in HALF_TOPICS:
                by_topic[topic].append(name)
        waiting = {SCHEDULE_TOPIC: set(self._facts.scheduled)} if self._facts.scheduled else {}
        if (low := self._facts.settings.version_low) is None or TIMERS.holds(low):
            waiting[TIMER_TOPIC] = {0}
        for topic, names in by_topic.items():
            self._reads.read_topic(topic, places[topic], names, since_ms)
        for topic, queue_ids in {DISCARD_TOPIC: {0}, **waiting}.items():
            self._reads.read_topic(topic, queue_ids, list(named), since_ms)

    def _read_keys(self, names: list[str]) -> None:
        """Read half and discard copies with some ids or business keys; prepared records of a broker before 4.3."""
        if not self._facts.has_half_topic:
            read_prepared(self._facts, self._gathered, names, self._pace)
            return
        if not self._facts.has_index:
            self._read_halves_from(self._facts.half_begin)
            self._read_rocksdb_halves()
        topics = [HALF_TOPIC, DISCARD_TOPIC]
        topics += [ROCKSDB_HALF_TOPIC] if self._facts.rocksdb_end > self._facts.rocksdb_begin else []
        self._reads.read_index((topic, name) for topic in topics for name in names)
        self._halves_asked_for.update(names)

    def _look_for_missing_copies(self, kept: Witnesses) -> None:
        """Add findings for missing copies: a copy with n checks needs n earlier ones, unless the log begins later."""
        if self._facts.log_begin_offset > 0:
            return
        for name in incomplete_chains(kept.halves):
            self._facts.findings.append(Finding(self._facts.root, "copies-missing", actual=name))
