"""The live screen as rich renderables: from the model and the size of the terminal. Text of stores is escaped."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from rich.console import Group, RenderableType
from rich.text import Text

from rmqtx.verdicts.model.verdict_words import State
from rmqtx_cli.monitoring.numbers import PENDING
from rmqtx_cli.watching.model import Change, GroupRow, Model, Pending, Snapshot, first_discarded
from rmqtx_cli.words.text import count, cut, escaped, grouped, width, wrapped
from rmqtx_cli.words.times import duration_text

_CHANGE_STYLES: dict[str, str] = {
    State.LOST: "bold red", State.DISCARDED: "red", State.COMMITTED: "green", State.ROLLED_BACK: "green",
    State.PENDING: "yellow",
}
#: The changes have at least one of this many rows below the head, and what the table leaves free.
_CHANGES_SHARE = 3
_SOON_MS = 300_000
#: Of the second part of a line of a timeline: where facts begin in `rmqtx show`.
_INDENT = " " * 8


@dataclass(slots=True)
class View:
    """Where the reader is: a table of groups, the transactions of one, or the timeline of one of these.

    Shape: `group`: group and topic; `lines`: of a timeline. `selected` and `top` count rows.
    """

    group: tuple[str, str] | None = None
    identity: str | None = None
    lines: Sequence[str] = ()
    selected: int = 0
    top: int = 0
    typing: str | None = None
    notice: str = ""
    before: list[int] = field(default_factory=list)


def screen(model: Model, view: View, columns: int, rows: int, title: str, now_ms: int) -> RenderableType:
    """Return the whole screen, of exactly this size."""
    head = [_line(text, columns, style) for text, style in _head(model, title, columns, now_ms)]
    left = max(1, rows - len(head) - 1)
    if view.identity is not None:
        lines = [part for line in view.lines for part in _wrapped(line, columns)]
        view.top = max(0, min(view.top, len(lines) - left))
        body = [_line(line, columns) for line in lines[view.top : view.top + left]]
    else:
        changes = list(_collapsed(model.changes))[::-1]
        kept = 2 + min(len(changes), left // _CHANGES_SHARE) if changes else 0
        body = _table(model, view, columns, left - kept, now_ms)
        if changes:
            body += [_line("", columns), _line("newest changes", columns, "bold")]
            body += [_change_line(ones, columns) for ones in changes[: left - len(body)]]
    body += _filled(body, left, columns)
    return Group(*[*head, *body][: rows - 1], _line(_foot(model, view), columns, "reverse"))


def _wrapped(line: str, columns: int) -> Iterator[str]:
    """Return a line of a timeline in parts that fit; those after the first are indented as its facts are."""
    first, *rest = wrapped(escaped(line), columns)
    yield first
    if rest:
        yield from (f"{_INDENT}{part}" for part in wrapped(" ".join(rest).strip(), max(1, columns - len(_INDENT))))


def _filled(lines: Sequence[Text], height: int, columns: int) -> list[Text]:
    return [_line("", columns) for _ in range(height - len(lines))]


def _line(text: str, columns: int, style: str = "") -> Text:
    return Text(cut(escaped(text), columns), style=style, no_wrap=True, overflow="crop", end="\n")


def _head(model: Model, title: str, columns: int, now_ms: int) -> Iterator[tuple[str, str]]:
    last = model.last
    if last is None:
        yield f"{_clock(now_ms)} UTC, rmqtx watch {title}", "bold"
        yield model.failure or "reading ...", "red" if model.failure else ""
        return
    age = duration_text(max(0, now_ms - last.time_ms))
    when = f"{_clock(now_ms)} UTC, read {age} ago in {last.duration_ms} ms: "
    yield when + cut(title, max(1, columns - len(when)), keeps_end=True), "bold"
    yield _pending_text(last, now_ms), "red" if any(one.check_stopped for one in last.numbers.stores) else ""
    yield _rates_text(model, last), ""
    causes = [f"{word} {how.replace('_', ' ')} {grouped(number)}"
              for _, word, how, number in last.numbers.causes_in_order({PENDING})[:2]]
    if model.failure:
        yield f"reading failed: {model.failure}", "bold red"
    elif last.numbers.evidence_missing:
        codes = ", ".join(last.numbers.evidence_missing)
        yield f"evidence is missing or damaged, numbers are lower bounds: {codes}", "red"
    else:
        yield f"causes: {'; '.join(causes)}" if causes else "", ""


def _pending_text(last: Snapshot, now_ms: int) -> str:
    numbers = last.numbers
    parts = [f"{grouped(numbers.pending_count)} pending"]
    oldest = min((one.stored_time_ms for one in last.pending.values()), default=None)
    if oldest is not None:
        parts.append(f"oldest {duration_text(max(0, now_ms - oldest))}")
    first = first_discarded(last.pending.values())
    if first is not None and first.starts_ms is not None and first.discard_at_ms is not None:
        left = duration_text(max(0, first.discard_at_ms - first.starts_ms))
        parts.append(f"first discard {left} after the broker starts")
    elif first is not None:
        parts.append(f"first discard {_until(first, now_ms)}")
    if stopped := [one for one in numbers.stores if one.check_stopped]:
        parts.append(f"THE CHECK IS STOPPED at {count(len(stopped), 'broker')}")
    if held := [one for one in numbers.stores if one.held]:
        over = sum(one.is_hold_over for one in held)
        parts.append(f"held: {count(len(held), 'broker')}" + (f", {over} overdue: rmqtx release" if over else ""))
    return ", ".join(parts)


def _rates_text(model: Model, last: Snapshot) -> str:
    rates = model.rates()

    def rate(value: float | None) -> str:
        return "?" if value is None else f"{value:.1f}/s"

    stores = last.numbers.stores
    half = _lag((one.half_next_offset, one.half_max_offset) for one in stores)
    op = _lag((one.op_next_offset, one.op_max_offset) for one in stores)
    return (
        f"new {rate(rates.halves)}, settled {rate(rates.settled)}, checks {rate(rates.checks)}, "
        f"discards {rate(rates.discards)}; lag: half {half}, op {op}"
    )


def _lag(cursors: Iterable[tuple[int | None, int | None]]) -> str:
    """Return the messages between cursors and ends of queues; a question mark if one is unknown."""
    total = 0
    for at, end in cursors:
        if at is None or end is None:
            return "?"
        total += max(0, end - at)
    return grouped(total)


def _table(model: Model, view: View, columns: int, rows: int, now_ms: int) -> list[Text]:
    head: tuple[str, ...]
    numbers: tuple[int, ...]
    if view.group is None:
        head, numbers = ("group", "topic", "pending", "oldest", "discard", "checks"), (9, 8, 12, 7)
        cells = [_group_cells(row, now_ms) for row in model.groups()]
    else:
        head, numbers = ("transaction_id", "age", "discard", "checks"), (8, 12, 7)
        cells = [_transaction_cells(one, now_ms) for one in model.transactions(*view.group)]
    height = max(1, rows - 1)
    view.selected = max(0, min(view.selected, len(cells) - 1))
    view.top = max(0, min(view.top, view.selected), view.selected - height + 1)
    names = max(20, columns - sum(numbers) - len(numbers))
    widths = (names * 2 // 5, names - names * 2 // 5 - 1) if view.group is None else (names,)
    lines = [_cells_line(head, widths, numbers, columns, "bold underline")]
    for place, one in enumerate(cells[view.top : view.top + height], view.top):
        lines.append(_cells_line(one, widths, numbers, columns, "reverse" if place == view.selected else ""))
    if not cells and model.last is not None:
        wanted = f" that contains {model.filter}" if model.filter else ""
        lines.append(_line(f"nothing is pending{wanted}", columns))
    return lines


def _cells_line(
    cells: Sequence[str], widths: Sequence[int], numbers: Sequence[int], columns: int, style: str
) -> Text:
    texts = [_left(text, cells_wide) for text, cells_wide in zip(cells[: len(widths)], widths, strict=True)]
    texts += [f"{text:>{cells_wide}}" for text, cells_wide in zip(cells[len(widths) :], numbers, strict=True)]
    return _line(" ".join(texts), columns, style)


def _left(text: str, cells: int) -> str:
    shown = cut(escaped(text), cells, keeps_end=True)  # ids of one producer differ at their ends
    return shown + " " * max(0, cells - width(shown))


def _group_cells(row: GroupRow, now_ms: int) -> tuple[str, ...]:
    return (
        row.group, row.topic, grouped(row.count), duration_text(max(0, now_ms - row.oldest_time_ms)),
        _until(row.first, now_ms), str(row.checks_count),
    )


def _transaction_cells(one: Pending, now_ms: int) -> tuple[str, ...]:
    discard = "never" if one.is_never_asked else _until(one, now_ms)
    age = duration_text(max(0, now_ms - one.stored_time_ms))
    return one.transaction_id, age, discard, str(one.checks_count)


def _until(one: Pending | None, now_ms: int) -> str:
    """Return when a transaction is discarded; of a stopped broker, how long after its start."""
    if one is None or one.discard_at_ms is None:
        return "-"
    if one.starts_ms is not None:
        return f"start+{duration_text(max(0, one.discard_at_ms - one.starts_ms))}"
    left = one.discard_at_ms - now_ms
    return "now" if left <= 0 else f"in {duration_text(left)}" + ("!" if left <= _SOON_MS else "")


def change_text(one: Change) -> str:
    """Return a change as one line."""
    was = one.one
    who = f"group {was.group}, topic {was.topic}, stored {_clock(was.stored_time_ms)}, checks {was.checks_count}"
    return f"{_clock(one.time_ms)} {one.what:<11} {escaped(was.transaction_id)}  {escaped(who)}"


def _collapsed(changes: Iterable[Change]) -> Iterator[list[Change]]:
    """Return the changes, the checks that one reading found together: they are many, and hide the others."""
    for (_, what), found in groupby(changes, key=lambda one: (one.time_ms, one.what)):
        ones = list(found)
        yield from [ones] if what == "CHECKED" else ([one] for one in ones)


def _change_line(ones: Sequence[Change], columns: int) -> Text:
    one = ones[-1]
    if len(ones) > 1:
        many = f"{count(len(ones), 'transaction')}, up to {max(one.one.checks_count for one in ones)} times"
        return _line(f"{_clock(one.time_ms)} {one.what:<11} {many}", columns)
    was = one.one
    identity = cut(escaped(was.transaction_id), 20, keeps_end=True)
    text = f"{_clock(one.time_ms)} {one.what:<11} {identity}  {escaped(was.group)}  {escaped(was.topic)}"
    return _line(text, columns, _CHANGE_STYLES.get(one.what, ""))


def _foot(model: Model, view: View) -> str:
    if view.typing is not None:
        return f" filter: {escaped(view.typing)}_   Return: keep   Esc: cancel"
    if view.notice:
        return f" {view.notice}"
    kept = f"   filter: {escaped(model.filter)}" if model.filter else ""
    if view.identity is not None:
        return " q quit   Esc back   Up/Down scroll   t triage"
    back = "   Esc back" if view.group is not None else ""
    return f" q quit   s sort: {model.sort}   / filter   Return open   t triage{back}{kept}"


def _clock(time_ms: int) -> str:
    return datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC).strftime("%H:%M:%S")

