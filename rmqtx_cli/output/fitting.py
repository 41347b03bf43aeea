"""Which columns of a table fit into a terminal, and how wide each is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rmqtx_cli.output.views import ALWAYS, Column
from rmqtx_cli.words.text import width

GAP_CELLS = 2
#: The minimum of characters shown of the end of an id; ids of brokers and clients end with time and counter, or with
#: the record's offset.
_END_LENGTH = 12
#: Values without information if each row has them.
_NOTHING = ("", "0", "no")


@dataclass(frozen=True, slots=True)
class Fitted:
    """How a table fits: the columns that stay, the cells that each may have (None: any number), and the numbers of
    those columns whose values' ends of `end_length` characters stand for them.
    """

    kept: list[int]
    limits: list[int | None]
    short: frozenset[int] = frozenset()
    end_length: int = _END_LENGTH


def fitted(columns: Sequence[Column], cells: Sequence[Sequence[str]], room: int) -> Fitted:
    """The columns with the lowest ranks, as many as fit.

    `cells`: the first rows, from which the widths are taken.
    """
    widths = [max(width(column.heading), *(width(line[n]) for line in cells)) for n, column in enumerate(columns)]
    empty = {number for number in range(len(columns)) if all(line[number] in _NOTHING for line in cells)}
    ends = {n: _end_length([line[n] for line in cells]) for n, column in enumerate(columns) if column.short_heading}
    kept, short = list(range(len(columns))), set[int]()
    while _least_total(widths, columns, kept) > room:
        # Columns without information are left out first.
        loose = [(n in empty, columns[n].rank, n, False) for n in kept if columns[n].rank != ALWAYS]
        loose += [
            (False, columns[n].whole_rank, n, True) for n, end in ends.items() if n not in short and end < widths[n]
        ]
        if not loose:
            break
        _, _, number, is_shortened = max(loose)
        if is_shortened:
            short.add(number)
            widths[number] = max(ends[number], width(columns[number].short_heading or ""))
        else:
            kept.remove(number)
            ends.pop(number, None)
    return Fitted(kept, _limits(widths, columns, kept, room), frozenset(short), max(ends.values(), default=_END_LENGTH))


def _end_length(values: Sequence[str]) -> int:
    """The number of characters at the end of the values that distinguish them."""
    distinct = len(set(values))
    longest = max(map(len, values), default=0)
    length = _END_LENGTH
    while length < longest and len({value[-length:] for value in values}) < distinct:
        length += 4
    return min(length, longest)


def _least(widths: Sequence[int], columns: Sequence[Column], number: int) -> int:
    column = columns[number]
    if not column.may_be_cut:
        return widths[number]
    return min(widths[number], max(column.least_cells, width(column.heading)))


def _least_total(widths: Sequence[int], columns: Sequence[Column], kept: Sequence[int]) -> int:
    """Cells of the table if each column is cut to its minimum."""
    return GAP_CELLS * (len(kept) - 1) + sum(_least(widths, columns, number) for number in kept)


def _limits(widths: Sequence[int], columns: Sequence[Column], kept: Sequence[int], room: int) -> list[int | None]:
    """Cells for each kept column: the widest columns are cut first."""
    limits = {number: widths[number] for number in kept}
    least = {number: _least(widths, columns, number) for number in kept if columns[number].may_be_cut}
    excess = sum(limits.values()) + GAP_CELLS * (len(kept) - 1) - room
    while excess > 0:
        candidates = [number for number in least if limits[number] > least[number]]
        if not candidates:
            break
        limits[max(candidates, key=lambda number: limits[number])] -= 1
        excess -= 1
    return [limits[number] if columns[number].may_be_cut else None for number in kept]
