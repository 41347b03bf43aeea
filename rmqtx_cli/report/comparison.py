"""An earlier audit beside the present one: counts of both, and their differences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rmqtx.verdicts.model.verdict_words import STATES, Strength
from rmqtx.verdicts.transactions.flags import FLAGS
from rmqtx_cli.pages.summary import Summary
from rmqtx_cli.report.document import Commands, Drawing, Head, Paragraph, Part, Section, Table, stored
from rmqtx_cli.report.drawings import timeline_drawing
from rmqtx_cli.report.number_sections import GROUPS_MAX
from rmqtx_cli.words.text import grouped

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx.verdicts.causes.diagnosing import Diagnosis
    from rmqtx_cli.report.gathering import Gathered
    from rmqtx_cli.report.one_pass import EventCounts


@dataclass(frozen=True, slots=True)
class Earlier:
    """What a report is compared with. Shape: `diagnosis`: None for a file of an audit, which has no causes of groups.

    `command`: lists the transactions that differ; None if the two cannot be compared by a command. `events`: None for
    the file of an audit.
    """

    name: str
    summary: Summary
    diagnosis: Diagnosis | None = None
    command: str | None = None
    events: EventCounts | None = None

    def section(self, found: Gathered) -> Section:
        """Return both sides, beside each other."""
        parts: list[Part] = [
            Paragraph(f"Before: {stored(self.name)}. Now: the source of this report."), self._states(found.summary)
        ]
        parts += list(self._flags(found.summary))
        parts += list(self._causes(found))
        parts += list(self._groups(found.summary))
        parts += list(self._timelines(found))
        if self.command is not None:
            parts.append(Commands([(self.command, "the transactions that appeared, vanished or changed")]))
        return Section("Compared with an earlier state", "compared", parts)

    def _states(self, now: Summary) -> Table:
        rows = [("all", self.summary.transactions_count, now.transactions_count)]
        rows += [(state, self.summary.states[state], now.states[state]) for state in STATES]
        rows.append(("half copies", self.summary.half_copies_count, now.half_copies_count))
        return _table("States before and now", "state", rows)

    def _flags(self, now: Summary) -> Iterator[Table]:
        rows = [(flag, self.summary.flags[flag], now.flags[flag]) for flag in FLAGS]
        if shown := [row for row in rows if row[1] or row[2]]:
            yield _table("Flags before and now", "flag", shown)

    def _causes(self, found: Gathered) -> Iterator[Table | Paragraph]:
        if self.diagnosis is None:
            yield Paragraph("Causes before are unknown: the file of an audit does not have the facts of its stores.",
                            is_small=True)
            return
        before, now = _explained(self.diagnosis), _explained(found.diagnosis)
        if words := sorted({*before, *now}):
            rows = [(word, before.get(word, 0), now.get(word, 0)) for word in words]
            yield _table("Transactions explained by a cause, before and now", "cause", rows)

    def _groups(self, now: Summary) -> Iterator[Table]:
        before_by, now_by = _pending_by_group(self.summary), _pending_by_group(now)
        names = sorted({*before_by, *now_by}, key=lambda name: (-now_by.get(name, 0), -before_by.get(name, 0), name))
        rows = [(name, before_by.get(name, 0), now_by.get(name, 0)) for name in names]
        if shown := [row for row in rows if row[1] or row[2]][:GROUPS_MAX]:
            yield _table("Pending by producer group, before and now", "group", shown)


    def _timelines(self, found: Gathered) -> Iterator[Drawing]:
        if self.events is None:
            return
        for word, events in (("Before", self.events), ("Now", found.events)):
            if (drawing := timeline_drawing(events)) is not None:
                yield replace(drawing, title=f"{word}: {drawing.title[:1].lower()}{drawing.title[1:]}")


def _table(caption: str, what: str, rows: Iterable[tuple[str, int, int]]) -> Table:
    heads = [Head(what), Head("before", True), Head("now", True), Head("change", True)]
    cells = [[name, grouped(before), grouped(now), f"{'+' if now > before else ''}{grouped(now - before)}"]
             for name, before, now in rows]
    return Table(caption, heads, cells)


def _explained(diagnosis: Diagnosis) -> dict[str, int]:
    """Transactions by cause, over all stores; only causes that explain them."""
    counts: dict[str, int] = {}
    for row in diagnosis.table().to_pylist():
        if row["strength"] == Strength.EXPLAINS:
            counts[row["cause"]] = counts.get(row["cause"], 0) + row["transactions_count"]
    return counts


def _pending_by_group(summary: Summary) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for row in summary.table().select(["producer_group", "pending_count"]).to_pylist():
        name = "unknown group" if row["producer_group"] is None else stored(row["producer_group"])
        counts[name] = counts.get(name, 0) + row["pending_count"]
    return counts


def counted(batches: Iterable[pa.RecordBatch]) -> Summary:
    """Return the counts of some transactions."""
    summary = Summary()
    for batch in batches:
        summary.add(batch)
    return summary
