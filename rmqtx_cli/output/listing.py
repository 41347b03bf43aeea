"""Writes a reading: chooses and sorts rows, chooses columns, writes them, prints notes, and returns the exit status.

Sort orders name columns that `--sort` names as tables or `--fields` do.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model import clock, exit_status
from rmqtx.readers.model.columns import rows_in_order
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.moments import is_time
from rmqtx.readers.model.reading import NoteKind, Reading
from rmqtx.verdicts.audit.provenance import Provenance, with_provenance
from rmqtx_cli.options.columns import ALSO_CALLED, chosen_columns
from rmqtx_cli.options.filters import Filter, parse_filter
from rmqtx_cli.options.options import OutputFormat, OutputOptions
from rmqtx_cli.output.derived_columns import Derived, derived_columns, part_of, with_derived
from rmqtx_cli.output.port import chosen_format, open_port, other_suffix
from rmqtx_cli.output.views import View, plain_view
from rmqtx_cli.words import progress
from rmqtx_cli.words.near import nearest_column
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count

if TYPE_CHECKING:
    from rmqtx_cli.output.port import StreamingPort

#: A duration until an event: the smallest first.
_UNTIL = "discard_in_ms"
_KEY = "sort key {}"
#: Rows of a table that are held until all are read, so that a line about all of them can be printed above.
_HELD_ROWS_MAX = 1_000
#: Lines of a terminal that an answer, the head and the next prompt need.
_ANSWER_LINES = 8
#: Rows that are held beyond a limit before they are sorted and cut to the limit.
_SORTED_ROWS_MAX = 100_000
_WITH_METADATA = (OutputFormat.PARQUET, OutputFormat.ARROW)


@dataclass(frozen=True, slots=True)
class SortOrder:
    """One column that rows are sorted by."""

    column: str
    is_descending: bool


def parse_orders(text: str, schema: pa.Schema, heads: Mapping[str, str]) -> list[SortOrder]:
    """The sort orders that `--sort` names. `schema`: with derived columns.

    Raises: BadRequest for an unknown column, or one that cannot be sorted by.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise BadRequest("--sort names no column", advice=f"there are: {', '.join(schema.names)}")
    return [_order(word, schema, heads) for word in words]


def names_of(text: str | None) -> list[str]:
    """The column names in a `--sort`, without their directions."""
    return [word.strip().removeprefix("-") for word in (text or "").split(",") if word.strip()]


def _order(word: str, schema: pa.Schema, heads: Mapping[str, str]) -> SortOrder:
    name = word.removeprefix("-")
    known = (name, f"{name}_ms", heads.get(name, ""), ALSO_CALLED.get(name, ""))
    column = next((one for one in known if one in schema.names), None)
    if column is None:
        raise BadRequest(f"--sort: no column {name!r}", advice=nearest_column(name, schema.names, heads))
    kind = schema.field(column).type
    is_words = pa.types.is_list(kind) and pa.types.is_string(kind.value_type)
    if pa.types.is_nested(kind) and not is_words:
        raise BadRequest(f"--sort: {name} is a list of records and cannot be sorted by", advice="name another column")
    return SortOrder(column, word.startswith("-") != _largest_first(column))


def _largest_first(column: str) -> bool:
    """Whether the largest value is listed first: ages, counts, sizes."""
    is_duration = column.endswith("_ms") and not is_time(column) and column != _UNTIL
    return is_duration or column.endswith(("_count", "_bytes"))


def ordered(rows: pa.Table, orders: Sequence[SortOrder]) -> pa.Table:
    """The rows, sorted; equal rows keep their order, null comes last."""
    keys = []
    for order in orders:
        values = rows[order.column]
        keys.append(pc.binary_join(values, ",") if pa.types.is_list(values.type) else values)
    names = [_KEY.format(number) for number in range(len(keys))]
    directions = ["descending" if order.is_descending else "ascending" for order in orders]
    found = pc.sort_indices(pa.table(keys, names), sort_keys=list(zip(names, directions, strict=True)))
    return rows.take(found)


def oldest_first(rows: pa.Table) -> pa.Table:
    """Transactions, oldest first; those of equal age by id, so that each run lists them in the same order."""
    return rows_in_order(rows, ["half_store_time_ms", "transaction_id"])


@dataclass(slots=True)
class Listing:
    """The rows of one table as a command lists them; options are parsed before anything is read.

    `asked`: columns, format and file, as typed.
    `meta`: the provenance of the rows, for formats that contain it; set before anything is written.
    `now_ms`: the time that ages refer to.
    `rows_count`: rows written; `found_count`: rows that fulfil the condition, complete if all rows are read.
    Raises: BadRequest for an unknown column, or an invalid condition or format.
    """

    schema: pa.Schema
    view: View
    asked: OutputOptions = field(default_factory=OutputOptions)
    where: str | None = None
    fail_on: str | None = None
    limit: int | None = None
    voice: Voice = field(default_factory=Voice)
    with_meta: bool = False
    meta: Provenance | None = None
    now_ms: int = field(default_factory=lambda: clock.now_ms())
    rows_count: int = 0
    found_count: int = 0
    has_failed: bool = False
    format: OutputFormat = field(init=False)
    columns: list[str] = field(init=False)
    _derived: dict[str, Derived] = field(init=False, default_factory=dict)
    _where: Filter | None = field(init=False, default=None)
    _fail_on: Filter | None = field(init=False, default=None)
    _orders: list[SortOrder] = field(init=False, default_factory=list)
    #: The last batch, and its rows that fulfil the condition: a proof asks for them before the listing does.
    _met: tuple[pa.RecordBatch, pa.RecordBatch] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.format = chosen_format(self.asked.output_format, self.asked.output)
        if (note := other_suffix(self.asked.output_format, self.asked.output)) is not None:
            self.voice.note(note)
        if self.with_meta and self.format not in (*_WITH_METADATA, OutputFormat.JSONL):
            raise BadRequest(f"--with-meta is not possible with {self.format}", advice="use jsonl, parquet or arrow")
        default = self.view.sources if self.format is OutputFormat.TABLE else list(self.schema.names)
        derived = derived_columns(self.schema)
        heads = self.view.heads
        self.columns = chosen_columns(self.asked.fields, self.schema, default, heads, derived)
        sortable = self.view.sortable
        if self.asked.fields is not None:
            self.view = plain_view(self.columns)
        self.view = replace(self.view, is_quiet=self.voice.quiet, is_wide=self.asked.form.wide)
        wider = pa.schema([*self.schema, *(one.field for one in derived.values())])
        self._where = parse_filter(self.where, wider, heads=heads) if self.where else None
        self._fail_on = parse_filter(self.fail_on, wider, "--fail-on", heads) if self.fail_on else None
        if (sort := self.asked.sort) is not None:
            self._orders = parse_orders(sort, wider, sortable)
        for name in self._named():
            made = derived.get(name) or (part_of(self.schema, name) if "." in name else None)
            if made is not None:
                self._derived[name] = made

    @property
    def needed(self) -> list[str]:
        """The columns that must be read: those listed, and those of conditions and orders."""
        return list(dict.fromkeys(map(self._source, self._named())))

    def _named(self) -> list[str]:
        """The columns that are listed, or that conditions and orders name, derived ones included."""
        conditions = [condition.columns for condition in (self._where, self._fail_on) if condition is not None]
        orders = [order.column for order in self._orders]
        return list(dict.fromkeys([*self.columns, *(name for names in conditions for name in sorted(names)), *orders]))

    @property
    def named_by_options(self) -> dict[str, list[str]]:
        """The columns of the table that --fields and conditions name, by option; of derived ones their source."""
        conditions = {"--where": self._where, "--fail-on": self._fail_on}
        named = {option: sorted(one.columns) for option, one in conditions.items() if one is not None}
        if self.asked.fields is not None:
            named["--fields"] = self.columns
        return {option: [self._source(name) for name in names] for option, names in named.items()}

    def _source(self, name: str) -> str:
        return self._derived[name].source if name in self._derived else name.partition(".")[0]

    def refuse_unread(self, unread: Mapping[str, str]) -> None:
        """Refuse a condition or an order on a column that is not read: all its values are null, so none would match.

        `unread`: by column, the options with which it is read.
        Raises: BadRequest.
        """
        named = self.named_by_options | {"--sort": [self._source(order.column) for order in self._orders]}
        for option in ("--where", "--fail-on", "--sort"):
            for name in named.get(option, ()):
                if name in unread:
                    raise BadRequest(f"{option}: {name} is not read by default", advice=f"add {unread[name]}")

    @property
    def carries_meta(self) -> bool:
        """Whether the output contains its provenance: Parquet and Arrow always, JSON lines with --with-meta."""
        return self.with_meta or self.format in _WITH_METADATA

    def write(
        self, batches: Iterator[pa.RecordBatch], *, to_the_end: bool = False, at_once: bool = False,
        are_chosen: bool = False, answer: Callable[[], Iterable[str]] | None = None,
    ) -> None:
        """Write the rows that fulfil the condition; with `are_chosen` these are all of them, from `fulfilling`.

        `to_the_end`: read all rows although the limit is reached, because the caller counts them. `at_once`: flush the
        rows of a batch before the next one is read; for formats that can be streamed. `answer`: lines about all rows,
        printed above a table that can be held and does not scroll it off the terminal, else below.
        """
        chosen = pa.schema([
            self._derived[name].field if name in self._derived else self.schema.field(name) for name in self.columns
        ])
        if self.meta is not None and self.carries_meta:
            chosen = with_provenance(chosen, self.meta)
        is_table = self.format is OutputFormat.TABLE
        with open_port(self.format, self.asked.output, chosen, self.view, self.asked.form) as port:
            rows = self._chosen(batches, to_the_end=to_the_end, are_chosen=are_chosen)
            held, is_all = _held(rows) if is_table and answer is not None else ([], False)
            is_all = is_all and _fits_terminal(held)
            if is_all and answer is not None:
                self._say(answer)
            counts = progress.of_rows(self.voice)
            for batch in chain(held, rows):
                if counts is not None:
                    counts.rows(self.rows_count)
                if batch.num_rows:
                    port.write(batch.select(self.columns))
                if at_once:
                    cast("StreamingPort", port).flush()
                del batch
        if counts is not None:
            counts.rows(self.rows_count, is_last=True)
        if not is_all and answer is not None:
            self._say(answer)
        if count := getattr(port, "formulas_count", 0):
            self.voice.note(
                f"{'1 cell begins' if count == 1 else f'{count} cells begin'} like formulas, which a spreadsheet runs; "
                "--csv-safe writes them as text"
            )

    def _say(self, answer: Callable[[], Iterable[str]]) -> None:
        progress.clear()
        for line in answer():
            self.voice.note(line)

    def _chosen(
        self, batches: Iterator[pa.RecordBatch], *, to_the_end: bool, are_chosen: bool
    ) -> Iterator[pa.RecordBatch]:
        """The rows that fulfil the condition, sorted, up to the limit; counts them."""
        for rows in self._in_order(self._filtered(batches, are_chosen=are_chosen)):
            if self.limit is not None:
                rows = rows.slice(0, self.limit - self.rows_count)
            if self._fail_on is not None and self._fail_on.apply(rows).num_rows:
                self.has_failed = True
            self.rows_count += rows.num_rows
            yield rows
            del rows
            if self.rows_count == self.limit and not to_the_end:
                return

    def _filtered(self, batches: Iterator[pa.RecordBatch], *, are_chosen: bool) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = self._wider(batch) if are_chosen else self._meeting(batch)
            self.found_count += rows.num_rows
            yield rows
            del batch, rows  # their memory is free while the next ones are made
            self._met = None

    def _wider(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return with_derived(batch, self._derived.values(), self.now_ms)

    def _meeting(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that fulfil the condition, with the columns that options name."""
        if self._met is not None and self._met[0] is batch:
            return self._met[1]
        rows = self._wider(batch)
        rows = rows if self._where is None else self._where.apply(rows)
        self._met = batch, rows
        return rows

    def _in_order(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same rows, sorted if --sort is given; then all rows, or those within the limit, are in memory."""
        if not self._orders:
            yield from batches
            return
        kept: list[pa.RecordBatch] = []
        kept_count = 0
        for batch in batches:
            kept.append(batch)
            kept_count += batch.num_rows
            if self.limit is not None and kept_count > self.limit + _SORTED_ROWS_MAX:
                first = ordered(pa.Table.from_batches(kept), self._orders).slice(0, self.limit)
                kept, kept_count = first.combine_chunks().to_batches() or [batch.slice(0, 0)], first.num_rows
        if kept:
            yield from ordered(pa.Table.from_batches(kept), self._orders).to_batches()

    def fulfilling(self, rows: pa.Table) -> pa.Table:
        """The rows of a whole table that fulfil the condition."""
        return pa.Table.from_batches(map(self.fulfilling_of, rows.to_batches()), rows.schema)

    def fulfilling_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that fulfil the condition, with the columns of the batch."""
        return batch if self._where is None else self._meeting(batch).select(batch.schema.names)

    def rows_lines(self, noun: str) -> list[str]:
        """The number of rows in one line, and whether reading stopped at the limit; no line above an empty table."""
        if not self.rows_count and self.format is OutputFormat.TABLE:
            return []
        stopped = f" (stopped at --limit {self.limit})" if self.rows_count == self.limit else ""
        return [f"{count(self.rows_count, noun)}{stopped}"]

    def say_limit(self, noun: str) -> None:
        """Print the number of rows written and found, if --limit cut them."""
        if self.rows_count < self.found_count:
            self.voice.note(f"{self.rows_count} of {count(self.found_count, noun)} listed (--limit)")

    def conclude(self, reading: Reading, *, has_undecidable: bool = False) -> int:
        """Print notes and findings; returns the exit status: see `concluded`."""
        return concluded(reading, self.voice, has_failed=self.has_failed, has_undecidable=has_undecidable)


def concluded(reading: Reading, voice: Voice, *, has_failed: bool = False, has_undecidable: bool = False) -> int:
    """Print notes and findings of a reading; returns the exit status.

    A finding with severity error, or an UNDECIDABLE transaction, shows that evidence is missing or damaged.
    """
    for note in dict.fromkeys(reading.notes):
        (voice.note if note.kind is NoteKind.WHY else voice.detail)(note.text)
    voice.findings(reading.findings)
    if has_undecidable or any(finding.is_error for finding in reading.findings):
        return exit_status.INCOMPLETE
    return exit_status.FINDINGS if has_failed else exit_status.DONE


def _fits_terminal(batches: list[pa.RecordBatch]) -> bool:
    """Whether a line above the rows stays visible; without a terminal always."""
    if not sys.stdout.isatty():
        return True
    rows_count: int = sum(batch.num_rows for batch in batches)
    return rows_count < shutil.get_terminal_size().lines - _ANSWER_LINES


def _held(batches: Iterator[pa.RecordBatch]) -> tuple[list[pa.RecordBatch], bool]:
    """The first rows, and whether these are all rows."""
    held: list[pa.RecordBatch] = []
    held_count = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
        held_count += batch.num_rows
        if held_count > _HELD_ROWS_MAX:
            return held, False
    return held, True
