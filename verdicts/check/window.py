"""Reads the initial state of a check from a store: the half and op messages at and after the check's cursors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.columns import Bools, Int32s, Int64s, no_numbers
from rmqtx.readers.model.findings import Finding, as_text
from rmqtx.readers.model.releases import BEGINS_AT_0_WITHOUT_SLOT, DISPATCHES_PAST_QUEUES, dotted
from rmqtx.readers.model.shell_words import quoted
from rmqtx.readers.queues.consume_queue import PRE_BLANK_LENGTH, Queue, open_queue
from rmqtx.readers.rocksdb.database_slots import DatabaseSlots, UnknownSlots, slots_after_start
from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, Store, is_bundle
from rmqtx.verdicts.check.check_rules import CheckRules, CheckSettings
from rmqtx.verdicts.check.slots import (
    NEVER_READABLE,
    CheckedSlots,
    LogPlaces,
    SlotRead,
    checked_slots,
    known_end,
    numbers_of_own,
    passed_slots,
    records_of,
    slot_reads,
    slots_without_record,
    unqueued,
)
from rmqtx.verdicts.check.state import CheckState, FirstFile, Undispatched
from rmqtx.verdicts.check.stored_records import (
    ABSENT,
    StoredHalves,
    StoredOps,
    are_askable,
    halves_of_records,
    impossible_values,
    ops_of_records,
)
from rmqtx.verdicts.startup.started_queues import StartedQueue, scanned_end, started_queues

#: Records up to this length are kept for the next reader.
_KEPT_BYTES_MAX = 32 << 20
_UNCUT = StartedQueue(0)
#: A broker deletes no queue file before this time after its start.
_QUEUE_FILES_KEPT_MS = 60_000
#: How much later than one interval after the last round the next one may begin. Units: milliseconds.
_LATE_MS_MAX = 1_000


@dataclass(slots=True)
class CheckWindow:
    """What the check of one half queue will read: its entries from the cursors on.

    Shape: `words` has a row for each `HalfCopy.row`: transaction_id (the offset message id if there is no UNIQ_KEY),
           producer_group, real_topic, real_queue_id, commit_log_offset. `diverted_count`: halves whose copies go to a
           delay or timer topic first, and then to the half queue; this is not simulated. `slot_offsets`: the commit-log
           offsets in the half slots, whether or not their records can be read; `fillers`: the half slots that are
           fillers, or that lie behind fillers and are cut off by the next start. `cuts`: the queues that the next start
           cuts because of their own slots. `hides_new`: the topics, half or op, whose next record gets no slot if it is
           written before the start, or one that the check passes. `has_slotless_ops`: a running broker's log has op
           messages that no slot leads to, so that the check never reads them.
    """

    state: CheckState
    words: pa.Table
    diverted_count: int = 0
    slot_offsets: Int64s = field(default_factory=no_numbers)
    fillers: Int64s = field(default_factory=no_numbers)
    findings: list[Finding] = field(default_factory=list)
    cuts: tuple[Finding, ...] = ()
    hides_new: frozenset[str] = frozenset()
    has_slotless_ops: bool = False

    @property
    def stored_halves(self) -> StoredHalves:
        """The half copies, as they are stored."""
        assert isinstance(self.state.halves, StoredHalves)
        return self.state.halves

    @property
    def are_askable(self) -> Bools:
        """Whether each half copy names the producer group to ask, and the topic and queue of the message.

        The check puts back and counts the others too, but no producer is asked (seen on 4.4.0 and 4.5.0).
        """
        return are_askable(self.words)


def check_max_finding(store: Store, window: CheckWindow, settings: BrokerSettings) -> Finding | None:
    """Return that the transactionCheckMax of the broker is not known; None if it was given or may be the default."""
    if refuted_check_max(window, settings) is None:
        return None
    return Finding(
        store.root, "check-max-unknown", expected=f"at most {settings.transaction_check_max} checks (the default)",
        actual=f"a half copy with {_most_checks(window)} checks",
    )


def refuted_check_max(window: CheckWindow, settings: BrokerSettings) -> str | None:
    """Return why a transactionCheckMax that was not given cannot be the broker's: a copy in the window has more checks.

    The check discards a half copy that has this number, and does not put it back.
    """
    most = _most_checks(window)
    if settings.check_max_is_configured or most <= settings.transaction_check_max:
        return None
    return (
        f"a half copy has {most} checks, more than transactionCheckMax {settings.transaction_check_max}, which is the "
        "default: give the broker's configuration (--broker-conf)"
    )


def _most_checks(window: CheckWindow) -> int:
    halves = window.state.halves
    return int(halves.numbers["checks_count"].max(initial=0)) if isinstance(halves, StoredHalves) else 0


class CheckWindows:
    """The windows of one store, kept from one use to the next.

    For a running broker nothing is kept, because its queues grow; and nothing is sent to other processes.
    """

    def __init__(
        self, store: Store, conf: Mapping[str, str] | None = None, *, with_records: bool = False,
        log_cut: int | None = None,
    ) -> None:
        """`conf`: the configuration of its broker, as far as it is known. `with_records`: keep the records of the last
        window of half queue 0 too, if they are few. `log_cut`: where the next start cuts off the log, if it does.
        """
        self._store = store
        self._conf = dict(conf or {})
        self._kept: dict[tuple[CheckRules, int, int | None, int | None], CheckWindow] = {}
        self._with_records = with_records and not store.in_use
        self._records: list[Block] = []
        self.log_cut = log_cut

    def __reduce__(self) -> tuple[type[CheckWindows], tuple[Store, dict[str, str]]]:
        return CheckWindows, (self._store, self._conf)

    def read(self, rules: CheckRules, queue_id: int, half_cursor: int | None, op_cursor: int | None) -> CheckWindow:
        """Return a window; keep it until it is taken or another is read, unless the store is in use.

        Raises: as `check_window`.
        """
        records: list[Block] | None = [] if self._with_records and queue_id == 0 else None
        window = check_window(self._store, rules, queue_id, half_cursor, op_cursor, records, self._start)
        if records is not None:
            self._records = records
        if not self._store.in_use:
            self._kept = {(rules, queue_id, half_cursor, op_cursor): window}
        return window

    def take(self, rules: CheckRules, queue_id: int, half_cursor: int | None, op_cursor: int | None) -> CheckWindow:
        """Return the kept window, or a new one; none is kept after this. Raises: as `check_window`."""
        kept = self._kept.pop((rules, queue_id, half_cursor, op_cursor), None)
        if kept is not None:
            return kept
        return check_window(self._store, rules, queue_id, half_cursor, op_cursor, start=self._start)

    @property
    def _start(self) -> NextStart:
        return NextStart(self._conf, self.log_cut)

    def take_records(self, offsets: Int64s) -> list[Block] | None:
        """Return the kept half copies, if they are those at commit-log offsets, else None; none are kept after this.

        Shape: blocks with the fillers of `rmqtx salvage`.
        """
        blocks, self._records = self._records, []
        known = [block.commit_log_offsets for block in blocks]
        return blocks if known and np.array_equal(np.concatenate(known), offsets) else None


@dataclass(frozen=True, slots=True)
class NextStart:
    """What is known of the next start of a broker. `log_cut`: where that start cuts off the log, if it does."""

    conf: Mapping[str, str] = field(default_factory=dict)
    log_cut: int | None = None


def check_window(
    store: Store, rules: CheckRules, queue_id: int, half_cursor: int | None, op_cursor: int | None,
    records: list[Block] | None = None, start: NextStart | None = None,
) -> CheckWindow:
    """Return the initial state of the check of one half queue, after the next start if its broker is stopped. A cursor
    of None begins at the queue's smallest offset.

    `records`: gets the half copies of the slots, if they are few.

    Damage: a slot whose record cannot be read stays a slot, as for the broker, and is a finding: its transaction, or
            the effect of its op, is unknown.
    Raises: UnreadableFile, FileChanged; of queues in RocksDB also UnknownSlots, MissingLibrary.
    Source: TransactionalMessageBridge.fetchConsumeOffset; docs/formats/half_and_op.md#check-start.
    """
    findings: list[Finding] = []
    start = start or NextStart()
    if store.has_rocksdb_queues:
        return _database_window(store, rules, queue_id, half_cursor, op_cursor, records, start)
    with open_queue(store, HALF_TOPIC, queue_id) as halves, open_queue(store, OP_TOPIC, queue_id) as ops:
        started = _started(store, rules, start, halves, ops, half_cursor, op_cursor)
        half_begin, op_begin = (_begin(store, queue, started, rules, start.conf) for queue in (halves, ops))
        half_cursor = half_begin if half_cursor is None else half_cursor
        op_cursor = op_begin if op_cursor is None else op_cursor
        half_slots = checked_slots(halves, half_cursor, half_begin, started.get(HALF_TOPIC))
        op_slots = checked_slots(ops, op_cursor, op_begin, started.get(OP_TOPIC))
        # Numbers below the half cursor never count; the cursor moves back only from after the queue's end.
        least = half_cursor if half_cursor <= half_slots.end else 0
        reads = {OP_TOPIC: _Records(OP_TOPIC, queue_id, op_slots)}
        op_findings: list[Finding] = []
        stored_ops = ops_of_records(
            reads[OP_TOPIC].read(store, op_findings), rules, op_slots.begin, op_slots.end, least
        )
        if least and begins_again(stored_ops, half_begin, half_slots.end, rules):
            half_slots = checked_slots(halves, half_begin, half_begin, started.get(HALF_TOPIC))
            reads[OP_TOPIC] = _Records(OP_TOPIC, queue_id, op_slots)
            stored_ops = ops_of_records(reads[OP_TOPIC].read(store, []), rules, op_slots.begin, op_slots.end, 0)
        slots_by_topic = {HALF_TOPIC: half_slots, OP_TOPIC: op_slots}
        reads[HALF_TOPIC] = _Records(HALF_TOPIC, queue_id, half_slots)
        reads[HALF_TOPIC].kept = records if int(half_slots.lengths.sum()) <= _KEPT_BYTES_MAX else None
        stored_halves = halves_of_records(
            reads[HALF_TOPIC].read(store, findings), rules, half_slots.begin, half_slots.end
        )
        findings += op_findings
        logs = {
            topic: _log_places(store, slots, reads[topic].own_numbers, started.get(topic))
            for topic, slots in slots_by_topic.items()
        }
        half_reads, op_reads = (
            _reads(queue, slots_by_topic[queue.topic], logs[queue.topic], started.get(queue.topic))
            for queue in (halves, ops)
        )
        state = CheckState(
            queue_id, half_cursor, half_begin, half_slots.end, op_cursor, op_begin, op_slots.end,
            stored_halves, stored_ops,
            reads=half_reads, op_reads=op_reads,
            left_out=_left_out(halves, half_slots),
            undispatched=_undispatched(store, started.get(HALF_TOPIC), half_reads, logs[HALF_TOPIC].end),
            first_file=_first_file(store, halves, half_begin, rules, start.conf),
        )
        findings += [*halves.findings, *ops.findings]
        findings += [
            Finding(
                store.root, "slot-invalid", as_text(store.queue_directory(queue.topic, queue_id)),
                expected=f"nothing after slot {queue.max_offset - 1}", actual="invalid slots",
            )
            for queue in (halves, ops) if queue.has_bytes_after_end
        ]
        fillers = _fillers(halves, half_slots, started.get(HALF_TOPIC))
        for topic, slots in slots_by_topic.items():
            passed = fillers if topic == HALF_TOPIC else np.empty(0, np.int64)
            own = [*reads[topic].own_numbers, started.get(topic, _UNCUT).added_numbers]
            finding = slots_without_record(store, topic, queue_id, slots, own, passed)
            findings += [] if finding is None else [finding]
        if started.get(HALF_TOPIC, _UNCUT).lost != _UNCUT.lost:
            fillers = np.union1d(fillers, _lost_anyway(store, halves, half_cursor, started[HALF_TOPIC].lost))
    return CheckWindow(
        state, stored_halves.words, stored_halves.diverted_count, half_slots.offsets, fillers, findings,
        tuple(cut for one in started.values() for cut in one.cuts),
        frozenset(
            topic for topic, found in {HALF_TOPIC: half_reads, OP_TOPIC: op_reads}.items()
            if started.get(topic, _UNCUT).passes_written
            or any(read.hides(slots_by_topic[topic].end) for read in found.values())
        ),
    )


def _database_window(
    store: Store, rules: CheckRules, queue_id: int, half_cursor: int | None, op_cursor: int | None,
    records: list[Block] | None, start: NextStart,
) -> CheckWindow:
    """Return the same for queues in RocksDB: only where each slot has its own record, and the start keeps the log."""
    if start.log_cut is not None:
        raise UnknownSlots(
            f"{store.root}: its half queue is in RocksDB, and its log is damaged at commit-log offset {start.log_cut}: "
            "which slots the next start keeps is not known",
            file=store.root, advice=f"rmqtx verify {quoted(store.root)}",
        )
    findings: list[Finding] = []
    slots = slots_after_start(store, (HALF_TOPIC, OP_TOPIC), queue_id)
    halves, ops = (slots[topic] for topic in (HALF_TOPIC, OP_TOPIC))
    half_cursor = halves.begin if half_cursor is None else half_cursor
    op_cursor = ops.begin if op_cursor is None else op_cursor
    if store.in_use and (half_cursor > halves.end or op_cursor > ops.end):
        raise UnknownSlots(f"{store.root}: its half queue is in RocksDB, and grows while it is read", file=store.root)
    half_slots, op_slots = _from_cursor(halves, half_cursor), _from_cursor(ops, op_cursor)
    op_read = _Records(OP_TOPIC, queue_id, op_slots)
    least = half_cursor if half_cursor <= halves.end else 0
    stored_ops = ops_of_records(op_read.read(store, findings), rules, op_slots.begin, op_slots.end, least)
    half_read = _Records(HALF_TOPIC, queue_id, half_slots)
    half_read.kept = records if int(half_slots.lengths.sum()) <= _KEPT_BYTES_MAX else None
    stored_halves = halves_of_records(half_read.read(store, findings), rules, half_slots.begin, half_slots.end)
    furthest = max(int(slots[topic].offsets.max(initial=-1)) for topic in slots)
    for read in (half_read, op_read):
        if read.furthest_own_place > furthest and DISPATCHES_PAST_QUEUES.holds(rules.version):
            raise UnknownSlots(
                f"{store.root}: its half queue is in RocksDB, and a record of {read.topic}/{queue_id} names commit-log "
                f"offset {read.furthest_own_place} as its own: the next start gives it another slot",
                file=store.root, advice=f"rmqtx verify {quoted(store.root)}",
            )
        lacking = np.setdiff1d(read.slots.numbers, np.concatenate([np.empty(0, np.int64), *read.own_numbers]))
        if len(lacking):
            raise UnknownSlots(
                f"{store.root}: its half queue is in RocksDB, and slot {lacking[0]} of {read.topic}/{queue_id} has no "
                "record of its own", file=store.root, advice=f"rmqtx verify {quoted(store.root)}",
            )
    state = CheckState(
        queue_id, half_cursor, halves.begin, halves.end, op_cursor, ops.begin, ops.end, stored_halves, stored_ops
    )
    return CheckWindow(state, stored_halves.words, stored_halves.diverted_count, half_slots.offsets, findings=findings)


def _from_cursor(slots: DatabaseSlots, cursor: int) -> CheckedSlots:
    begin = cursor if slots.begin <= cursor <= slots.end else slots.begin
    chosen = slice(begin - slots.begin, None)
    return CheckedSlots(begin, slots.end, slots.numbers[chosen], slots.offsets[chosen], slots.lengths[chosen])


def begins_again(ops: StoredOps, begin: int, end: int, rules: CheckRules) -> bool:
    """Whether the check may pass the end of its half queue, and begins there again: an op message has the next number.

    A power loss, or a lost end of the queue, leaves such op messages.
    """
    settled = (number for op in ops.ops if op is not None for number in op.numbers)
    return begin == 0 and rules.overflow_to_begin and any(number >= end for number in settled)


def _started(
    store: Store, rules: CheckRules, start: NextStart, halves: Queue, ops: Queue, half_cursor: int | None,
    op_cursor: int | None,
) -> Mapping[str, StartedQueue]:
    """Return the half and op queue as the check finds them, where that is not as they are stored."""
    found = started_queues(store, rules.version, start.conf, halves.queue_id, start.log_cut)
    if found is not None or not (store.aborted or store.in_use):
        return found or {}
    if store.in_use:
        # The cursors are read after the log is listed, so they may be newer too.
        known = [known_end(store, queue, cursor or 0) for queue, cursor in ((halves, half_cursor), (ops, op_cursor))]
        if known != [halves.max_offset, ops.max_offset]:
            return {topic: StartedQueue(end, end=end) for topic, end in zip((HALF_TOPIC, OP_TOPIC), known, strict=True)}
    tails = unqueued(store, halves.queue_id, halves, ops)
    return {
        queue.topic: StartedQueue(
            queue.max_offset, tuple(tails[queue.topic]), queue.max_offset + len(tails[queue.topic])
        )
        for queue in (halves, ops)
    }


def _undispatched(
    store: Store, started: StartedQueue | None, reads: Mapping[int, SlotRead], log_end: int
) -> Undispatched | None:
    """Return what keeps new half copies from a slot, or which slots they make readable because the log grows.

    None if neither is so, and in a bundle, whose log is a part.
    """
    if is_bundle(store):
        return None
    if started is not None and started.hinders_new_slots:
        return Undispatched(started.log_end, started.maximum, started.compares_ends, started.begins_behind)
    if any(read.readable_from != NEVER_READABLE for read in reads.values()):
        return Undispatched(log_end, -1, compares_ends=False)
    return None


def _begin(
    store: Store, queue: Queue, started: Mapping[str, StartedQueue], rules: CheckRules, conf: Mapping[str, str]
) -> int:
    """Return the smallest offset of a queue for its broker, in the first round of the check.

    A broker that starts compares the places in the slots of the first file with the begin of the log: if that is 0,
    also the place 0 in fillers is in the log. If no slot of that file leads into the log, the queue begins with the
    file until the broker deletes it (ConsumeQueue.java correctMinOffset, DefaultMessageStore.java
    cleanFilesPeriodically).
    """
    made = started.get(queue.topic)
    if made is not None and made.begin is not None:
        return made.begin
    if store.in_use:
        return queue.min_offset
    if store.log_begin_offset and queue.min_offset >= queue.max_offset and (made is None or not made.added):
        end = queue.max_offset if made is None else made.end  # also the empty slot that a start counts
        return 0 if BEGINS_AT_0_WITHOUT_SLOT.holds(rules.version) else end
    if not store.log_begin_offset or _first_file_kept_ms(store, queue, rules, conf) > 0:
        return queue.first_offset
    return queue.min_offset


def _first_file(
    store: Store, queue: Queue, begin: int, rules: CheckRules, conf: Mapping[str, str]
) -> FirstFile | None:
    """Return the first file of a queue that begins with it only until its broker deletes it; None if it is kept."""
    if not store.log_begin_offset or not begin == queue.first_offset < queue.min_offset:
        return None
    return FirstFile(_first_file_kept_ms(store, queue, rules, conf), queue.min_offset)


def _first_file_kept_ms(store: Store, queue: Queue, rules: CheckRules, conf: Mapping[str, str]) -> int:
    """Return how long after the begin of the first round a broker deletes the first file of a queue; 0 if not later.

    It deletes a file without a slot that leads into the log.
    """
    if store.in_use or is_bundle(store) or not queue.file_ends[:1].sum() <= queue.min_offset < queue.max_offset:
        return 0
    settings = broker_settings(store, conf=conf, version=dotted(rules.version))
    return max(0, _QUEUE_FILES_KEPT_MS - settings.transaction_check_interval_ms)


def _log_places(
    store: Store, slots: CheckedSlots, own_numbers: list[Int64s], started: StartedQueue | None = None
) -> LogPlaces:
    """Return the places of a log that the check of a queue can read. `own_numbers`: slots with a record of the queue.

    `started`: the queue after a start, whose slots may lead behind the end of the log.
    """
    ends = slots.offsets + slots.lengths
    are_own = np.isin(slots.numbers, np.concatenate([np.empty(0, np.int64), *own_numbers]))
    known_end = int(ends[are_own].max(initial=0))
    log = LogPlaces.of(store, known_end)
    if ((ends > known_end) & ~are_own).any() and not is_bundle(store):  # also what copies of a round may reach
        log = log._replace(end=scanned_end(store, known_end))  # `log.end` was approximate
    if started is not None and started.hinders_new_slots:
        log = log._replace(end=min(log.end, started.log_end))
    return log


def _places(queue: Queue, slots: CheckedSlots, started: StartedQueue | None) -> tuple[Int64s, Int32s]:
    """Return the place and the length in all slots, also in the fillers of a queue that a start makes, and in the
    empty slot that a start counts.
    """
    offsets, lengths = queue.places(slots.begin, slots.end)
    if started is not None and started.begin is not None:
        count = max(0, started.kept_end - slots.begin)
        offsets[:count], lengths[:count] = 0, PRE_BLANK_LENGTH
    elif started is not None:
        for number in range(max(queue.max_offset, slots.begin), started.kept_end):
            if queue.is_in_file(number):
                offsets[number - slots.begin] = 0
    return offsets, lengths


def _reads(
    queue: Queue, slots: CheckedSlots, log: LogPlaces, started: StartedQueue | None = None
) -> dict[int, SlotRead]:
    """Return what the store returns for slots without a record at their place.

    `started`: the queue as the check finds it, if not as it is stored.
    """
    if not log.file_bytes:  # without a log the next start deletes the queues
        return {}
    if len(slots.numbers) == slots.end - slots.begin and log.are_readable(slots.offsets, slots.lengths).all():
        return {}
    offsets, stored_lengths = _places(queue, slots, started)
    lengths: Int64s = stored_lengths.astype(np.int64)
    are_known = offsets >= 0
    rows = slots.numbers - slots.begin
    offsets[rows], lengths[rows], are_known[rows] = slots.offsets, slots.lengths, True
    file_ends = queue.file_ends
    if started is not None and started.begin is not None:
        file_ends = np.union1d(file_ends, started.file_end)
    found = slot_reads(log, slots.begin, offsets, lengths, file_ends, are_known)
    if not slots.begin < queue.first_offset <= slots.end:
        return found
    size = int(file_ends[0]) - queue.first_offset
    following = slots.begin - slots.begin % size + size  # where the next file would begin
    return {**found, slots.begin: SlotRead(None, following, following, sees_copies=False)}


def _left_out(queue: Queue, slots: CheckedSlots) -> frozenset[int]:
    if len(slots.numbers) == slots.end - slots.begin:
        return frozenset()
    return frozenset(queue.left_out(slots.begin, slots.end).tolist())


def _lost_anyway(store: Store, queue: Queue, cursor: int, lost: tuple[int, int]) -> Int64s:
    """Return the slots that the next start cuts off, and that the check would not read without it either."""
    stored = checked_slots(queue, cursor, queue.first_offset)
    reads = _reads(queue, stored, _log_places(store, stored, [stored.numbers]))
    passed = passed_slots(reads, stored.begin, stored.end)
    return passed[(passed >= lost[0]) & (passed < lost[1])]


def _fillers(queue: Queue, slots: CheckedSlots, started: StartedQueue | None) -> Int64s:
    """Return the numbers of fillers among some slots."""
    if len(slots.numbers) == slots.end - slots.begin:
        return np.empty(0, np.int64)
    offsets, lengths = _places(queue, slots, started)
    return slots.begin + np.flatnonzero((offsets == 0) & (lengths == PRE_BLANK_LENGTH))


@dataclass(slots=True)
class _Records:
    """The records of some slots of a queue; `own_numbers` are of slots whose record is of the queue.

    `kept`: gets the records. `furthest_own_place`: the highest place that one of them names as its own.
    """

    topic: str
    queue_id: int
    slots: CheckedSlots
    own_numbers: list[Int64s] = field(default_factory=list)
    kept: list[Block] | None = None
    furthest_own_place: int = -1

    def read(self, store: Store, findings: list[Finding]) -> Iterator[tuple[Block, Int64s]]:
        """Return the records with their slot numbers; impossible values become findings."""
        for block, numbers in records_of(store, self.slots):
            self.own_numbers.append(numbers_of_own(block, numbers, self.topic, self.queue_id))
            findings += impossible_values(block, store.root)
            own_places = block.header("commit_log_offset")
            self.furthest_own_place = max(self.furthest_own_place, int(own_places.max(initial=-1)))
            if self.kept is not None:
                self.kept.append(block)
            yield block, numbers
            yield from self._again(block, numbers)

    def _again(self, block: Block, numbers: Int64s) -> Iterator[tuple[Block, Int64s]]:
        """Yield the records of a block to which further slots lead, with these: a start gives some a second one."""
        rows = np.flatnonzero(
            np.isin(self.slots.offsets, block.commit_log_offsets) & ~np.isin(self.slots.numbers, numbers)
        )
        if len(rows):
            order = np.argsort(block.commit_log_offsets, kind="stable")
            place = np.searchsorted(block.commit_log_offsets[order], self.slots.offsets[rows])
            yield block.take(order[place]), self.slots.numbers[rows]


def has_op_lists(store: Store) -> bool | None:
    """Whether the newest op is a list of numbers, as from 5.1.0 on; None if there is none."""
    with open_queue(store, OP_TOPIC, 0) as queue:
        newest = checked_slots(queue, queue.max_offset - 1, queue.min_offset)
        for block, _ in records_of(store, newest):
            return b"," in (block.bodies().cast(pa.binary())[-1].as_py() or b"")
    return None


def first_round_ms(window: CheckWindow, settings: CheckSettings, now_ms: int, *, is_running: bool) -> int:
    """Return when the next round of a check begins; a stopped broker is assumed to start at `now_ms`."""
    if not is_running:
        return now_ms + settings.interval_ms
    return next_round_ms(last_round_ms(window.stored_halves), settings.interval_ms, now_ms)


def last_round_ms(halves: StoredHalves) -> int | None:
    """Return when the newest copy of the check was put back."""
    made = halves.numbers["checks_count"] != ABSENT
    return int(halves.numbers["store_time_ms"][made].max()) if made.any() else None


def next_round_ms(last_ms: int | None, interval_ms: int, now_ms: int) -> int:
    """Return when a running broker begins its next round; at once if no earlier round is known.

    A round may have put its copies back since `now_ms`, the moment at which the store was opened.
    """
    if last_ms is None or last_ms > now_ms + interval_ms:
        return now_ms
    late_ms = min(_LATE_MS_MAX, interval_ms // 10)
    rounds = max(1, -(-(now_ms - last_ms - late_ms) // interval_ms))
    return max(now_ms, last_ms + rounds * interval_ms)
