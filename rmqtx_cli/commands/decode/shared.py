"""What the decoding commands have in common: their options, bounds, and the way from readings to rows."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from readers.model.errors import BadRequest
from rmqtx_cli.options.bounds import Bounds
from rmqtx_cli.options.options import FindingsOption, LimitOption, OutputOptions, StoreOptions, WhereOption
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


def equals(column: str, value: str | None) -> str | None:
    """An option's value as a condition on a column."""
    if value is None:
        return None
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{column} = "{quoted}"'


_NOTHING: Mapping[str, tuple[str, str | None]] = {}


@dataclass(frozen=True, slots=True)
class RangeOptions:
    """From where to where is read, as offsets of the log or as times."""

    begin: FromOption = None
    end: ToOption = None

    def bounds(self, voice: Voice) -> Bounds:
        """The range that is named.

        Raises: BadRequest.
        """
        first = (None, None) if self.begin is None else parse_offset_or_time("--from", self.begin, voice)
        last = (None, None) if self.end is None else parse_offset_or_time("--to", self.end, voice)
        return Bounds(first[0], last[0], first[1], last[1])


@dataclass(frozen=True, slots=True)
class Asked:
    """The rows that are listed, and of which stores."""

    stores: Sequence[str]
    voice: Voice
    where: str | None
    limit: int | None
    coverage: bool
    findings: bool
    output: OutputOptions
    files: StoreOptions = field(default_factory=StoreOptions)


@dataclass(frozen=True, slots=True)
class RowsOptions:
    """What a command line says of the rows that are listed."""

    where: WhereOption = None
    limit: LimitOption = None
    coverage: CoverageOption = False
    findings: FindingsOption = False
    output: OutputOptions = field(default_factory=OutputOptions)

    def of(self, stores: Sequence[str], voice: Voice, commit_log: list[str] | None = None) -> Asked:
        """The same about some stores."""
        return Asked(
            stores, voice, self.where, self.limit, self.coverage, self.findings, self.output, StoreOptions(commit_log)
        )


@dataclass(frozen=True, slots=True)
class UncoveredRowsOptions:
    """The same without `--coverage`, for what is no file of units."""

    where: WhereOption = None
    limit: LimitOption = None
    findings: FindingsOption = False
    output: OutputOptions = field(default_factory=OutputOptions)

    def of(self, stores: Sequence[str], voice: Voice) -> Asked:
        """The same about some stores."""
        return Asked(stores, voice, self.where, self.limit, coverage=False, findings=self.findings, output=self.output)


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
) -> int:
    """List a table of each store, or with `--coverage` or `--findings` what became of the bytes; gives the status.

    `read`: a store and the columns needed → its reading. `conditions`: what other options ask, as `--where` would;
    `named` the same by option: a column and the name that stands there. `topic`: of `--topic`, where `read` chooses.
    `adapt`: changes each batch into one of `schema`. `extra`: columns that a table shows beside its usual ones.
    """
    from rmqtx_cli.sources.opening import open_stores, refuse_inside, say_consistency

    rows = _rows_of(asked, table, conditions, named, schema, extra)
    stores = open_stores(asked.stores, asked.files).stores
    refuse_inside(asked.output.output, stores)
    say_consistency(stores, asked.voice)
    readings = [read(store, rows.columns) for store in stores]
    return rows.listed(readings, adapt, topic, [name for store in stores for name in store.topics()] if topic else ())


def list_readings(
    asked: Asked, table: str, given: Callable[[], list[Reading]], *,
    named: Mapping[str, tuple[str, str | None]] = _NOTHING,
) -> int:
    """List readings of one table, made once it is clear how they are listed; else see `list_rows`."""
    rows = _rows_of(asked, table, (), named, None, None)
    return rows.listed(given(), None, None, ())


def _rows_of(
    asked: Asked, table: str, conditions: tuple[str | None, ...], named: Mapping[str, tuple[str, str | None]],
    schema: pa.Schema | None, extra: list[str] | None,
) -> _Rows:
    """How rows are listed.

    Raises: BadRequest.
    """
    from readers.model.tables import ALL_TABLES

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
        ALL_TABLES[instead] if instead else rows_schema, view, asked.output, where or None, None, asked.limit,
        asked.voice,
    )
    return _Rows(listing, rows_schema, instead, named)


@dataclass(frozen=True, slots=True)
class _Rows:
    """How rows of `schema` are listed. `instead`: coverage or findings, where that is listed instead of them."""

    listing: Listing
    schema: pa.Schema
    instead: str | None
    named: Mapping[str, tuple[str, str | None]]

    @property
    def columns(self) -> list[str]:
        """What must be read."""
        return ["store"] if self.instead else self.listing.needed

    def listed(
        self, readings: list[Reading], adapt: Callable[[pa.RecordBatch], pa.RecordBatch] | None, topic: str | None,
        topics: Sequence[str],
    ) -> int:
        """List what the readings hold; gives the status. `topics`: of the stores, where `topic` is one."""
        from readers.model.reading import Reading

        listing, voice = self.listing, self.listing.voice
        whole = Reading(self.schema, ())
        if self.instead:
            for reading in readings:
                reading.complete_findings()
                whole.add_account_of(reading)
            listing.write(iter(_instead(whole, self.instead).to_batches()))
        else:
            batches, seen = _batches(whole, readings, adapt), NamesSeen(self.named)
            listing.write(_seen_by(seen, batches))
            batches.close()  # at a limit the rest stays unread, and what is known so far is said
            if not listing.found_count:
                seen.say("no row has it", voice)
                say_unknown_name("--topic", topic, topics, "no queue here is of this topic", voice)
        _account(whole, listing, voice)
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
            whole.add_account_of(reading)


def _instead(reading: Reading, what: str) -> pa.Table:
    from readers.model.findings import findings_table

    return reading.coverage_table() if what == "coverage" else findings_table(reading.findings)


def _account(reading: Reading, listing: Listing, voice: Voice) -> None:
    amounts = accounting(reading)
    if amounts is not None:
        voice.note(f"{count(listing.rows_count, 'row')}; {amounts}")
