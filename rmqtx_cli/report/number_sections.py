"""The sections of a report that show numbers: states, timeline, ages, latencies, and cursors and stops of the check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rmqtx.verdicts.model.verdict_words import STATES, State
from rmqtx.verdicts.transactions.flags import FLAGS
from rmqtx_cli.pages.headlines import check_sentence
from rmqtx_cli.report.document import Cell, Drawing, Head, Items, Paragraph, Part, Section, Table, stored
from rmqtx_cli.report.drawings import (
    ages_drawing,
    cursor_drawing,
    latency_lane,
    latency_scale,
    share_lane,
    timeline_drawing,
    way_drawing,
)
from rmqtx_cli.report.one_pass import CLASSES
from rmqtx_cli.words.of_old_stores import flag_text, have_only_prepared
from rmqtx_cli.words.text import grouped
from rmqtx_cli.words.times import duration_text, time_text

if TYPE_CHECKING:
    from rmqtx_cli.report.gathering import Gathered
    from rmqtx_cli.sources.check_queues import CheckQueue

#: Rows of a table by producer group.
GROUPS_MAX = 20
_NO_GROUP = "unknown group"
_STATE_KINDS: dict[str, str] = {
    State.PENDING: "pending", State.COMMITTED: "commit", State.ROLLED_BACK: "rollback", State.DISCARDED: "discard",
    State.LOST: "discard", State.UNDECIDABLE: "op",
}
#: The durations of the latency table: name in SUMMARY and head.
_DURATIONS = {"half_to_decision": "decided", "decision_to_op": "op after COMMIT", "born_to_half": "stored"}
#: Stores in lists and tables.
_STORES_MAX = 20
#: Stores whose check is drawn.
_STORES_DRAWN_MAX = 5
_WAY_NOTE = (
    "Grey is the end of the queue; the colour shows how far the check had read at least, in steps in which it put a "
    "copy back: a copy with n + 1 checks proves that one with n checks was read."
)


def states_section(found: Gathered) -> Section:
    """Return the transactions by state, by flag, and by producer group and topic."""
    summary = found.summary
    rows: list[list[Cell]] = [
        [state, grouped(summary.states[state]), _share(summary.states[state] / summary.transactions_count),
         share_lane(summary.states[state], summary.transactions_count, _STATE_KINDS[state]), meaning]
        for state, meaning in STATES.items() if summary.states[state]
    ]
    heads = [Head("state"), Head("transactions", True), Head("share", True), Head("part of all"), Head("meaning")]
    parts: list[Part] = [Table("Transactions by state", heads, rows, is_prose=True)] if rows else []
    parts += [] if rows else [Paragraph("No transaction found.")]
    is_prepared = have_only_prepared(found.facts.names)
    if flagged := [[flag, grouped(summary.flags[flag]), stored(summary.examples[flag]),
                    flag_text(flag, meaning, is_prepared=is_prepared)]
                   for flag, meaning in FLAGS.items() if summary.flags[flag]]:
        heads = [Head("flag"), Head("transactions", True), Head("example"), Head("meaning")]
        parts.append(Table("Flags: what is unusual", heads, flagged, is_prose=True))
    if rows:
        parts.append(_groups_table(found))
    return Section("Numbers by state", "states", parts)


def group_rows(found: Gathered) -> tuple[list[dict[str, Any]], int]:
    """Return the first rows of SUMMARY, and how many were left out.

    Order: most that are pending, lost or unknown first, then most transactions.
    """

    def urgency(row: Mapping[str, Any]) -> tuple[int, int]:
        return -(row["pending_count"] + row["lost_count"] + row["undecidable_count"]), -row["transactions_count"]

    rows = sorted(found.summary.table().to_pylist(), key=urgency)
    return rows[:GROUPS_MAX], max(0, len(rows) - GROUPS_MAX)


def _groups_table(found: Gathered) -> Table:
    states = [state for state in STATES if found.summary.states[state]]
    rows, left = group_rows(found)
    heads = [Head("group"), Head("topic"), Head("all", True), *(Head(state.lower(), True) for state in states),
             Head("flagged", True), Head("half copies", True)]
    cells = [
        [_group(row), stored(row["topic"]), grouped(row["transactions_count"]),
         *(grouped(row[f"{state.lower()}_count"]) for state in states), grouped(row["flagged_count"]),
         grouped(row["half_copies_count"])]
        for row in rows
    ]
    return Table("Transactions by producer group and topic", heads, cells, _left_out(left, "group and topic"))


def _group(row: Mapping[str, Any]) -> str:
    return _NO_GROUP if row["producer_group"] is None else stored(row["producer_group"])


def _left_out(number: int, what: str) -> str:
    return f"{number} more rows ({what}) are not shown: rmqtx audit --summary lists all." if number else ""


def timeline_section(found: Gathered) -> Section:
    """Return halves, decisions, checks and discards by time."""
    drawing = timeline_drawing(found.events)
    if drawing is None:
        return Section("Timeline", "timeline", [Paragraph("No event with a time.")])
    parts: list[Part] = [drawing]
    if number := found.events.steps.impossible_count:
        parts.append(Paragraph(f"{number} events have an impossible time and are not drawn.", is_small=True))
    return Section("Timeline", "timeline", parts)


def ages_section(found: Gathered) -> Section:
    """Return the ages of pending transactions by producer group."""
    groups = sorted(found.ages.groups.items(), key=lambda item: (-item[1].pending_count, str(item[0])))
    if not groups:
        return Section("Age of the pending", "ages", [Paragraph("Nothing is pending.")])
    shown = {_NO_GROUP if name is None else stored(name): one for name, one in groups[:GROUPS_MAX]}
    reference = "Ages are those now."
    if found.ages.reference_ms:
        reference = "Ages are those at the time when the broker stopped, for stores of stopped brokers; else now."
    parts: list[Part] = [Paragraph(reference)]
    drawing = ages_drawing(shown)
    parts += [] if drawing is None else [drawing]
    used = [place for place in range(len(CLASSES)) if any(one.counts[place] for one in shown.values())]
    rows = [
        [name, grouped(one.pending_count), duration_text(one.oldest_age_ms) or "unknown",
         _time(one.first_sent_ms), *(grouped(int(one.counts[place])) for place in used)]
        for name, one in shown.items()
    ]
    heads = [Head("group"), Head("pending", True), Head("oldest", True), Head("oldest sent", True),
             *(Head(list(CLASSES.values())[place], True) for place in used)]
    left = max(0, len(groups) - GROUPS_MAX)
    parts.append(Table("Pending transactions by producer group and age", heads, rows, _left_out(left, "group")))
    return Section("Age of the pending", "ages", parts)


def _time(time_ms: int | None) -> str:
    return "unknown" if time_ms is None else time_text(time_ms)


def latency_section(found: Gathered) -> Section:
    """Return how long decisions took, by producer group and topic."""
    rows, left = group_rows(found)
    known = [row for row in rows if row["half_to_decision_median_ms"] is not None]
    if not known:
        return Section("Latency of decisions", "latency", [Paragraph("No decision with a known duration.")])
    scale = latency_scale(known)
    cells: list[list[Cell]] = [
        [_group(row), stored(row["topic"]), latency_lane(row, scale),
         *(_three(row, name) for name in _DURATIONS), _share(row["checked_commits_share"])]
        for row in known
    ]
    heads = [
        Head("group"), Head("topic"), Head("decided, logarithmic"),
        *(Head(f"{text}: 50 / 95 / 100 % within", True) for text in _DURATIONS.values()), Head("by a check", True),
    ]
    note = f"The drawing reaches from {duration_text(round(scale.low))} to {duration_text(round(scale.high))}."
    note = f"{note} {_left_out(left, 'group and topic')}".strip()
    table = Table("Times between events", heads, cells, note, is_prose=True)
    return Section("Latency of decisions", "latency", [table])


def _three(row: Mapping[str, Any], name: str) -> str:
    values = [row[f"{name}_{part}_ms"] for part in ("median", "95th", "worst")]
    return "unknown" if values[0] is None else " / ".join(duration_text(value) for value in values)


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%}"


def check_section(found: Gathered) -> Section:
    """Return where the cursors of the check stand, and where the check is stopped."""
    facts = found.facts
    parts: list[Part] = []
    stops = [check_sentence(stop, found.summary.never_asked_counts(stop.store)) for stop in facts.stops[:_STORES_MAX]]
    if stops:
        parts.append(Items(stops))
    for name in facts.names[:_STORES_DRAWN_MAX]:
        mine = [queue for queue in facts.queues if queue.store in (name, name.removeprefix("rocketmq://"))]
        if (drawing := cursor_drawing(stored(name), mine)) is not None:
            parts.append(drawing)
        for way in filter(None, (_way(found, queue) for queue in mine)):
            parts += [way, Paragraph(_WAY_NOTE, is_small=True)]
    rows = [
        [stored(one.store), one.kind, *(_known(value) for value in
         (one.begin_offset, one.next_offset, one.end_offset, one.ahead_count))]
        for one in facts.queues[: 2 * _STORES_MAX]
    ]
    heads = [Head("store"), Head("queue"), Head("first slot", True), Head("cursor", True), Head("end", True),
             Head("ahead", True)]
    if rows:
        parts.append(Table("Queues of the check, in queue offsets", heads, rows, is_prose=True))
    else:
        parts.append(Paragraph("No half queue and no op queue in files: no cursor shows how far the check is."))
    if facts.store_notes:
        parts.append(Items(facts.store_notes[:_STORES_MAX]))
    return Section("The cursors of the check", "cursors", parts)


def _way(found: Gathered, queue: CheckQueue) -> Drawing | None:
    way = found.ways.by_store.get(queue.store)
    return None if way is None or queue.kind != "half" else way_drawing(way, queue)


def _known(value: int | None) -> str:
    return "unknown" if value is None else str(value)
