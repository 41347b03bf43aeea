"""What a report counts in one pass over the transactions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools, Int64s, int64s
from rmqtx.verdicts.model.verdict_words import State
from rmqtx.verdicts.model.witnesses import are_replicas

#: Lengths of a step; each is a multiple of the one before.
STEPS_MS = (
    1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 600_000, 1_800_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000,
    6_048_000_000, 60_480_000_000,
)
STEPS_MAX = 96
#: RocketMQ did not exist before (2010-01-01).
_FIRST_MS = 1_262_304_000_000
_DAY_MS = 86_400_000
#: Kind of an event → its meaning, in the order of the drawing.
EVENTS: dict[str, str] = {
    "halves": "half messages stored: the first half copy of each transaction",
    "decisions": "transactions decided: COMMIT, or the record of a rollback",
    "checks": "half copies that the check put back",
    "discards": "discard copies written",
}
_S, _M, _H, _D = 1_000, 60_000, 3_600_000, 86_400_000
#: The lower bound of each class of ages, and its name.
CLASSES: dict[int, str] = {
    0: "under 10 s", 10 * _S: "10 s to 1 m", _M: "1 to 10 m", 10 * _M: "10 m to 1 h", _H: "1 to 6 h",
    6 * _H: "6 h to 1 d", _D: "1 to 3 d", 3 * _D: "3 to 30 d", 30 * _D: "30 d and more",
}
_BOUNDS = np.array(list(CLASSES), np.int64)
#: Series of a way. Units: queue offsets, exclusive.
END, CHECKED = range(2)


@dataclass(slots=True)
class TimeSteps:
    """Series of numbers ≥ 0 by step of time. Shape: `combine` makes one number of those of a step: add, or maximum.

    `impossible_count`: numbers with a time before RocketMQ existed, or more than a day after `now_ms`: in no step.
    """

    now_ms: int
    series_count: int
    combine: np.ufunc
    impossible_count: int = 0
    _level: int = 0
    _steps: dict[int, Int64s] = field(default_factory=dict)

    @property
    def step_ms(self) -> int:
        """The length of a step."""
        return STEPS_MS[self._level]

    def add(self, series: int, times: Int64s, values: Int64s) -> None:
        """Add the numbers of some times to a series."""
        is_usable = (times >= _FIRST_MS) & (times <= self.now_ms + _DAY_MS)
        self.impossible_count += len(times) - int(is_usable.sum())
        steps, places = np.unique(times[is_usable] // self.step_ms, return_inverse=True)
        found = np.zeros(len(steps), np.int64)
        self.combine.at(found, places, values[is_usable])
        for step, value in zip(steps.tolist(), found.tolist(), strict=True):
            row = self._steps.setdefault(step, np.zeros(self.series_count, np.int64))
            row[series] = self.combine(row[series], value)
        self._lengthen()

    def _lengthen(self) -> None:
        """Use the shortest steps of which STEPS_MAX reach from the first time to the last."""
        while self._steps and max(self._steps) - min(self._steps) >= STEPS_MAX and self._level + 1 < len(STEPS_MS):
            ratio = STEPS_MS[self._level + 1] // self.step_ms
            merged: dict[int, Int64s] = {}
            for step, values in self._steps.items():
                row = merged.setdefault(step // ratio, np.zeros(self.series_count, np.int64))
                self.combine(row, values, out=row)
            self._level, self._steps = self._level + 1, merged

    def of(self, series: int) -> list[tuple[int, int]]:
        """Return the begin of each step in which a series is not 0, and its number. Order: time."""
        found = ((step * self.step_ms, int(values[series])) for step, values in sorted(self._steps.items()))
        return [(begin_ms, value) for begin_ms, value in found if value]

    @property
    def range_ms(self) -> tuple[int, int] | None:
        """The begin of the first step and the end of the last; None without numbers."""
        if not self._steps:
            return None
        return min(self._steps) * self.step_ms, (max(self._steps) + 1) * self.step_ms


def put_back(batch: pa.RecordBatch) -> Bools:
    """Return which of all half copies, one after the other, the check put back: not the first of a transaction."""
    copies = batch["half_copies"]
    owners = int64s(pc.list_parent_indices(copies))
    is_later: Bools = np.zeros(len(owners), np.bool_)
    is_later[1:] = owners[1:] == owners[:-1]
    found: Bools = is_later & (int64s(pc.struct_field(pc.list_flatten(copies), "checks_count"), 0) > 0)
    return found


@dataclass(slots=True)
class EventCounts:
    """The events seen so far. Shape: `totals`: all events of a kind, those with an impossible time too."""

    now_ms: int
    totals: dict[str, int] = field(default_factory=lambda: dict.fromkeys(EVENTS, 0))
    steps: TimeSteps = field(init=False)

    def __post_init__(self) -> None:
        self.steps = TimeSteps(self.now_ms, len(EVENTS), np.add)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the events of some transactions."""
        for series, (kind, times) in enumerate(zip(EVENTS, _times(batch), strict=True)):
            self.totals[kind] += len(times)
            self.steps.add(series, times, np.ones(len(times), np.int64))


def _times(batch: pa.RecordBatch) -> list[Int64s]:
    """The times of the events of each kind, in the order of EVENTS."""
    copies = pc.list_flatten(batch["half_copies"])
    is_put_back = put_back(batch) & ~are_replicas(batch["half_copies"])
    is_decided = pc.not_equal(batch["state"], State.DISCARDED)  # that time of a discarded one is the discard's
    is_first_discard = ~are_replicas(batch["discard_copies"])
    return [
        int64s(batch["half_store_time_ms"].drop_null()),
        int64s(batch["decided_time_ms"].filter(is_decided).drop_null()),
        int64s(pc.struct_field(copies, "store_time_ms"))[is_put_back],
        int64s(pc.struct_field(pc.list_flatten(batch["discard_copies"]), "store_time_ms"))[is_first_discard],
    ]


@dataclass(slots=True)
class GroupAges:
    """The pending transactions of a producer group. Shape: `counts`: by class of age. Unknown ages are in no class."""

    pending_count: int = 0
    first_sent_ms: int | None = None
    oldest_age_ms: int | None = None
    counts: Int64s = field(default_factory=lambda: np.zeros(len(CLASSES), np.int64))


@dataclass(slots=True)
class PendingAges:
    """The pending transactions seen so far.

    Shape: `reference_ms`: by store, the time at which ages are taken: when its broker stopped, or now.
    """

    now_ms: int
    reference_ms: Mapping[str, int]
    groups: dict[str | None, GroupAges] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the pending transactions of a batch."""
        rows = batch.filter(pc.equal(batch["state"], State.PENDING))
        if not rows.num_rows:
            return
        stores = rows["store"].dictionary_encode()
        references = np.array([self.reference_ms.get(name, self.now_ms) for name in stores.dictionary.to_pylist()])
        groups = rows["producer_group"].dictionary_encode("encode")
        sent_ms, known = int64s(rows["half_store_time_ms"]), np.asarray(rows["half_store_time_ms"].is_valid())
        ages = np.maximum(references[int64s(stores.indices)] - sent_ms, 0)
        for number, name in enumerate(groups.dictionary.to_pylist()):
            mine = int64s(groups.indices) == number
            self._add_group(name, int(mine.sum()), sent_ms[mine & known], ages[mine & known])

    def _add_group(self, name: str | None, count: int, sent_ms: Int64s, ages: Int64s) -> None:
        found = self.groups.setdefault(name, GroupAges())
        found.pending_count += count
        if not len(ages):
            return
        found.counts += np.bincount(np.searchsorted(_BOUNDS, ages, "right") - 1, minlength=len(CLASSES))
        found.first_sent_ms = min(int(sent_ms.min()), found.first_sent_ms or int(sent_ms.min()))
        found.oldest_age_ms = max(int(ages.max()), found.oldest_age_ms or 0)


@dataclass(slots=True)
class CheckWays:
    """By store, the end of queue 0 of the half topic, and how far the check had read at least, by time."""

    now_ms: int
    by_store: dict[str, TimeSteps] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Consider the half copies of some transactions."""
        copies = pc.list_flatten(batch["half_copies"])
        times, offsets, queues = (
            int64s(pc.struct_field(copies, name)) for name in ("store_time_ms", "queue_offset", "queue_id")
        )
        stores = pc.struct_field(copies, "store").dictionary_encode("encode")
        numbers = int64s(stores.indices)
        is_first_queue = (queues == 0) & (offsets >= 0)
        is_checked, read = _read_before(batch, numbers)
        is_checked &= is_first_queue & (offsets[read] >= 0) & (offsets[read] < offsets)
        for number, name in enumerate(stores.dictionary.to_pylist()):
            if name is None:
                continue
            way = self.by_store.setdefault(name, TimeSteps(self.now_ms, 2, np.maximum))
            is_here = numbers == number
            for series, chosen, values in ((END, is_first_queue, offsets), (CHECKED, is_checked, offsets[read])):
                way.add(series, times[chosen & is_here], values[chosen & is_here] + 1)


def _read_before(batch: pa.RecordBatch, stores: Int64s) -> tuple[Bools, Int64s]:
    """Return which copies were put back, and for each the place of the first copy with one check less."""
    copies = batch["half_copies"]
    checks = int64s(pc.struct_field(pc.list_flatten(copies), "checks_count"), 0)
    if not len(checks):
        return np.zeros(0, np.bool_), np.zeros(0, np.int64)
    keys = int64s(pc.list_parent_indices(copies)) * (int(checks.max()) + 2) + checks
    firsts, places = np.unique(keys, return_index=True)
    found = np.searchsorted(firsts, keys - 1)
    read: Int64s = places[np.minimum(found, len(places) - 1)]
    is_put_back: Bools = put_back(batch) & (keys[read] == keys - 1) & (stores[read] == stores)
    return is_put_back, read
