"""`rmqtx export`: write a table as files by topic and day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx.verdicts.model.state import State
from rmqtx_cli.commands import Example
from rmqtx_cli.options.bodies import DecoderOption, decoder_words
from rmqtx_cli.options.engine import EngineOptions
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import (
    FieldsOption,
    OutputFormat,
    ProvenanceOptions,
    RowForm,
    StoreArguments,
    StoreOptions,
    TracedStoreOptions,
    VoiceOptions,
)
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count, size

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx.readers.model.reading import Reading
    from rmqtx.verdicts.export.export import ExportJob
    from rmqtx.verdicts.export.export_manifest import Done
    from rmqtx.verdicts.export.partition_files import FileForm
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.sources.engine_run import EngineRun
    from rmqtx_cli.sources.opening import Opened

NAME = "export"
EXAMPLES = (
    Example("rmqtx export records STORE --to DIR", "all records as Parquet; run again to add new records"),
    Example("rmqtx export transactions STORE --to DIR", "all transactions; replaces those of the previous run"),
    Example("rmqtx export halves STORE --to DIR --format jsonl", "half copies as JSON lines"),
    Example("rmqtx export traces STORE --to DIR", "what producers wrote about their transactions"),
    Example("rmqtx export records BROKER_A BROKER_B --to DIR --body raw --engine spark", "with bodies, with Spark"),
)


class Table(StrEnum):
    """Tables that can be exported."""

    RECORDS = "records"
    HALVES = "halves"
    OPS = "ops"
    TRACES = "traces"
    TRANSACTIONS = "transactions"


class Bodies(StrEnum):
    """How bodies are exported."""

    NONE = "none"
    RAW = "raw"
    INFLATED = "inflated"


TableArgument = Annotated[
    Table, typer.Argument(metavar="TABLE", help="Table to export: records, halves, ops, traces or transactions")
]
ToOption = Annotated[
    str,
    typer.Option("--to", metavar="DIR", help="Directory of the files: new, or of an export to continue"),
]
FormatOption = Annotated[
    OutputFormat, typer.Option("--format", help="Format of the files: parquet, arrow, csv or jsonl")
]
BodyOption = Annotated[
    Bodies, typer.Option("--body", help="Export bodies too: raw is as stored, inflated is decompressed")
]
ListOption = Annotated[bool, typer.Option("--list", help="List the files written, with their number of rows")]


@dataclass(frozen=True, slots=True)
class FilesOptions:
    """Format and columns of the files."""

    output_format: FormatOption = OutputFormat.PARQUET
    form: RowForm = field(default_factory=RowForm)
    fields: FieldsOption = None
    body: BodyOption = Bodies.NONE
    body_decoder: DecoderOption = None

    @property
    def decoder(self) -> tuple[str, ...]:
        """The words of the filter for bodies; none without one.

        Raises: BadRequest.
        """
        if self.body_decoder is None:
            return ()
        if self.body is Bodies.RAW:
            raise BadRequest("--body raw and --body-decoder contradict each other: a filter gets decompressed bodies")
        return tuple(decoder_words(self.body_decoder))

    def check(self, to: str) -> None:
        """Refuse impossible formats and places.

        Raises: BadRequest.
        """
        from rmqtx.readers.storage.places import is_uri
        from rmqtx_cli.output.forms import EXPORT_FORMATS

        if self.output_format not in EXPORT_FORMATS:
            raise BadRequest(f"cannot export as {self.output_format}", advice=f"one of {', '.join(EXPORT_FORMATS)}")
        if is_uri(to):
            raise BadRequest(
                "--to must be a local directory", advice="object stores cannot rename files when they are complete"
            )

    def settings(self, table: Table, columns: list[str], voice: Voice) -> dict[str, Any]:
        """Settings that must not change when an export is continued."""
        settings: dict[str, Any] = {
            "table": table.value, "columns": columns, "format": self.output_format.value, "body": self.body.value,
            "timestamps": self.form.timestamps,
        }  # fmt: skip
        if self.body_decoder is not None:
            settings["body_decoder"] = self.body_decoder
        if self.output_format is OutputFormat.CSV:
            settings["csv_safe"] = self.form.csv_safe
            if not self.form.csv_safe:
                voice.detail("text is written unchanged; spreadsheets run what begins like a formula: --csv-safe")
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
    files: TracedStoreOptions,
    voice: VoiceOptions,
) -> int:
    """Write a table to files below a directory: topic=T/day=YYYY-MM-DD/part-*.

    A file gets its name when it is complete. The next run continues an interrupted one, or adds the rows that are new:
    no row is written twice. Transactions change as the log grows, so each run replaces them. With Spark, all tasks must
    be able to write to the directory.

    --body-decoder CMD writes what a filter makes of each body into the column body_decoded, as rmqtx search prints it;
    each process that reads the log runs a filter of its own.
    """
    from rmqtx.verdicts.export.export import EXPORTED
    from rmqtx.verdicts.export.export_manifest import opened_directory
    from rmqtx_cli.output.forms import form_of
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.output.views import VIEWS
    from rmqtx_cli.sources.engine_run import engine_run

    kind.check(to)
    directory = Path(to).absolute()
    decoder = kind.decoder
    columns = _columns(table, kind.fields, with_body=kind.body is not Bodies.NONE, is_decoded=bool(decoder))
    if files.trace_topic is not None and table not in (Table.TRACES, Table.TRANSACTIONS):
        raise BadRequest("--trace-topic is for the tables traces and transactions")
    listing = Listing(EXPORTED, VIEWS["exported"], voice=voice)
    opened = _opened(table, store, files, Path(to), voice)
    undecidable: Counter[str] = Counter()
    with (
        opened_directory(directory, _settings(kind, files, table, columns, voice), opened.stores) as done,
        engine_run(context, "exporting", opened.stores, listing, engine, provenance, is_wanted=True) as run,
    ):
        form = form_of(kind.output_format, kind.form, with_meta=provenance.with_meta)
        task = _ExportRun(table, columns, directory, form, _stored_provenance(run, directory), decoder)
        reading = task.reading(run, opened, done, kind.body, undecidable)
        written = _written(reading, listing if listed else None)
    voice.note(f"{to}: {written.line()}")
    return listing.conclude(reading, has_undecidable=bool(undecidable.total()))


def _settings(
    kind: FilesOptions, files: TracedStoreOptions, table: Table, columns: list[str], voice: Voice
) -> dict[str, Any]:
    """Return the settings that must not change when an export is continued."""
    topic = {} if files.trace_topic is None else {"trace_topic": files.trace_topic}
    return {**kind.settings(table, columns, voice), **topic}


def _opened(table: Table, paths: list[str], files: StoreOptions, to: Path, voice: Voice) -> Opened:
    """Return the opened stores; print a line about each."""
    from rmqtx_cli.sources.opening import open_stores, refuse_inside, say_consistency, say_header

    opened = open_stores(paths, files)
    refuse_inside(to, opened.stores)
    if table is Table.TRANSACTIONS:
        say_header(opened, voice)
    else:
        say_consistency(opened.stores, voice)
    return opened


def _written(reading: Reading, listing: Listing | None) -> _FilesWritten:
    """Write the files, list them if wanted, and return their counts."""
    written = _FilesWritten()
    if listing is not None:
        listing.write(written.watching(reading), to_the_end=True)
    else:
        for batch in reading:
            written.add(batch)
    return written


@dataclass(frozen=True, slots=True)
class _ExportRun:
    """Columns, format and directory of an export."""

    table: Table
    columns: list[str]
    directory: Path
    form: FileForm
    facts: dict[str, Any]
    decoder: tuple[str, ...]

    def reading(
        self, run: EngineRun, opened: Opened, done: Done, body: Bodies, undecidable: Counter[str]
    ) -> Reading:
        """Return the reading that writes the files; count UNDECIDABLE transactions by store."""
        if self.table is Table.TRANSACTIONS:
            return self.verdicts(run, opened, undecidable)
        return run.engine.run_job(self.job(done, body), opened.stores, progress=run.progress)

    def verdicts(self, run: EngineRun, opened: Opened, undecidable: Counter[str]) -> Reading:
        """Write all transactions in place of those of the previous run; count UNDECIDABLE ones by store."""
        from rmqtx.verdicts.export.export import export_snapshot

        reading = run.engine.audit(opened.stores, opened.settings_of, progress=run.progress)
        verdicts = _counting(reading.batches, undecidable)
        reading.batches = export_snapshot(
            verdicts, self.table.value, tuple(self.columns), self.directory, self.form, self.facts
        )
        return reading

    def job(self, done: Done, body: Bodies) -> ExportJob:
        """Job that writes rows of the log; rows are only added."""
        from rmqtx.verdicts.export.export import ExportJob

        return ExportJob(
            self.table.value, tuple(self.columns), str(self.directory), self.form, done,
            body is Bodies.INFLATED or bool(self.decoder), self.decoder,
            {name: self.facts[name] for name in ("custody_version", "made_by", "command")},
        )


def _counting(verdicts: Iterable[pa.RecordBatch], undecidable: Counter[str]) -> Iterator[pa.RecordBatch]:
    """Yield the same batches and count UNDECIDABLE transactions by store."""
    for batch in verdicts:
        pairs = zip(batch["store"].to_pylist(), batch["state"].to_pylist(), strict=True)
        undecidable.update(store for store, state in pairs if state == State.UNDECIDABLE)
        yield batch


def _columns(table: Table, fields: str | None, *, with_body: bool, is_decoded: bool) -> list[str]:
    """Return the columns of the files: all without bodies, or those of --fields."""
    from rmqtx.readers.model.tables import ALL_TABLES
    from rmqtx_cli.options.columns import chosen_columns

    schema = ALL_TABLES[table.value]
    default = [name for name in schema.names if name not in ("body", "body_crc_matches")]
    chosen = chosen_columns(fields, schema, default)
    if (with_body or is_decoded) and table is not Table.RECORDS:
        raise BadRequest(f"{'--body' if with_body else '--body-decoder'} is for the table records")
    with_bodies = [*chosen, *(["body"] if with_body and "body" not in chosen else [])]
    return [*with_bodies, *(["body_decoded"] if is_decoded else [])]


def _stored_provenance(run: EngineRun, directory: Path) -> dict[str, Any]:
    """Write the provenance of the export into its directory and return it; each file contains its own range too."""
    from rmqtx.verdicts.export.export_manifest import STATE_DIRECTORY, write_json

    assert run.provenance is not None
    write_json(directory / STATE_DIRECTORY / f"custody-{run.provenance['made_time_ms']}.json", run.provenance)
    return run.provenance


@dataclass(slots=True)
class _FilesWritten:
    """Counts of files and rows written."""

    files_count: int = 0
    rows_count: int = 0
    size_bytes: int = 0

    def watching(self, reading: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the same batches and count them."""
        for batch in reading:
            self.add(batch)
            yield batch

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the files that a batch lists."""
        self.files_count += batch.num_rows
        self.rows_count += sum(batch["rows_count"].to_pylist())
        self.size_bytes += sum(batch["size_bytes"].to_pylist())

    def line(self) -> str:
        """Summary line."""
        if not self.files_count:
            return "nothing new"
        files = count(self.files_count, "file")
        return f"{count(self.rows_count, 'row')} written in {files} of {size(self.size_bytes)}"
