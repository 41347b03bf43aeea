"""`rmqtx export`: a table as files by topic and day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from readers.model.errors import BadRequest
from rmqtx_cli.commands import Example
from rmqtx_cli.options.engine import EngineOptions
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import (
    FieldsOption,
    OutputFormat,
    ProvenanceOptions,
    StoreArguments,
    StoreOptions,
    VoiceOptions,
)
from rmqtx_cli.options.row_options import HAS_TIMESTAMPS, IS_SAFE
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count, size

if TYPE_CHECKING:
    import pyarrow as pa

    from readers.model.reading import Reading
    from rmqtx_cli.sources.engine_run import EngineRun
    from rmqtx_cli.sources.opening import Opened
    from verdicts.export.export import ExportJob
    from verdicts.export.export_manifest import Done
    from verdicts.export.partition_files import FileForm

NAME = "export"
SHORT = "a table as Parquet files by topic and day"
EXAMPLES = (
    Example("rmqtx export records STORE --to DIR", "every record as Parquet, by topic and day"),
    Example("rmqtx export records STORE --to DIR", "again, when the log has grown: only what is new is added"),
    Example("rmqtx export transactions STORE --to DIR", "every verdict, in place of those of the run before"),
    Example("rmqtx export halves STORE --to DIR --format jsonl", "half copies as JSON lines"),
    Example("rmqtx export records BROKER_A BROKER_B --to DIR --body raw --engine spark", "with bodies, on Spark"),
)


class Table(StrEnum):
    """What can be exported."""

    RECORDS = "records"
    HALVES = "halves"
    OPS = "ops"
    TRANSACTIONS = "transactions"


class Bodies(StrEnum):
    """What becomes of bodies."""

    NONE = "none"
    RAW = "raw"
    INFLATED = "inflated"


TableArgument = Annotated[
    Table, typer.Argument(metavar="TABLE", help="What to export: records, halves, ops or transactions.")
]
ToOption = Annotated[
    str,
    typer.Option("--to", metavar="DIR", help="Where the files go: a new directory, or one of an export to continue."),
]
FormatOption = Annotated[
    OutputFormat, typer.Option("--format", help="Kind of files: parquet, arrow, csv or jsonl.")
]
BodyOption = Annotated[
    Bodies, typer.Option("--body", help="Also the bodies: raw as they are stored, inflated as the producer made them.")
]
ListOption = Annotated[bool, typer.Option("--list", help="List the files that were written, with what is in them.")]


@dataclass(frozen=True, slots=True)
class FilesOptions:
    """What files are written."""

    output_format: FormatOption = OutputFormat.PARQUET
    fields: FieldsOption = None
    body: BodyOption = Bodies.NONE

    def check(self, to: str) -> None:
        """Refuse what no export can be.

        Raises: BadRequest.
        """
        from readers.storage.places import is_uri
        from rmqtx_cli.output.forms import EXPORT_FORMATS

        if self.output_format not in EXPORT_FORMATS:
            raise BadRequest(f"an export cannot be {self.output_format}", advice=f"{', '.join(EXPORT_FORMATS)}")
        if is_uri(to):
            raise BadRequest(
                "--to is no local directory", advice="files are renamed when complete; object stores cannot"
            )

    def settings(self, table: Table, columns: list[str], voice: Voice) -> dict[str, Any]:
        """What must be the same where an export is continued."""
        settings: dict[str, Any] = {
            "table": table.value, "columns": columns, "format": self.output_format.value, "body": self.body.value,
            "timestamps": HAS_TIMESTAMPS.get(),
        }  # fmt: skip
        if self.output_format is OutputFormat.CSV:
            settings["csv_safe"] = IS_SAFE.get()
            if not IS_SAFE.get():
                voice.detail("text is written as it is; a spreadsheet runs what begins as formulas do: --csv-safe")
        return settings


@with_option_groups
def command(
    context: typer.Context,
    table: TableArgument,
    store: StoreArguments,
    to: ToOption,
    *,
    kind: FilesOptions,
    listed: ListOption = False,
    engine: EngineOptions,
    provenance: ProvenanceOptions,
    files: StoreOptions,
    voice: VoiceOptions,
) -> int:
    """Write a table to files below a directory: topic=T/day=YYYY-MM-DD/part-*.

    A file gets its name when it is complete. A run that was stopped is continued by the next one, and a run after the
    log has grown adds what is new: no row is ever there twice. Transactions change as the log grows: they are written
    anew, and replace what is there. The directory is one that every task can write to.
    """
    from rmqtx_cli.output.forms import form_of
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.output.views import VIEWS
    from rmqtx_cli.sources.engine_run import engine_run
    from rmqtx_cli.sources.opening import open_stores, refuse_inside
    from verdicts.export.export import EXPORTED
    from verdicts.export.export_manifest import opened_directory

    kind.check(to)
    directory = Path(to).absolute()
    columns = _columns(table, kind.fields, with_body=kind.body is not Bodies.NONE)
    listing = Listing(EXPORTED, VIEWS["exported"], voice=voice)
    opened = open_stores(store, files)
    refuse_inside(Path(to), opened.stores)
    _say_stores(table, opened, voice)
    undecidable: Counter[str] = Counter()
    with (
        opened_directory(directory, kind.settings(table, columns, voice), opened.stores) as done,
        engine_run(context, "exporting", opened.stores, listing, engine, provenance, is_wanted=True) as run,
    ):
        facts = _stored_provenance(run, directory)
        form = form_of(kind.output_format, with_meta=provenance.with_meta)
        task = _ExportRun(table, columns, directory, form, facts)
        if table is Table.TRANSACTIONS:
            reading: Reading = task.verdicts(run, opened, undecidable)
        else:
            reading = run.engine.run_job(task.job(done, kind.body), opened.stores, progress=run.progress)
        written = _FilesWritten()
        if listed:
            listing.write(written.watching(reading), to_the_end=True)
        else:
            for batch in reading:
                written.add(batch)
    voice.note(f"{to}: {written.line()}")
    return listing.conclude(reading, has_undecidable=bool(undecidable.total()))


def _say_stores(table: Table, opened: Opened, voice: Voice) -> None:
    from rmqtx_cli.sources.opening import say_consistency, say_header

    if table is Table.TRANSACTIONS:
        say_header(opened, voice)
    else:
        say_consistency(opened.stores, voice)


@dataclass(frozen=True, slots=True)
class _ExportRun:
    """What is written, and where to."""

    table: Table
    columns: list[str]
    directory: Path
    form: FileForm
    facts: dict[str, Any]

    def verdicts(self, run: EngineRun, opened: Opened, undecidable: Counter[str]) -> Reading:
        """Verdicts on all transactions, which replace those that are there; counts UNDECIDABLE ones by store."""
        from verdicts.export.export_snapshot import export_snapshot

        reading = run.engine.audit(opened.stores, opened.settings_of, progress=run.progress)
        verdicts = _counting(reading.batches, undecidable)
        reading.batches = export_snapshot(
            verdicts, self.table.value, tuple(self.columns), self.directory, self.form, self.facts
        )
        return reading

    def job(self, done: Done, body: Bodies) -> ExportJob:
        """Rows of the log, of which there are only ever more."""
        from verdicts.export.export import ExportJob

        return ExportJob(
            self.table.value, tuple(self.columns), str(self.directory), self.form, done, body is Bodies.INFLATED,
            {name: self.facts[name] for name in ("custody_version", "made_by", "command")},
        )


def _counting(verdicts: Iterable[pa.RecordBatch], undecidable: Counter[str]) -> Iterator[pa.RecordBatch]:
    """The same batches; counts UNDECIDABLE ones by store."""
    for batch in verdicts:
        pairs = zip(batch["store"].to_pylist(), batch["state"].to_pylist(), strict=True)
        undecidable.update(store for store, state in pairs if state == "UNDECIDABLE")
        yield batch


def _columns(table: Table, fields: str | None, *, with_body: bool) -> list[str]:
    """The columns that the files get: all that cost nothing more, or those that were asked for."""
    from readers.model.tables import ALL_TABLES
    from rmqtx_cli.options.columns import chosen_columns

    schema = ALL_TABLES[table.value]
    default = [name for name in schema.names if name not in ("body", "body_crc_matches")]
    chosen = chosen_columns(fields, schema, default)
    if with_body and table is not Table.RECORDS:
        raise BadRequest("--body is for records")
    return [*chosen, *(["body"] if with_body and "body" not in chosen else [])]


def _stored_provenance(run: EngineRun, directory: Path) -> dict[str, Any]:
    """The provenance of the whole export, after writing it to the export's own directory; each file has its range."""
    from verdicts.export.export_manifest import STATE_DIRECTORY, write_json

    assert run.provenance is not None
    write_json(directory / STATE_DIRECTORY / f"custody-{run.provenance['made_time_ms']}.json", run.provenance)
    return run.provenance


@dataclass(slots=True)
class _FilesWritten:
    """Files that were written."""

    files_count: int = 0
    rows_count: int = 0
    size_bytes: int = 0

    def watching(self, reading: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, counted as they pass."""
        for batch in reading:
            self.add(batch)
            yield batch

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the files that a batch lists."""
        self.files_count += batch.num_rows
        self.rows_count += sum(batch["rows_count"].to_pylist())
        self.size_bytes += sum(batch["size_bytes"].to_pylist())

    def line(self) -> str:
        """What there is to say."""
        if not self.files_count:
            return "nothing new"
        return f"{count(self.rows_count, 'row')} added in {count(self.files_count, 'file')} of {size(self.size_bytes)}"
