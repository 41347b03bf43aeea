"""The drawings of a report, as marks on declared scales."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmqtx_cli.report.document import Drawing, Lane, Mark
from rmqtx_cli.report.one_pass import CHECKED, CLASSES, END, EVENTS, EventCounts, GroupAges, TimeSteps
from rmqtx_cli.words.text import grouped
from rmqtx_cli.words.times import duration_text, time_text

if TYPE_CHECKING:
    from rmqtx_cli.sources.check_queues import CheckQueue

WIDTH = 1_000.0


@dataclass(frozen=True, slots=True)
class LinearScale:
    """Equal distances for equal differences; values outside are drawn at the ends."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Return the place of a value."""
        span = self.high - self.low
        return WIDTH / 2 if span <= 0 else WIDTH * min(1.0, max(0.0, (value - self.low) / span))

    def values(self, count: int) -> list[float]:
        """Return values at equal distances, the first at the begin and the last at the end."""
        return [self.low + (self.high - self.low) * number / (count - 1) for number in range(count)]


@dataclass(frozen=True, slots=True)
class LogScale:
    """Equal distances for equal ratios, from `low` > 0; values outside are drawn at the ends."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Return the place of a value."""
        return LinearScale(math.log(self.low), math.log(max(self.high, self.low))).at(math.log(max(value, self.low)))

    def values(self, count: int) -> list[float]:
        """Return values at equal distances, the first at the begin and the last at the end."""
        return [self.low * (max(self.high, self.low) / self.low) ** (number / (count - 1)) for number in range(count)]


#: The lanes of a transaction: the column of TRANSACTIONS, the kind of its marks, and its label.
_RECORD_LANES = {
    "half_copies": ("half", "half copies"), "op_marks": ("op", "op marks"), "final_records": ("commit", "COMMIT"),
    "discard_copies": ("discard", "discards"),
}
_EVENT_KINDS = {"halves": "half", "decisions": "commit", "checks": "check", "discards": "discard"}
#: Marks of one lane of a transaction; of more, only the first are drawn.
MARKS_MAX = 60
#: The smallest height of a mark that stands for something.
_HEIGHT_MIN = 0.06
#: The smallest width of a bar in a table, where 1000 are 160 CSS pixels: narrower ones are not drawn.
_WIDTH_MIN = 8
_LATENCY_LOW_MS = 1.0


def timeline_drawing(events: EventCounts) -> Drawing | None:
    """Return the events by time; None without events."""
    steps = events.steps
    bounds = steps.range_ms
    if bounds is None:
        return None
    scale = LinearScale(*bounds)
    width = scale.at(bounds[0] + steps.step_ms)
    step = duration_text(steps.step_ms)
    lanes = []
    for series, kind in enumerate(EVENTS):
        found = steps.of(series)
        most = max((number for _, number in found), default=0)
        marks = [
            Mark(scale.at(begin), width, max(number / most, _HEIGHT_MIN), _EVENT_KINDS[kind],
                 f"{time_text(begin)}: {number} {kind}")
            for begin, number in found
        ]
        note = f", at most {grouped(most)} in {step}" if most else ""
        lanes.append(Lane(kind, f"{grouped(events.totals[kind])}{note}", marks))
    totals = "; ".join(f"{kind}: {number}" for kind, number in events.totals.items())
    return Drawing(
        f"Events from {time_text(bounds[0])} to {time_text(bounds[1])}",
        f"In steps of {step}; each lane has a height of its own. {totals}.", lanes, _time_ticks(scale),
    )


def _time_ticks(scale: LinearScale) -> list[str]:
    """Return the begin, the middle and the end; without the date if all are on one day."""
    texts = [time_text(round(value)) for value in scale.values(3)]
    is_one_day = len({text[:10] for text in texts}) == 1
    return [text[11:19] if is_one_day else text[:16].replace("T", " ") for text in texts]


def way_drawing(way: TimeSteps, queue: CheckQueue) -> Drawing | None:
    """Return how the end of a half queue, and the check, moved; None if no copy shows where the check was."""
    bounds, ends, checked = way.range_ms, dict(way.of(END)), dict(way.of(CHECKED))
    if bounds is None or not checked:
        return None
    times, slots = LinearScale(*bounds), LinearScale(queue.begin_offset or 0, max(ends.values()))
    width = times.at(bounds[0] + way.step_ms)
    marks, end, place = [], 0, 0
    for begin in range(*bounds, way.step_ms):
        end, is_shown = max(end, ends.get(begin, 0)), begin in checked
        place = checked.get(begin, place)
        text = f"{time_text(begin)}: end {end}, read {place or 'unknown'}"
        marks.append(Mark(times.at(begin), width, slots.at(end) / WIDTH, "span", "" if is_shown else text))
        if is_shown:
            marks.append(Mark(times.at(begin), width, max(slots.at(place) / WIDTH, _HEIGHT_MIN), "check", text))
    return Drawing(
        f"The way of the check from {time_text(bounds[0])} to {time_text(bounds[1])}",
        f"The end of the half queue, {end} at last, and how far the check had read at least, {place} at last.",
        [Lane("half queue", f"end {end}, read {place}", marks)], _time_ticks(times), lane_px=112,
    )


def cursor_drawing(store: str, queues: Sequence[CheckQueue]) -> Drawing | None:
    """Return where the cursors of the check stand in the queues of a store; None if no queue has known bounds."""
    lanes = []
    for queue in queues:
        if queue.begin_offset is None or queue.end_offset is None:
            continue
        scale = LinearScale(queue.begin_offset, max(queue.end_offset, queue.begin_offset + 1))
        marks = [Mark(0, scale.at(queue.end_offset), 0.3, "span", f"{queue.begin_offset} to {queue.end_offset}")]
        note = f"{queue.begin_offset} to {queue.end_offset}, cursor unknown"
        if queue.next_offset is not None:
            marks.append(Mark(scale.at(queue.next_offset), 0, 1, "cursor", f"cursor {queue.next_offset}"))
            note = f"cursor {queue.next_offset}, {queue.ahead_count} ahead"
        lanes.append(Lane(f"{queue.kind} queue", note, marks))
    if not lanes:
        return None
    texts = "; ".join(f"{lane.label}: {lane.note}" for lane in lanes)
    return Drawing(f"Check cursors of {store}", f"From the first slot of each queue to its end. {texts}.", lanes,
                   ["first slot", "end of the queue"])


def ages_drawing(groups: Mapping[str, GroupAges]) -> Drawing | None:
    """Return the ages of the pending transactions of some groups; None without known ages."""
    known = {name: one for name, one in groups.items() if one.counts.any()}
    if not known:
        return None
    width = WIDTH / len(CLASSES)
    lanes = []
    for name, one in known.items():
        most = int(one.counts.max())
        marks = [
            Mark(place * width, width, max(number / most, _HEIGHT_MIN), "pending", f"{text}: {number}")
            for place, (text, number) in enumerate(zip(CLASSES.values(), one.counts.tolist(), strict=True)) if number
        ]
        lanes.append(Lane(name, f"{grouped(one.pending_count)} pending", marks))
    texts = list(CLASSES.values())
    return Drawing(
        "Ages of pending transactions by producer group", f"Classes of ages from {texts[0]} to {texts[-1]}; each group "
        "has a height of its own.", lanes, [texts[0], texts[len(texts) // 2], texts[-1]],
    )


def latency_scale(rows: Sequence[Mapping[str, Any]]) -> LogScale:
    """Return the scale for the times from half message to decision in several rows of SUMMARY."""
    longest = max((row["half_to_decision_worst_ms"] or 0 for row in rows), default=0)
    return LogScale(_LATENCY_LOW_MS, max(longest, 10))


def latency_lane(row: Mapping[str, Any], scale: LogScale) -> Lane | str:
    """Return median, 95th and worst of the time from half message to decision as marks; empty text if unknown."""
    median, most, worst = (row[f"half_to_decision_{part}_ms"] for part in ("median", "95th", "worst"))
    if median is None:
        return ""
    begin = scale.at(median)
    text = f"half within {duration_text(median)}, 95 % within {duration_text(most)}, all within {duration_text(worst)}"
    marks = [
        Mark(begin, max(scale.at(worst) - begin, _WIDTH_MIN), 0.25, "span", ""),
        Mark(begin, max(scale.at(most) - begin, _WIDTH_MIN), 0.6, "half", ""),
        Mark(begin, 0, 1, "median", text),
    ]
    return Lane("latency", text, marks)


def share_lane(number: int, total: int, kind: str) -> Lane:
    """Return a bar for a part of a total."""
    share = f"{number / total:.1%}" if total else "0%"
    return Lane("share", share, [Mark(0, max(WIDTH * number / total, _WIDTH_MIN), 0.7, kind)] if number else [])


def copies_drawing(row: Mapping[str, Any]) -> Drawing | None:
    """Return the records of a transaction along the commit log; None without records."""
    found = {column: row[column][:MARKS_MAX] for column in _RECORD_LANES}
    offsets = [one["commit_log_offset"] for records in found.values() for one in records]
    if not offsets:
        return None
    scale = LinearScale(min(offsets), max(offsets))
    lanes = []
    for column, (kind, label) in _RECORD_LANES.items():
        marks = [_record_mark(one, kind, scale) for one in found[column]]
        total = len(row[column])
        checks = sum(_is_put_back(one, kind) for one in row[column])
        note = f"{total}" + (f", {checks} put back by the check" if checks else "")
        note += "" if total == len(marks) else f", the first {len(marks)} drawn"
        lanes.append(Lane(label, note, marks))
    texts = "; ".join(f"{lane.label}: {lane.note}" for lane in lanes)
    return Drawing("Records along the commit log",
                   f"From log offset {min(offsets)} to {max(offsets)}. {texts}.", lanes,
                   [f"log offset {offset}" for offset in sorted({min(offsets), max(offsets)})])


def _record_mark(record: Mapping[str, Any], kind: str, scale: LinearScale) -> Mark:
    """Return the tick of a record; a half copy that the check put back is drawn as a check."""
    is_check, offset = _is_put_back(record, kind), record["commit_log_offset"]
    check = f"check {record['checks_count']}, " if is_check else ""
    return Mark(scale.at(offset), 0, 0.8, "check" if is_check else kind, f"{check}log offset {offset}")


def _is_put_back(record: Mapping[str, Any], kind: str) -> bool:
    return kind == "half" and (record["checks_count"] or 0) > 0
