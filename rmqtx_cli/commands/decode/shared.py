"""What the decoding commands have in common: their options, bounds, and the way from readings to rows."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from readers.model.errors import BadRequest
from rmqtx_cli.options.bounds import Bounds
from rmqtx_cli.options.grouped_options import with_grouped_options
from rmqtx_cli.options.options import (
    FieldsOption,
    FindingsOption,
    FormatOption,
    LimitOption,
    OutputFormat,
    OutputOption,
    QuietOption,
    VerboseOption,
    WhereOption,
)
from rmqtx_cli.output.accounting import accounting
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.views import ALWAYS, VIEWS, View, plain
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import parse_offset_or_time
from rmqtx_cli.words.unknown_names import NamesSeen, say_unknown_name

if TYPE_CHECKING:
    import pyarrow as pa

    from readers.model.reading import Reading
    from readers.store.store import Store

FromOption = Annotated[
    str | None,
    typer.Option("--from", metavar="OFFSET|TIME", help="First offset, or ISO 8601 time with a zone (@ms for epoch)."),
]
ToOption = Annotated[
    str | None, typer.Option("--to", metavar="OFFSET|TIME", help="Offset or time to end before.")
]
FromOffsetOption = Annotated[
    int | None, typer.Option("--from", min=0, metavar="OFFSET", help="First queue offset.")
]
ToOffsetOption = Annotated[
    int | None, typer.Option("--to", min=0, metavar="OFFSET", help="Queue offset to end before.")
]
QueueOption = Annotated[int | None, typer.Option("--queue", min=0, metavar="N", help="Only this queue number.")]
CoverageOption = Annotated[
    bool,
    typer.Option(
        "--coverage", help="Account for each file's bytes instead: decoded + filler + damaged + unread = size."
    ),
]


def parse_bounds(begin: str | None, end: str | None, voice: Voice) -> Bounds:
    """The range that `--from` and `--to` name.

    Raises: BadRequest.
    """
    first = (None, None) if begin is None else parse_offset_or_time("--from", begin, voice)
    last = (None, None) if end is None else parse_offset_or_time("--to", end, voice)
    return Bounds(first[0], last[0], first[1], last[1])


def equals(column: str, value: str | None) -> str | None:
    """An option's value as a condition on a column."""
    if value is None:
        return None
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{column} = "{quoted}"'


_NOTHING: Mapping[str, tuple[str, str | None]] = {}


@dataclass(frozen=True, slots=True)
class Asked:
    """The options that every decoding command has."""

    stores: Sequence[str]
    commit_logs: list[str] | None
    where: str | None
    fields: str | None
    limit: int | None
    format: OutputFormat | None
    output: Path | None
    coverage: bool
    findings: bool
    voice: Voice


@dataclass(frozen=True, slots=True)
class RowsOptions:
    """What a command line says of the rows that are listed. Order of the fields: that of the help text."""

    where: str | None = None
    limit: int | None = None
    coverage: bool = False
    findings: bool = False
    fields: str | None = None
    output_format: OutputFormat | None = None
    output: Path | None = None
    verbose: bool = False
    quiet: bool = False

    def of(self, stores: Sequence[str]) -> Asked:
        """The same about some stores."""
        return Asked(
            stores, None, self.where, self.fields, self.limit, self.output_format, self.output, self.coverage,
            self.findings, Voice(self.verbose, self.quiet),
        )


_ROWS_OPTIONS: dict[str, Any] = {
    "where": WhereOption, "limit": LimitOption, "coverage": CoverageOption, "findings": FindingsOption,
    "fields": FieldsOption, "output_format": FormatOption, "output": OutputOption, "verbose": VerboseOption,
    "quiet": QuietOption,
}  # fmt: skip


def with_rows_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command with the options of its rows after its own, which it is given together as its argument `rows`."""
    return with_grouped_options(command, "rows", _ROWS_OPTIONS, lambda values: RowsOptions(**values))


def with_uncovered_rows_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same without `--coverage`, for what is no file of units."""
    options = {name: option for name, option in _ROWS_OPTIONS.items() if name != "coverage"}
    return with_grouped_options(command, "rows", options, lambda values: RowsOptions(**values))


def list_rows(
    asked: Asked,
    table: str,
    read: Callable[[Store, list[str]], Reading],
    *,
    conditions: tuple[str | None, ...] = (),
    named: Mapping[str, tuple[str, str | None]] = _NOTHING,
    topic: str | None = None,
    adapt: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
    schema: pa.Schema | None = None,
    extra: list[str] | None = None,
    given: list[Reading] | None = None,
) -> int:
    """List a table of each store, or with `--coverage` or `--findings` what became of the bytes; gives the status.

    `read`: a store and the columns needed → its reading. `conditions`: what other options ask, as `--where` would;
    `named` the same by option: a column and the name that stands there. `topic`: of `--topic`, where `read` chooses.
    `adapt`: changes each batch into one of `schema`. `extra`: columns that a table shows beside its usual ones.
    `given`: readings of something else than stores, which are listed instead.
    """
    from readers.model.reading import Reading
    from readers.model.tables import ALL_TABLES
    from rmqtx_cli.sources.opening import consistency, open_stores, refuse_inside

    if asked.coverage and asked.findings:
        raise BadRequest("--coverage and --findings are two listings: ask for one")
    instead = "coverage" if asked.coverage else "findings" if asked.findings else None
    chosen = [equals(column, name) for column, name in named.values()]
    where = " and ".join(f"({text})" for text in (asked.where, *conditions, *chosen) if text)
    if instead and (where or asked.limit is not None):
        raise BadRequest(f"--{instead} is about whole files: it goes with neither --where, --limit nor a filter")
    rows_schema = schema or ALL_TABLES[table]
    view = VIEWS[instead or table]
    if extra and not instead:
        view = View((*view.columns, *(plain(name, ALWAYS, may_be_cut=True) for name in extra)))
    listing = Listing(
        ALL_TABLES[instead] if instead else rows_schema, view, asked.format, asked.output,
        asked.fields, where or None, None, asked.limit, asked.voice,
    )
    columns = ["store"] if instead else listing.needed
    if given is None:
        stores = open_stores(asked.stores, asked.commit_logs).stores
        refuse_inside(asked.output, stores)
        for store in stores:
            asked.voice.note(f"{store.root}: {consistency(store)}")
        readings = [read(store, columns) for store in stores]
    else:
        readings = given
    whole = Reading(rows_schema, ())
    if instead:
        for _ in _batches(whole, readings, None):
            pass
        listing.write(iter(_instead(whole, instead).to_batches()))
    else:
        batches, seen = _batches(whole, readings, adapt), NamesSeen(named)
        listing.write(_seen_by(seen, batches))
        batches.close()  # at a limit the rest stays unread, and what is known so far is said
        if not listing.found_count:
            seen.say("no row has it", asked.voice)
            topics = [] if given is not None else [name for store in stores for name in store.topics()]
            say_unknown_name("--topic", topic, topics, "no queue here is of this topic", asked.voice)
    _account(whole, listing, asked.voice)
    return listing.conclude(whole)


def _seen_by(seen: NamesSeen, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        seen.add(batch)
        yield batch


def _batches(
    whole: Reading, readings: list[Reading], adapt: Callable[[pa.RecordBatch], pa.RecordBatch] | None
) -> Generator[pa.RecordBatch, None, None]:
    """The batches of one reading after the other; what was said about each is added to `whole`."""
    for reading in readings:
        try:
            for batch in reading:
                yield batch if adapt is None else adapt(batch)
        finally:
            if isinstance(reading.batches, Generator):
                reading.batches.close()  # at a limit a database would stay open until the program ends
            whole.findings.extend(reading.findings)
            whole.coverage.extend(reading.coverage)
            whole.notes.extend(reading.notes)


def _instead(reading: Reading, what: str) -> pa.Table:
    from readers.model.findings import findings_table

    return reading.coverage_table() if what == "coverage" else findings_table(reading.findings)


def _account(reading: Reading, listing: Listing, voice: Voice) -> None:
    amounts = accounting(reading)
    if amounts is not None:
        voice.note(f"{count(listing.rows_count, 'row')}; {amounts}")
