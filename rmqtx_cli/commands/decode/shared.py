"""The shared part of the decode commands: options, bounds, and the listing of readings."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.reading import Bounds, Reading, chained
from rmqtx.readers.model.tables import ALL_TABLES, findings_table
from rmqtx_cli.commands.declared.decode import RowsOptions, UncoveredRowsOptions
from rmqtx_cli.options.filters import all_of
from rmqtx_cli.options.options import OutputOptions, RangeOptions, StoreOptions
from rmqtx_cli.output.accounting import accounting
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.views import ALWAYS, VIEWS, View, plain
from rmqtx_cli.sources.opening import open_stores, refuse_inside, say_consistency
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.times import parse_offset_or_time
from rmqtx_cli.words.unknown_names import NamesSeen, say_unknown_name

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx.readers.store.store import Store

def equals(column: str, value: str | None) -> str | None:
    """Return an option's value as a condition on a column."""
    if value is None:
        return None
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{column} = "{quoted}"'


_NOTHING: Mapping[str, tuple[str, str | None]] = {}


#: What an account of bytes leaves out.
_CUT = "; reading ended at --limit, so later files are not counted"


@dataclass(frozen=True, slots=True)
class Asked:
    """Which rows to list, of which stores."""

    stores: Sequence[str]
    voice: Voice
    where: str | None
    limit: int | None
    coverage: bool
    findings: bool
    output: OutputOptions
    files: StoreOptions = field(default_factory=StoreOptions)


def bounds_of(within: RangeOptions, voice: Voice) -> Bounds:
    """Return the range. Raises: BadRequest."""
    first = (None, None) if within.begin is None else parse_offset_or_time("--from", within.begin, voice)
    last = (None, None) if within.end is None else parse_offset_or_time("--to", within.end, voice)
    return Bounds(first[0], last[0], first[1], last[1])


def asked_of(
    rows: RowsOptions | UncoveredRowsOptions, stores: Sequence[str], voice: Voice, commit_log: list[str] | None = None
) -> Asked:
    """Return the options with the stores."""
    coverage = isinstance(rows, RowsOptions) and rows.coverage
    return Asked(
        stores, voice, rows.where, rows.limit, coverage, rows.findings, rows.output, StoreOptions(commit_log)
    )


@dataclass(frozen=True, slots=True)
class RowsForm:
    """How the rows of a table differ from those that are read.

    `adapt`: converts each batch to the schema of the table. `extra`: columns added to those of the printed table.
    `unread`: columns that reading leaves null, with the options that read them.
    """

    adapt: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    extra: Sequence[str] = ()
    unread: Mapping[str, str] = field(default_factory=dict)


_AS_READ = RowsForm()


def list_rows(
    asked: Asked, table: str, read: Callable[[Store, list[str]], Reading], *,
    named: Mapping[str, tuple[str, str | None]] = _NOTHING, topic: str | None = None, schema: pa.Schema | None = None,
    form: RowsForm = _AS_READ,
) -> int:
    """List a table of each store, or its `--coverage` or `--findings`; return the exit status.

    `read`: returns the reading of a store, for the columns needed. `named`: by option, a column and the value it must
    have. `topic`: value of `--topic`, where `read` selects it.
    """
    rows = _rows_of(asked, table, named, schema, form.extra)
    rows.listing.refuse_unread(form.unread)
    stores = open_stores(asked.stores, asked.files).stores
    refuse_inside(asked.output.output, stores)
    say_consistency(stores, asked.voice)
    readings = [read(store, rows.columns) for store in stores]
    topics = [name for store in stores for name in store.topics()] if topic else ()
    return rows.listed(readings, form.adapt, topic, topics)


def list_readings(
    asked: Asked, table: str, given: Callable[[], list[Reading]], *,
    named: Mapping[str, tuple[str, str | None]] = _NOTHING,
) -> int:
    """List readings of one table; `given` is called after the options are validated. See `list_rows`."""
    rows = _rows_of(asked, table, named, None, ())
    return rows.listed(given(), None, None, ())


def _rows_of(
    asked: Asked, table: str, named: Mapping[str, tuple[str, str | None]], schema: pa.Schema | None,
    extra: Sequence[str],
) -> _Rows:
    """Return the listing of rows. Raises: BadRequest."""
    if asked.coverage and asked.findings:
        raise BadRequest("--coverage and --findings are two listings: give only one")
    instead = "coverage" if asked.coverage else "findings" if asked.findings else None
    chosen = [equals(column, name) for column, name in named.values()]
    where = all_of((asked.where, *chosen))
    if instead and (where or asked.limit is not None):
        raise BadRequest(f"--{instead} is about whole files and does not go with --where, --limit or a filter")
    rows_schema = schema or ALL_TABLES[table]
    view = VIEWS[instead or table]
    if extra and not instead:
        view = View((*view.columns, *(plain(name, ALWAYS, may_be_cut=True) for name in extra)))
    listing = Listing(
        ALL_TABLES[instead] if instead else rows_schema, view, asked.output, where, None, asked.limit,
        asked.voice,
    )
    return _Rows(listing, rows_schema, instead, named)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The listing of rows of `schema`. `instead`: coverage or findings, if listed instead of rows."""

    listing: Listing
    schema: pa.Schema
    instead: str | None
    named: Mapping[str, tuple[str, str | None]]

    @property
    def columns(self) -> list[str]:
        """Columns to read."""
        return ["store"] if self.instead else self.listing.needed

    def listed(
        self, readings: list[Reading], adapt: Callable[[pa.RecordBatch], pa.RecordBatch] | None, topic: str | None,
        topics: Sequence[str],
    ) -> int:
        """List the readings; return the exit status. `topics`: topics of the stores, if `topic` is given."""
        listing, voice = self.listing, self.listing.voice
        whole = chained(self.schema, readings, lambda one: one)
        if self.instead:
            whole.complete_findings()
            noun = "file" if self.instead == "coverage" else "finding"
            listing.write(iter(_instead(whole, self.instead).to_batches()), answer=lambda: listing.rows_lines(noun))
        else:
            batches, seen = cast("Generator[pa.RecordBatch]", whole.batches), NamesSeen(self.named)
            adapted = batches if adapt is None else map(adapt, batches)
            listing.write(_seen_by(seen, adapted), answer=lambda: listing.rows_lines("row"))
            batches.close()  # at a limit the rest stays unread; counts so far are printed
            if not listing.found_count:
                seen.say("no row has it", voice)
                say_unknown_name("--topic", topic, topics, "no queue here has this topic", voice)
        if (amounts := accounting(whole)) is not None:
            is_cut = not self.instead and listing.limit is not None and listing.rows_count >= listing.limit
            voice.note(f"{amounts}{_CUT if is_cut else ''}")
        return listing.conclude(whole)


def _seen_by(seen: NamesSeen, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        seen.add(batch)
        yield batch


def _instead(reading: Reading, what: str) -> pa.Table:
    return reading.coverage_table() if what == "coverage" else findings_table(reading.findings)
