"""`rmqtx export`: write a table as files by topic and day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.model.tables import ALL_TABLES
from rmqtx.readers.storage.places import is_uri
from rmqtx.verdicts.audit.provenance import Provenance
from rmqtx.verdicts.claims.records_read import with_lost_records
from rmqtx.verdicts.export.export import EXPORTED, ExportJob, export_snapshot
from rmqtx.verdicts.export.export_manifest import Done, opened_directory
from rmqtx.verdicts.export.folder import STATE_DIRECTORY, write_json
from rmqtx.verdicts.export.partition_files import FileForm
from rmqtx.verdicts.model.verdict_words import State
from rmqtx_cli.commands.declared.data import Bodies, ExportCommand, FilesOptions, Table
from rmqtx_cli.options.bodies import decoder_words
from rmqtx_cli.options.columns import chosen_columns
from rmqtx_cli.options.options import OutputFormat, StoreOptions, TracedStoreOptions
from rmqtx_cli.output.forms import EXPORT_FORMATS, form_of
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.views import VIEWS
from rmqtx_cli.sources.engine_run import EngineRun, engine_run
from rmqtx_cli.sources.opening import Opened, open_stores, refuse_inside, say_consistency, say_header
from rmqtx_cli.sources.provenance import TakenProvenance
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count, size


def run(options: ExportCommand) -> int:
    """Run the command; return its exit status."""
    _check(options.kind, options.to)
    directory = Path(options.to).absolute()
    decoder = _decoder(options.kind)
    columns = _columns(
        options.table, options.kind.fields, with_body=options.kind.body is not Bodies.NONE, is_decoded=bool(decoder)
    )
    if options.files.trace_topic is not None and options.table not in (Table.TRACES, Table.TRANSACTIONS):
        raise BadRequest("--trace-topic is for the tables traces and transactions")
    listing = Listing(EXPORTED, VIEWS["exported"], voice=options.voice)
    opened = _opened(options.table, options.store, options.files, Path(options.to), options.voice)
    undecidable: Counter[str] = Counter()
    with (
        opened_directory(
            directory, _settings(options.kind, options.files, options.table, columns, options.voice), opened.stores
        ) as done,
        engine_run(
            options.context, "exporting", opened.stores, TakenProvenance(options.voice), options.engine,
            options.provenance,
        ) as run,
    ):
        form = form_of(options.kind.output_format, options.kind.form, with_meta=options.provenance.with_meta)
        task = _ExportRun(options.table, columns, directory, form, _stored_provenance(run, directory), decoder)
        reading = task.reading(run, opened, done, options.kind.body, undecidable)
        written = _written(reading, listing if options.listed else None)
    options.voice.note(f"{options.to}: {written.line()}")
    return listing.conclude(reading, has_undecidable=bool(undecidable.total()))


def _decoder(kind: FilesOptions) -> tuple[str, ...]:
    """The words of the filter for bodies; none without one. Raises: BadRequest."""
    if kind.body_decoder is None:
        return ()
    if kind.body is Bodies.RAW:
        raise BadRequest("--body raw and --body-decoder contradict each other: a filter gets decompressed bodies")
    return tuple(decoder_words(kind.body_decoder))


def _check(kind: FilesOptions, to: str) -> None:
    """Refuse impossible formats and places. Raises: BadRequest."""
    if kind.output_format not in EXPORT_FORMATS:
        raise BadRequest(f"cannot export as {kind.output_format}", advice=f"one of {', '.join(EXPORT_FORMATS)}")
    if is_uri(to):
        raise BadRequest(
            "--to must be a local directory", advice="object stores cannot rename files when they are complete"
        )


def _settings_kind(kind: FilesOptions, table: Table, columns: list[str], voice: Voice) -> dict[str, object]:
    """Settings that must not change when an export is continued."""
    settings: dict[str, object] = {
        "table": table.value, "columns": columns, "format": kind.output_format.value, "body": kind.body.value,
        "timestamps": kind.form.timestamps,
    }
    if kind.body_decoder is not None:
        settings["body_decoder"] = kind.body_decoder
    if kind.output_format is OutputFormat.CSV:
        settings["csv_safe"] = kind.form.csv_safe
        if not kind.form.csv_safe:
            voice.detail("text is written unchanged; spreadsheets run what begins like a formula: --csv-safe")
    return settings


def _settings(
    kind: FilesOptions, files: TracedStoreOptions, table: Table, columns: list[str], voice: Voice
) -> dict[str, object]:
    """Return the settings that must not change when an export is continued."""
    topic = {} if files.trace_topic is None else {"trace_topic": files.trace_topic}
    return {**_settings_kind(kind, table, columns, voice), **topic}


def _opened(table: Table, paths: list[str], files: StoreOptions, to: Path, voice: Voice) -> Opened:
    """Return the opened stores; print a line about each."""
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
    facts: Provenance
    decoder: tuple[str, ...]

    def reading(
        self, run: EngineRun, opened: Opened, done: Done, body: Bodies, undecidable: Counter[str]
    ) -> Reading:
        """Return the reading that writes the files; count UNDECIDABLE transactions by store."""
        if self.table is Table.TRANSACTIONS:
            return self.verdicts(run, opened, undecidable)
        reading = run.engine.run_job(self.job(done, body), opened.stores, progress=run.progress)
        return with_lost_records(reading, opened.stores)

    def verdicts(self, run: EngineRun, opened: Opened, undecidable: Counter[str]) -> Reading:
        """Write all transactions in place of those of the previous run; count UNDECIDABLE ones by store."""
        reading = run.engine.audit(opened.stores, opened.settings_of, progress=run.progress)
        verdicts = _counting(reading.batches, undecidable)
        reading.batches = export_snapshot(
            verdicts, self.table.value, tuple(self.columns), self.directory, self.form, self.facts
        )
        return reading

    def job(self, done: Done, body: Bodies) -> ExportJob:
        """Job that writes rows of the log; rows are only added."""
        return ExportJob(
            self.table.value, tuple(self.columns), str(self.directory), self.form, done,
            body is Bodies.INFLATED or bool(self.decoder), self.decoder,
            {
                "custody_version": self.facts["custody_version"], "made_by": self.facts["made_by"],
                "command": self.facts["command"],
            },
        )


def _counting(verdicts: Iterable[pa.RecordBatch], undecidable: Counter[str]) -> Iterator[pa.RecordBatch]:
    """Yield the same batches and count UNDECIDABLE transactions by store."""
    for batch in verdicts:
        pairs = zip(batch["store"].to_pylist(), batch["state"].to_pylist(), strict=True)
        undecidable.update(store for store, state in pairs if state == State.UNDECIDABLE)
        yield batch


def _columns(table: Table, fields: str | None, *, with_body: bool, is_decoded: bool) -> list[str]:
    """Return the columns of the files: all without bodies, or those of --fields."""
    schema = ALL_TABLES[table.value]
    default = [name for name in schema.names if name not in ("body", "body_crc_matches")]
    chosen = chosen_columns(fields, schema, default)
    if (with_body or is_decoded) and table is not Table.RECORDS:
        raise BadRequest(f"{'--body' if with_body else '--body-decoder'} is for the table records")
    with_bodies = [*chosen, *(["body"] if with_body and "body" not in chosen else [])]
    return [*with_bodies, *(["body_decoded"] if is_decoded else [])]


def _stored_provenance(run: EngineRun, directory: Path) -> Provenance:
    """Write the provenance of the export into its directory and return it; each file contains its own range too."""
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
