"""The section of a report about the check: its cursors, its way through the half queue, and where it is stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqtx_cli.pages.headlines import check_sentence
from rmqtx_cli.report.document import Drawing, Head, Items, Paragraph, Part, Section, Table, stored
from rmqtx_cli.report.drawings import cursor_drawing, way_drawing

if TYPE_CHECKING:
    from rmqtx_cli.report.gathering import Gathered
    from rmqtx_cli.sources.check_queues import CheckQueue

#: Stores in lists and tables.
_STORES_MAX = 20
#: Stores whose check is drawn.
_STORES_DRAWN_MAX = 5
_WAY_NOTE = (
    "Grey is the end of the queue; the colour shows how far the check had read at least, in steps in which it put a "
    "copy back: a copy with n + 1 checks proves that one with n checks was read."
)


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
    ]  # fmt: skip
    heads = [Head("store"), Head("queue"), Head("first slot", True), Head("cursor", True), Head("end", True),
             Head("ahead", True)]  # fmt: skip
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
