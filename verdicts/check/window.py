"""Reads the initial state of a check from a store: the half and op messages at and after the check's cursors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from readers.log import compression
from readers.log.header_rules import TIME_RULES, broken_rules
from readers.log.op_bodies import parse_op_bodies
from readers.log.properties import (
    CHECK_TIMES,
    IMMUNITY,
    PREPARED_QUEUE_OFFSET,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    UNIQ_KEY,
)
from readers.log.property_crcs import word_crc_findings
from readers.log.record_block import Block
from readers.model.columns import Bools, Int64s, integers
from readers.model.findings import Finding, as_text
from readers.model.releases import DELAYED_HALVES_DROPPED, TIMERS
from readers.queues.consume_queue import PRE_BLANK_LENGTH, Queue, open_queue
from readers.store.bundles import is_bundle
from readers.store.store import HALF_TOPIC, OP_TOPIC, Store
from verdicts.check.check_rules import CheckRules
from verdicts.check.slot_reads import LogPlaces, SlotRead, passed_slots, slot_reads
from verdicts.check.slots import (
    CheckedSlots,
    checked_slots,
    numbers_of_own,
    records_of,
    slots_without_record,
    unqueued,
)
from verdicts.check.state import CheckState, HalfCopy, Op, Undispatched
from verdicts.startup.started_queues import StartedQueue, started_queues

#: What 5.2.0 and later append to a record's properties where enabledAppendPropCRC=true, and its length in bytes.
_PROPERTY_CRC, _PROPERTY_CRC_BYTES = "__CRC32#", 20
#: renewImmunityHalfMessageInner writes the properties after setWaitStoreMsgOK(false), other put-backs before it.
_WAIT, _WAIT_VALUE = "WAIT", "false"
_DELAY_LEVEL = "DELAY"
_TIMERS = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
_OP_TAG = "d"
#: Records up to this length are kept for the next reader.
_KEPT_BYTES_MAX = 32 << 20
_UNCUT = StartedQueue(0)
#: The value of an absent property in a column.
ABSENT = np.iinfo(np.int64).min


@dataclass(slots=True)
class StoredHalves:
    """The half copies of a range of slots, by column.

    Shape: `rows`: for each slot from `begin` on, the row in the other columns, -1 if it cannot be read.
           An absent property is ABSENT. `are_diverted`: their copies go to a delay or timer topic first.
    """

    begin: int
    rows: Int64s
    numbers: dict[str, Int64s]
    words: pa.Table
    diverted_count: int
    are_diverted: Bools

    def copy_at(self, queue_offset: int) -> HalfCopy | None:
        """Return the copy in a slot; None if it cannot be read."""
        row = int(self.rows[queue_offset - self.begin])
        if row < 0:
            return None
        return HalfCopy(row, *(self._number(name, row) for name in HalfCopy._fields[1:]))  # type: ignore[arg-type]

    def _number(self, name: str, row: int) -> int | None:
        value = int(self.numbers[name][row])
        return None if value == ABSENT else value


@dataclass(slots=True)
class StoredOps:
    """The op messages of a range of slots from `begin` on; None if one cannot be read."""

    begin: int
    ops: list[Op | None]

    def op_at(self, queue_offset: int) -> Op | None:
        """Return the op in a slot; None if it cannot be read."""
        return self.ops[queue_offset - self.begin]


@dataclass(slots=True)
class CheckWindow:
    """What the check of one half queue will read: its entries from the cursors on.

    Shape: `words` has a row for each `HalfCopy.row`: transaction_id (the offset message id if there is no UNIQ_KEY),
           producer_group, real_topic, real_queue_id, commit_log_offset. `diverted_count`: halves whose copies go to a
           delay or timer topic first, and then to the half queue; this is not simulated. `slot_offsets`: the commit-log
           offsets in the half slots, whether or not their records can be read; `fillers`: the half slots that are
           fillers, or that lie behind fillers and are cut off by the next start. `cuts`: the queues that the next start
           cuts because of their own slots.
    """

    state: CheckState
    words: pa.Table
    diverted_count: int = 0
    slot_offsets: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    fillers: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    findings: list[Finding] = field(default_factory=list)
    cuts: tuple[Finding, ...] = ()

    @property
    def are_askable(self) -> Bools:
        """Whether each half copy names the producer group to ask, and the topic and queue of the message.

        The check puts back and counts the others too, but no producer is asked (seen on 4.4.0 and 4.5.0).
        """
        return are_askable(self.words)


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
        self._log_cut = log_cut

    def __reduce__(self) -> tuple[type[CheckWindows], tuple[Store, dict[str, str]]]:
        return CheckWindows, (self._store, self._conf)

    def read(self, rules: CheckRules, queue_id: int, half_cursor: int | None, op_cursor: int | None) -> CheckWindow:
        """Return a window; keep it until it is taken or another is read, unless the store is in use.

        Raises: as `check_window`.
        """
        records: list[Block] | None = [] if self._with_records and queue_id == 0 else None
        window = self._window(rules, queue_id, half_cursor, op_cursor, records)
        if records is not None:
            self._records = records
        if not self._store.in_use:
            self._kept = {(rules, queue_id, half_cursor, op_cursor): window}
        return window

    def take(self, rules: CheckRules, queue_id: int, half_cursor: int | None, op_cursor: int | None) -> CheckWindow:
        """Return the kept window, or a new one; none is kept after this. Raises: as `check_window`."""
        kept = self._kept.pop((rules, queue_id, half_cursor, op_cursor), None)
        return self._window(rules, queue_id, half_cursor, op_cursor) if kept is None else kept

    def _window(
        self, rules: CheckRules, queue_id: int, half_cursor: int | None, op_cursor: int | None,
        records: list[Block] | None = None,
    ) -> CheckWindow:
        return check_window(
            self._store, rules, queue_id, half_cursor, op_cursor, records, conf=self._conf, log_cut=self._log_cut
        )

    def take_records(self, offsets: Int64s) -> list[Block] | None:
        """Return the kept half copies, if they are those at commit-log offsets, else None; none are kept after this.

        Shape: blocks with the fillers of `rmqtx salvage`.
        """
        blocks, self._records = self._records, []
        known = [block.commit_log_offsets for block in blocks]
        return blocks if known and np.array_equal(np.concatenate(known), offsets) else None


def check_window(
    store: Store, rules: CheckRules, queue_id: int, half_cursor: int | None, op_cursor: int | None,
    records: list[Block] | None = None, *, conf: Mapping[str, str] | None = None, log_cut: int | None = None,
) -> CheckWindow:
    """Return the initial state of the check of one half queue, after the next start if its broker is stopped. A cursor
    of None begins at the queue's smallest offset.

    `records`: gets the half copies of the slots, if they are few. `conf`: the configuration of the broker, as far as it
    is known. `log_cut`: where the next start cuts off the log, if it does.

    Damage: a slot whose record cannot be read stays a slot, as for the broker, and is a finding: its transaction, or
            the effect of its op, is unknown.
    Raises: UnreadableFile, FileChanged.
    Source: TransactionalMessageBridge.fetchConsumeOffset; docs/formats/half_and_op.md#check-start.
    """
    findings: list[Finding] = []
    with open_queue(store, HALF_TOPIC, queue_id) as halves, open_queue(store, OP_TOPIC, queue_id) as ops:
        started = _started(store, rules, conf or {}, halves, ops, log_cut)
        half_begin, op_begin = _begin(store, halves, started), _begin(store, ops, started)
        half_cursor = half_begin if half_cursor is None else half_cursor
        op_cursor = op_begin if op_cursor is None else op_cursor
        half_slots = checked_slots(halves, half_cursor, half_begin, started.get(HALF_TOPIC))
        op_slots = checked_slots(ops, op_cursor, op_begin, started.get(OP_TOPIC))
        slots_by_topic = {HALF_TOPIC: half_slots, OP_TOPIC: op_slots}
        reads = {topic: _Records(topic, queue_id, slots) for topic, slots in slots_by_topic.items()}
        reads[HALF_TOPIC].kept = records if int(half_slots.lengths.sum()) <= _KEPT_BYTES_MAX else None
        stored_halves = halves_of_records(
            reads[HALF_TOPIC].read(store, findings), rules, half_slots.begin, half_slots.end
        )
        # Numbers below the half cursor never count; the cursor moves back only from after the queue's end.
        least = half_cursor if half_cursor <= half_slots.end else 0
        stored_ops = ops_of_records(
            reads[OP_TOPIC].read(store, findings), rules, op_slots.begin, op_slots.end, least
        )
        state = CheckState(
            queue_id, half_cursor, half_begin, half_slots.end, op_cursor, op_begin, op_slots.end,
            stored_halves, stored_ops,
            reads=_reads(store, halves, half_slots, reads[HALF_TOPIC].own_numbers, started.get(HALF_TOPIC)),
            op_reads=_reads(store, ops, op_slots, reads[OP_TOPIC].own_numbers, started.get(OP_TOPIC)),
            left_out=_left_out(halves, half_slots), undispatched=_undispatched(store, started.get(HALF_TOPIC)),
        )  # fmt: skip
        findings += [*halves.findings, *ops.findings]
        findings += [
            Finding(
                store.root, "slot-invalid", as_text(store.queue_directory(queue.topic, queue_id)),
                expected=f"nothing after slot {queue.max_offset - 1}", actual="invalid slots",
            )
            for queue in (halves, ops) if queue.has_bytes_after_end
        ]  # fmt: skip
        fillers = _fillers(halves, half_slots)
        for topic, slots in slots_by_topic.items():
            skipped = fillers if topic == HALF_TOPIC else np.empty(0, np.int64)
            finding = slots_without_record(store, topic, queue_id, slots, reads[topic].own_numbers, skipped)
            findings += [] if finding is None else [finding]
        if started.get(HALF_TOPIC, _UNCUT).lost != _UNCUT.lost:
            fillers = np.union1d(fillers, _lost_anyway(store, halves, half_cursor, started[HALF_TOPIC].lost))
    return CheckWindow(
        state, stored_halves.words, stored_halves.diverted_count, half_slots.offsets, fillers, findings,
        tuple(cut for one in started.values() for cut in one.cuts),
    )


def _started(
    store: Store, rules: CheckRules, conf: Mapping[str, str], halves: Queue, ops: Queue, log_cut: int | None
) -> Mapping[str, StartedQueue]:
    """Return the half and op queue as the check finds them, where that is not as they are stored."""
    found = started_queues(store, rules.version, conf, halves.queue_id, log_cut)
    if found is not None or not (store.aborted or store.in_use):
        return found or {}
    tails = unqueued(store, halves.queue_id, halves, ops)
    return {
        queue.topic: StartedQueue(
            queue.max_offset, tuple(tails[queue.topic]), queue.max_offset + len(tails[queue.topic])
        )
        for queue in (halves, ops)
    }


def _undispatched(store: Store, started: StartedQueue | None) -> Undispatched | None:
    """Return what keeps new half copies from a slot; None if nothing does, and in a bundle, whose log is a part."""
    if started is None or not started.hinders_new_slots or is_bundle(store):
        return None
    return Undispatched(started.log_end, started.maximum, started.compares_ends)


def _begin(store: Store, queue: Queue, started: Mapping[str, StartedQueue]) -> int:
    """Return the smallest offset of a queue for its broker.

    A broker that starts compares the places in slots with the begin of the log: if that is 0, also the place 0 in
    fillers is in the log (ConsumeQueue.java correctMinOffset).
    """
    made = started.get(queue.topic)
    if made is not None and made.begin is not None:
        return made.begin
    return queue.first_offset if not store.log_begin_offset and not store.in_use else queue.min_offset


def _reads(
    store: Store, queue: Queue, slots: CheckedSlots, own_numbers: list[Int64s], started: StartedQueue | None = None
) -> dict[int, SlotRead]:
    """Return what the store returns for slots without a record at their place. `own_numbers`: slots with a record.

    `started`: the queue after a start, whose slots may lead behind the end of the log.
    """
    read = np.concatenate([np.empty(0, np.int64), *own_numbers])
    log = LogPlaces.of(store, int((slots.offsets + slots.lengths)[np.isin(slots.numbers, read)].max(initial=0)))
    if started is not None and started.hinders_new_slots:
        log = log._replace(end=min(log.end, started.log_end))
    if not log.file_bytes:  # without a log the next start deletes the queues
        return {}
    if len(slots.numbers) == slots.end - slots.begin and log.are_readable(slots.offsets, slots.lengths).all():
        return {}
    offsets, stored_lengths = queue.places(slots.begin, slots.end)
    lengths: Int64s = stored_lengths.astype(np.int64)
    are_known = offsets >= 0
    rows = slots.numbers - slots.begin
    offsets[rows], lengths[rows], are_known[rows] = slots.offsets, slots.lengths, True
    return slot_reads(log, slots.begin, offsets, lengths, queue.file_ends, are_known)


def _left_out(queue: Queue, slots: CheckedSlots) -> frozenset[int]:
    if len(slots.numbers) == slots.end - slots.begin:
        return frozenset()
    return frozenset(queue.left_out(slots.begin, slots.end).tolist())


def _lost_anyway(store: Store, queue: Queue, cursor: int, lost: tuple[int, int]) -> Int64s:
    """Return the slots that the next start cuts off, and that the check would not read without it either."""
    stored = checked_slots(queue, cursor, queue.first_offset)
    passed = passed_slots(_reads(store, queue, stored, [stored.numbers]), stored.begin, stored.end)
    return passed[(passed >= lost[0]) & (passed < lost[1])]


def _fillers(queue: Queue, slots: CheckedSlots) -> Int64s:
    """Return the numbers of fillers among some slots."""
    if len(slots.numbers) == slots.end - slots.begin:
        return np.empty(0, np.int64)
    offsets, lengths = queue.places(slots.begin, slots.end)
    return slots.begin + np.flatnonzero((offsets == 0) & (lengths == PRE_BLANK_LENGTH))


@dataclass(slots=True)
class _Records:
    """The records of some slots of a queue; `own_numbers` are of slots whose record is of the queue.

    `kept`: gets the records.
    """

    topic: str
    queue_id: int
    slots: CheckedSlots
    own_numbers: list[Int64s] = field(default_factory=list)
    kept: list[Block] | None = None

    def read(self, store: Store, findings: list[Finding]) -> Iterator[tuple[Block, Int64s]]:
        """Return the records with their slot numbers; impossible values become findings."""
        for block, numbers in records_of(store, self.slots):
            self.own_numbers.append(numbers_of_own(block, numbers, self.topic, self.queue_id))
            findings += broken_rules(block, store.root, TIME_RULES)
            findings += word_crc_findings(block, store.root)
            if self.kept is not None:
                self.kept.append(block)
            yield block, numbers


def has_op_lists(store: Store) -> bool | None:
    """Whether the newest op is a list of numbers, as from 5.1.0 on; None if there is none."""
    with open_queue(store, OP_TOPIC, 0) as queue:
        newest = checked_slots(queue, queue.max_offset - 1, queue.min_offset)
        for block, _ in records_of(store, newest):
            return b"," in (block.bodies().cast(pa.binary())[-1].as_py() or b"")
    return None


def are_askable(copies: pa.Table) -> Bools:
    """Whether each half copy of a table names a producer group, a topic and a queue; `CheckWindow.are_askable`.

    Source: broker/transaction/AbstractTransactionalMessageCheckListener.java sendCheckMessage.
    """
    known = pc.and_(pc.is_valid(copies["producer_group"]), pc.is_valid(copies["real_topic"]))
    known = pc.and_(known, pc.is_valid(copies["real_queue_id"]))
    return np.asarray(known.combine_chunks() if isinstance(known, pa.ChunkedArray) else known).astype(np.bool_)


# --- halves ----------------------------------------------------------------------------------------------------------

_WORDS = pa.schema(
    [
        ("transaction_id", pa.string()),
        ("producer_group", pa.string()),
        ("real_topic", pa.string()),
        ("real_queue_id", pa.int32()),
        ("commit_log_offset", pa.int64()),
    ]
)


def halves_of_records(
    records: Iterable[tuple[Block, Int64s]], rules: CheckRules, begin: int, end: int
) -> StoredHalves:
    """Return the half copies of the slots from `begin` to before `end`. `records`: with their slot numbers."""
    rows = np.full(max(0, end - begin), -1, np.int64)
    columns: list[dict[str, Int64s]] = []
    words: list[pa.RecordBatch] = []
    diverted: list[Bools] = [np.zeros(0, np.bool_)]
    count = diverted_count = 0
    for block, numbers in records:
        are_diverted = _are_diverted(block, rules)
        diverted_count += int(are_diverted.sum())
        inflated = _inflated_lengths(block) if rules.inflates else block.body_lengths
        good = inflated >= 0
        block, numbers, inflated = block.take(good), numbers[good], inflated[good]
        diverted.append(are_diverted[good])
        rows[numbers - begin] = np.arange(count, count + len(block))
        count += len(block)
        columns.append(_numbers(block, rules, inflated))
        words.append(
            pa.record_batch(
                [
                    pc.coalesce(block.properties.text(UNIQ_KEY), block.message_ids()),
                    block.properties.text(PRODUCER_GROUP),
                    block.properties.text(REAL_TOPIC),
                    integers(block.properties.text(REAL_QUEUE_ID), pa.int32()), pa.array(block.commit_log_offsets),
                ],
                schema=_WORDS,
            )
        )  # fmt: skip
    names = HalfCopy._fields[1:]
    empty = np.zeros(0, np.int64)
    values = {name: np.concatenate([empty, *(part[name] for part in columns)]) for name in names}
    table = pa.Table.from_batches(words, _WORDS)
    return StoredHalves(begin, rows, values, table, diverted_count, np.concatenate(diverted))


def _are_diverted(block: Block, rules: CheckRules) -> Bools:
    """Halves that a put-back does not write to the half queue at once (docs/formats/half_and_op.md#delayed-half).

    From 4.6.1 on a delay level is removed from the property before; timers exist from 5.0.0 on.
    """
    delays = not DELAYED_HALVES_DROPPED.holds(rules.version)
    names = (_DELAY_LEVEL,) if delays else _TIMERS if TIMERS.holds(rules.version) else ()
    found = np.zeros(len(block), np.bool_)
    for name in names:
        found |= block.properties.locate(name)[2]
    return found


def _numbers(block: Block, rules: CheckRules, body_lengths: Int64s) -> dict[str, Int64s]:
    properties = properties_bytes(block, rules)
    return {
        "queue_offset": block.header("queue_offset"),
        "born_time_ms": block.header("born_time_ms"),
        "store_time_ms": block.header("store_time_ms"),
        "checks_count": _property_number(block, CHECK_TIMES),
        "immunity_seconds": _property_number(block, IMMUNITY),
        "prepared_queue_offset": _property_number(block, PREPARED_QUEUE_OFFSET),
        "fixed_bytes": block.lengths - block.properties_lengths + properties + body_lengths - block.body_lengths,
        "fixed_properties_bytes": properties,
        "immune_growth_bytes": _immune_growth_bytes(block),
        "spoils": ((block.sys_flag & compression.COMPRESSED) != 0).astype(np.int64) * rules.inflates,
        "is_spoiled": np.zeros(len(block), np.int64),
        "is_elsewhere": (~block.topic_is(HALF_TOPIC)).astype(np.int64),
    }


def _immune_growth_bytes(block: Block) -> Int64s:
    _, lengths, is_there = block.properties.locate(_WAIT)
    whole = len(_WAIT) + len(_WAIT_VALUE) + 2
    return np.where(is_there, len(_WAIT_VALUE) - lengths, whole).astype(np.int64)


def _property_number(block: Block, name: str) -> Int64s:
    """Return a property as the broker reads it: -1 if it is not a number."""
    is_there = block.properties.locate(name)[2]
    values = np.asarray(pc.fill_null(integers(block.properties.text(name), pa.int64()), -1))
    return np.where(is_there, values, ABSENT)


def properties_bytes(block: Block, rules: CheckRules) -> Int64s:
    """Return the length of each record's properties in a copy, without the two that the check changes.

    Units:  bytes.
    Source: MessageDecoder.string2messageProperties and messageProperties2String; docs/formats/record.md#properties.
    """
    maps = block.properties.maps()
    names, values = maps.keys, maps.items
    counts = np.diff(np.asarray(maps.offsets))
    owners = np.repeat(np.arange(len(block)), counts)
    codes = np.asarray(names.dictionary_encode().indices).astype(np.int64)
    pairs = owners * (int(codes.max(initial=0)) + 1) + codes
    last = len(pairs) - 1 - np.unique(pairs[::-1], return_index=True)[1]  # a name that occurs twice has its last value
    is_kept = np.zeros(len(pairs), np.bool_)
    is_kept[last] = True
    is_kept &= ~np.asarray(pc.is_in(names, pa.array([CHECK_TIMES, PREPARED_QUEUE_OFFSET, _PROPERTY_CRC])))
    sizes = np.asarray(pc.binary_length(names)).astype(np.int64) + np.asarray(pc.binary_length(values)) + 2
    total = np.bincount(owners, np.where(is_kept, sizes, 0), len(block)).astype(np.int64)
    total += np.where(block.properties.locate(_PROPERTY_CRC)[2], _PROPERTY_CRC_BYTES, 0)
    return total if rules.ends_properties else total - 1


def _inflated_lengths(block: Block) -> Int64s:
    """Return the lengths of the bodies as a consumer receives them; -1 for an incomplete stream."""
    lengths = block.body_lengths.copy()
    for row in np.flatnonzero(block.sys_flag & compression.COMPRESSED).tolist():
        start, length = int(block.body_starts[row]), int(block.body_lengths[row])
        body = compression.inflate(block.data[start : start + length].tobytes(), int(block.sys_flag[row]))
        lengths[row] = -1 if body is None else len(body)
    return lengths


# --- ops -------------------------------------------------------------------------------------------------------------


def ops_of_records(
    records: Iterable[tuple[Block, Int64s]], rules: CheckRules, begin: int, end: int, least: int
) -> StoredOps:
    """Return the op messages of the slots from `begin` to before `end`. `least`: the lowest half offset that counts."""
    ops: list[Op | None] = [None] * max(0, end - begin)
    for block, numbers in records:
        intact: Bools = np.ones(len(block), np.bool_)
        bodies = block.bodies().cast(pa.binary())
        lists, forms = parse_op_bodies(bodies, intact)
        tagged = np.asarray(pc.fill_null(pc.equal(block.properties.text(TAGS), _OP_TAG), False)).tolist()
        rows = zip(
            numbers.tolist(), block.header("queue_offset").tolist(), lists.to_pylist(), forms.to_pylist(), tagged,
            block.body_lengths.tolist(), block.header("born_time_ms").tolist(), block.lengths.tolist(),
            range(len(block)), strict=True,
        )  # fmt: skip
        for slot, queue_offset, listed, form, is_tagged, body_length, born_time_ms, length, row in rows:
            if listed is None:
                listed = _java_numbers(bodies[row].as_py() or b"", rules)
            elif form == "list" and not rules.reads_lists:
                listed = (-1,)  # this broker reads one number, and a comma is not part of one
            ops[slot - begin] = Op(
                queue_offset, tuple(number for number in listed if number >= least), is_tagged, body_length > 0,
                born_time_ms, length,
            )  # fmt: skip
    return StoredOps(begin, ops)


def _java_numbers(body: bytes, rules: CheckRules) -> tuple[int, ...]:
    """Return the numbers that the broker reads from a body: -1 for each part that is not a number."""
    text = body.decode("utf-8", "replace")
    parts = text.split(",") if rules.reads_lists else [text]
    return tuple(int(part) if re.fullmatch(r"[+-]?[0-9]{1,18}", part) else -1 for part in parts)
