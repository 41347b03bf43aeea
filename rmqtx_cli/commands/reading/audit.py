"""`rmqtx audit`: list every transaction with its state and evidence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pyarrow as pa

from rmqtx.readers.model import clock
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.tables import FINDINGS, findings_table
from rmqtx.verdicts.causes.evidence import NEEDED_COLUMNS
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx.verdicts.model.verdict_words import State
from rmqtx.verdicts.proofs.writing import PROOF_COLUMNS
from rmqtx_cli.commands.declared.survey import AuditCommand, AuditOptions
from rmqtx_cli.options.engine import EngineName, EngineOptions
from rmqtx_cli.options.filters import all_of
from rmqtx_cli.options.options import OutputFolder, OutputFormat, OutputOptions, ProvenanceOptions
from rmqtx_cli.options.source_options import LogOptions, SourceOptions
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.table import print_table
from rmqtx_cli.output.views import VIEWS
from rmqtx_cli.pages.causes import group_cause_lines
from rmqtx_cli.pages.order_of_harm import Harms
from rmqtx_cli.pages.summary import COUNTED_COLUMNS, COUNTS_VIEW, SUMMARY, SUMMARY_COLUMNS, SUMMARY_VIEW, Summary
from rmqtx_cli.sources.broker_logs import check_logs, read_logs
from rmqtx_cli.sources.files import FileOpener
from rmqtx_cli.sources.opening import table_asked
from rmqtx_cli.sources.proofs import Proving
from rmqtx_cli.sources.source import Source, SourceOpener, opener_of
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.times import asked_time_ms


def run(options: AuditCommand) -> int:
    """Run the command; return its exit status."""
    engine = options.engine
    voice = options.source.voice
    check_logs(options.logs)
    at_ms = asked_time_ms("--at", options.asked.at, voice, is_of_state=True)
    now_ms = at_ms if at_ms is not None else clock.now_ms()
    files_only = {
        "--at": options.asked.at, "--proof": options.proof,
        **_of_whole_stores(engine, options.provenance),
    }
    opener = opener_of(
        options.source, options.store or [], "rmqtx audit STORE, or rmqtx audit -n HOST:PORT", files_only
    )
    if options.asked.summary and options.asked.findings:
        raise BadRequest("--summary and --findings are two listings: give only one")
    if options.asked.partition_by is not None or isinstance(options.output.output, OutputFolder):
        from rmqtx_cli.sources.verdict_folder import audit_into_folder, folder_of  # all of pyarrow.fs

        unfit = _not_in_folders(options.asked, options.output, options.source, options.logs)
        folder = folder_of(options.output, options.asked.partition_by, unfit)
        return audit_into_folder(options.context, folder, cast("FileOpener", opener), engine, options.provenance, at_ms)
    engine = options.source.database.engine_of(engine)
    listing = _listing(options.asked, options.output, options.provenance, opener, now_ms, voice)
    audit = _AuditRun(options.asked, listing, options.logs, at_ms, has_proof=options.proof is not None)
    proving = Proving(options.proof, "audit", at_ms, True, voice)
    with opener.opened(options.output.output) as opened:
        read = read_logs(options.logs, opened.names, voice)
        with opened.audited(options.context, listing, engine, options.provenance, at_ms, audit.columns) as reading:
            read.in_rows(reading)
            with proving.of(reading, opened, listing.fulfilling_of):
                status = audit.written(reading, opened)
    audit.say_rest(opened)
    return status


def _condition(asked: AuditOptions) -> str | None:
    """Condition on the rows to list."""
    texts = (asked.where, "flags ~ ." if asked.flagged else None)
    return all_of(texts)


def _of_whole_stores(engine: EngineOptions, provenance: ProvenanceOptions) -> dict[str, object]:
    """Options that only files of stores have, with their values."""
    return {
        "--master": engine.master, "--remote": engine.remote, "--conf": engine.conf, "--hash": provenance.hash_all,
        "--split-size": engine.split_bytes, "--processes": engine.processes, "--temp-dir": engine.temporary,
        "--with-meta": provenance.with_meta, "--engine": engine.engine is not EngineName.AUTO,
    }


def _not_in_folders(
    asked: AuditOptions, output: OutputOptions, source: SourceOptions, logs: LogOptions
) -> dict[str, object]:
    """Options that a folder of verdicts does not support, with their values."""
    return {
        "--where": asked.where, "--flagged": asked.flagged, "--limit": asked.limit, "--summary": asked.summary,
        "--findings": asked.findings, "--fail-on": asked.fail_on, "--fields": output.fields, "--sort": output.sort,
        "--format": output.output_format not in (None, OutputFormat.PARQUET), "--broker-logs": logs.broker_logs,
        "--transaction-table": table_asked(source.database),
        "-n": source.live.namesrv, "--broker": source.live.broker,
    }


def _listing(
    asked: AuditOptions, output: OutputOptions, provenance: ProvenanceOptions, opener: SourceOpener, now_ms: int,
    voice: Voice,
) -> Listing:
    """Listing of transactions, of the summary or of findings."""
    schema, view = opener.schema, opener.view(now_ms, with_state=True)
    if _condition(asked) is not None:
        view = replace(view, nothing="no transaction meets the condition")
    if asked.summary:
        schema, view = SUMMARY, SUMMARY_VIEW
    elif asked.findings:
        schema, view = FINDINGS, VIEWS["findings"]
    return Listing(
        schema, view, output, _condition(asked), asked.fail_on, asked.limit, voice, provenance.with_meta, now_ms=now_ms
    )


class _AuditRun:
    """One audit: lists rows, counts them and prints the summary."""

    def __init__(
        self, asked: AuditOptions, listing: Listing, logs: LogOptions, at_ms: int | None, *, has_proof: bool
    ) -> None:
        self.asked, self.listing, self.logs, self.at_ms = asked, listing, logs, at_ms
        self.has_proof = has_proof
        self.counted = Summary(harms=Harms(listing.now_ms))
        self._met: list[Finding] = []

    def written(self, reading: VerdictReading, source: Source) -> int:
        """Write the answer and the rows; return the exit status."""
        def answer() -> Iterator[str]:
            more: list[str] = []
            if self.asked.at is None or reading.evidence:  # causes are known
                more = [*group_cause_lines(reading, source.arguments), *self.counted.why_lines(source.arguments)]
            yield from self.counted.answer(
                source.stores, source.arguments, reading, self.listing.now_ms, source.live, more
            )

        if self._instead:
            for batch in reading:
                self.counted.add(batch)
            batches = iter(self._rows_instead(reading).to_batches())
        else:
            batches = self.counted.watching(reading)
        self.listing.write(batches, to_the_end=True, answer=answer)
        self.listing.say_limit("row" if self._instead else "transaction")
        self._met.extend(reading.findings)
        return self.listing.conclude(reading, has_undecidable=self.counted.states[State.UNDECIDABLE] > 0)

    @property
    def columns(self) -> set[str]:
        """The columns of transactions that are listed or counted."""
        names = {*SUMMARY_COLUMNS} if self.asked.summary else {*COUNTED_COLUMNS}
        if self.asked.at is None:
            names.add("causes")  # causes of whole groups are named above the rows
        if not self._instead:
            names |= {*self.listing.needed}
        if self.logs.broker_logs and "causes" in names:
            names |= {*NEEDED_COLUMNS}
        if self.has_proof:
            names |= {*PROOF_COLUMNS}
        return names

    @property
    def _instead(self) -> bool:
        """Whether the summary or the findings are listed instead of transactions."""
        return self.asked.findings or self.asked.summary

    def _rows_instead(self, reading: VerdictReading) -> pa.Table:
        return self.counted.table() if self.asked.summary else findings_table(reading.findings)

    def say_rest(self, source: Source) -> None:
        """Print what follows the rows: summary, flags, damage."""
        if not self.asked.summary and not self.listing.voice.quiet:
            print_table(self.counted.table(), COUNTS_VIEW)
        for line in self.counted.lines(source.stores, self._met, self.at_ms):
            self.listing.voice.note(line)
