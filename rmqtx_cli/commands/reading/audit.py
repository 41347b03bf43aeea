"""`rmqtx audit`: list every transaction with its state and evidence."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx.verdicts.model.state import State
from rmqtx_cli.commands import Example
from rmqtx_cli.options.engine import EngineName, EngineOptions
from rmqtx_cli.options.filters import all_of
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import (
    AtOption,
    FailOnOption,
    FindingsOption,
    LimitOption,
    OptionalStoreArguments,
    OutputFormat,
    OutputOptions,
    ProvenanceOptions,
    WhereOption,
)
from rmqtx_cli.sources.broker_logs import LogOptions
from rmqtx_cli.sources.source import SourceOptions
from rmqtx_cli.sources.verdict_folder import audit_into_folder, folder_of
from rmqtx_cli.words.durations import parse_duration_ms
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.times import asked_time_ms

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx.readers.model.findings import Finding
    from rmqtx.verdicts.model.reading import VerdictReading
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.sources.files import FileOpener
    from rmqtx_cli.sources.source import Source, SourceOpener

NAME = "audit"
EXAMPLES = (
    Example("rmqtx audit STORE --summary", "counts, times and checks per group and topic"),
    Example("rmqtx audit STORE --where 'state = LOST or causes = op-written-late'", "lost, or explained by a cause"),
    Example(
        "rmqtx audit 's3://evidence/*/store' --engine spark -o verdicts/ --partition-by day,state",
        "many stores, with Spark, as a folder of Parquet",
    ),
    Example("rmqtx audit -n 10.0.0.1:9876 --flagged", "transactions with flags, in the half queues of live brokers"),
    Example("rmqtx audit STORE --into /var/lib/rmqtx/verdicts", "update a table of verdicts, reading only what is new"),
)

SummaryOption = Annotated[bool, typer.Option("--summary", help="Print only counts, times, checks per group and topic")]
FlaggedOption = Annotated[bool, typer.Option("--flagged", help="Only transactions that have a flag")]
FollowOption = Annotated[
    bool, typer.Option("--follow", help="Keep running and print each new or changed row while the stores grow")
]
CheckpointOption = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint", metavar="FILE",
        help="With --follow and --into: file that keeps what was read and printed, for the next run",
    ),
]
IntervalOption = Annotated[
    str | None,
    typer.Option("--interval", metavar="DURATION", help="With --follow: time between two readings; default: 10s"),
]
UntilIdleOption = Annotated[
    bool, typer.Option("--until-idle", help="With --follow: exit when nothing is new, for cron")
]

PartitionByOption = Annotated[
    str | None,
    typer.Option(
        "--partition-by", metavar="NAME,NAME",
        help="With -o DIR/: folders by day, state, topic, producer_group or store; as day=2026-01-31/state=PENDING",
    ),
]
IntoOption = Annotated[
    str | None,
    typer.Option(
        "--into", metavar="TABLE",
        help="Bring a table of verdicts up to date: reads only what is new, keeps the history of states. A folder or "
        "URI of Parquet, delta:PLACE, or iceberg:CATALOG.NAMESPACE.TABLE",
    ),
]


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Which rows an audit lists, and how."""

    where: WhereOption = None
    flagged: FlaggedOption = False
    limit: LimitOption = None
    at: AtOption = None
    summary: SummaryOption = False
    follow: FollowOption = False
    checkpoint: CheckpointOption = None
    interval: IntervalOption = None
    until_idle: UntilIdleOption = False
    findings: FindingsOption = False
    fail_on: FailOnOption = None
    partition_by: PartitionByOption = None
    into: IntoOption = None

    @property
    def condition(self) -> str | None:
        """Condition on the rows to list."""
        texts = (self.where, "flags ~ ." if self.flagged else None)
        return all_of(texts)

    def check(self) -> None:
        """Refuse options that exclude each other.

        Raises: BadRequest.
        """
        if not self.follow and (self.interval is not None or self.until_idle):
            raise BadRequest("--interval and --until-idle need --follow")
        if not self.follow and self.into is None and self.checkpoint is not None:
            raise BadRequest("--checkpoint needs --follow or --into")
        if self.summary and self.findings:
            raise BadRequest("--summary and --findings are two listings: give only one")


@with_option_groups
def command(
    context: typer.Context,
    store: OptionalStoreArguments = None,
    *,
    asked: AuditOptions,
    output: OutputOptions,
    engine: EngineOptions,
    provenance: ProvenanceOptions,
    logs: LogOptions,
    source: SourceOptions,
) -> int:
    """List every transaction of the stores: state, flags, reason, advice and evidence.

    Reads the whole commit log; of live brokers, the whole half queues. A summary per group and topic and the next
    safe command follow on stderr.
    """
    voice = source.voice
    logs.check()
    at_ms = asked_time_ms("--at", asked.at, voice, is_of_state=True)
    now_ms = at_ms if at_ms is not None else time.time_ns() // 1_000_000
    files_only = {"--at": asked.at, "--follow": asked.follow, **_of_whole_stores(engine, provenance)}
    opener = source.opener(store or [], "rmqtx audit STORE, or rmqtx audit -n HOST:PORT", files_only)
    if asked.follow:
        _refuse_with_follow(asked, output, engine, provenance, source, logs)
    asked.check()
    if asked.into is not None:
        return _grown(store or [], asked, output, engine, provenance, source, logs)
    folder = folder_of(output, asked.partition_by, _not_in_folders(asked, output, source, logs))
    if folder is not None:
        return audit_into_folder(context, folder, cast("FileOpener", opener), engine, provenance, at_ms)
    engine = source.database.engine_of(engine)
    listing = _listing(asked, output, provenance, opener, now_ms, voice)
    if asked.follow:
        return _followed(store or [], asked, engine, source, listing)
    audit = _AuditRun(asked, listing, logs, at_ms)
    with opener.opened(output.output) as opened:
        read = logs.read(opened.names, voice)
        with opened.audited(context, listing, engine, provenance, at_ms, audit.columns) as reading:
            read.in_rows(reading)
            status = audit.written(reading, opened)
    audit.say_rest(opened)
    return status


def _of_whole_stores(engine: EngineOptions, provenance: ProvenanceOptions) -> dict[str, Any]:
    """Options that only files of stores have, with their values."""
    return {
        "--master": engine.master, "--remote": engine.remote, "--conf": engine.conf, "--hash": provenance.hash_all,
        "--split-size": engine.split_bytes, "--processes": engine.processes, "--temp-dir": engine.temporary,
        "--with-meta": provenance.with_meta, "--engine": engine.engine is not EngineName.AUTO,
    }  # fmt: skip


def _not_in_folders(
    asked: AuditOptions, output: OutputOptions, source: SourceOptions, logs: LogOptions
) -> dict[str, Any]:
    """Options that a folder of verdicts does not support, with their values."""
    return {
        "--where": asked.where, "--flagged": asked.flagged, "--limit": asked.limit, "--summary": asked.summary,
        "--findings": asked.findings, "--fail-on": asked.fail_on, "--fields": output.fields, "--sort": output.sort,
        "--format": output.output_format not in (None, OutputFormat.PARQUET), "--broker-logs": logs.broker_logs,
        "--transaction-table": source.database.address, "--follow": asked.follow,
        "-n": source.live.namesrv, "--broker": source.live.broker,
    }  # fmt: skip


def _refuse_with_follow(
    asked: AuditOptions, output: OutputOptions, engine: EngineOptions, provenance: ProvenanceOptions,
    source: SourceOptions, logs: LogOptions,
) -> None:
    """Refuse options that do not go with --follow.

    Raises: BadRequest.
    """
    from rmqtx_cli.sources.following import refuse_with_follow

    refuse_with_follow({
        "--at": asked.at, "--limit": asked.limit, "--summary": asked.summary, "--findings": asked.findings,
        "--output": output.output, "--hash": provenance.hash_all, "--with-meta": provenance.with_meta,
        "--split-size": engine.split_bytes, "--transaction-table": source.database.address, "--sort": output.sort,
        "--broker-logs": logs.broker_logs,
    })  # fmt: skip


def _listing(
    asked: AuditOptions, output: OutputOptions, provenance: ProvenanceOptions, opener: SourceOpener, now_ms: int,
    voice: Voice,
) -> Listing:
    """Listing of transactions, of the summary or of findings."""
    from rmqtx.readers.model.tables import FINDINGS
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.output.views import VIEWS
    from rmqtx_cli.pages.summary import SUMMARY, SUMMARY_VIEW

    schema, view = opener.schema, opener.view(now_ms, with_state=True)
    if asked.follow:
        from rmqtx.readers.model.tables import FUTURE_COLUMNS

        filled = tuple(column for column in view.columns if not set(column.sources) <= set(FUTURE_COLUMNS))
        view = replace(view, columns=filled, nothing="nothing new or changed")
    elif asked.condition is not None:
        view = replace(view, nothing="no transaction meets the condition")
    if asked.summary:
        schema, view = SUMMARY, SUMMARY_VIEW
    elif asked.findings:
        schema, view = FINDINGS, VIEWS["findings"]
    return Listing(
        schema, view, output, asked.condition, asked.fail_on, asked.limit, voice, provenance.with_meta, now_ms=now_ms
    )


def _followed(
    stores: list[str], asked: AuditOptions, engine: EngineOptions, source: SourceOptions, listing: Listing
) -> int:
    from rmqtx.readers.storage.file_systems import expand
    from rmqtx_cli.sources.following import INTERVAL_MS, Following

    interval_ms = INTERVAL_MS if asked.interval is None else parse_duration_ms(asked.interval)
    return Following(
        expand(stores), engine, source.files, asked.checkpoint, interval_ms, asked.until_idle, source.voice
    ).run(listing)


def _grown(
    stores: list[str], asked: AuditOptions, output: OutputOptions, engine: EngineOptions,
    provenance: ProvenanceOptions, source: SourceOptions, logs: LogOptions,
) -> int:
    from rmqtx.readers.storage.file_systems import expand
    from rmqtx.verdicts.growing.tables import table_name
    from rmqtx_cli.sources.growing import Growing, refuse_with_into

    refuse_with_into({
        "--output": output.output, "--at": asked.at, "--partition-by": asked.partition_by,
        "--hash": provenance.hash_all, "--with-meta": provenance.with_meta,
        **_not_in_folders(asked, output, source, logs),
    })  # fmt: skip
    return Growing(
        expand(stores), table_name(asked.into or ""), engine, source.files, asked.checkpoint, source.voice
    ).run()


class _AuditRun:
    """One audit: lists rows, counts them and prints the summary."""

    def __init__(self, asked: AuditOptions, listing: Listing, logs: LogOptions, at_ms: int | None) -> None:
        from rmqtx_cli.pages.order_of_harm import Harms
        from rmqtx_cli.pages.summary import Summary

        self.asked, self.listing, self.logs, self.at_ms = asked, listing, logs, at_ms
        self.counted = Summary(harms=Harms(listing.now_ms))
        self._met: list[Finding] = []

    def written(self, reading: VerdictReading, source: Source) -> int:
        """Write the answer and the rows; return the exit status."""
        from rmqtx_cli.pages.causes import group_cause_lines

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
        from rmqtx_cli.pages.summary import COUNTED_COLUMNS, SUMMARY_COLUMNS

        names = {*SUMMARY_COLUMNS} if self.asked.summary else {*COUNTED_COLUMNS}
        if self.asked.at is None:
            names.add("causes")  # causes of whole groups are named above the rows
        if not self._instead:
            names |= {*self.listing.needed}
        if self.logs.broker_logs and "causes" in names:
            from rmqtx.verdicts.causes.evidence import NEEDED_COLUMNS

            names |= {*NEEDED_COLUMNS}
        return names

    @property
    def _instead(self) -> bool:
        """Whether the summary or the findings are listed instead of transactions."""
        return self.asked.findings or self.asked.summary

    def _rows_instead(self, reading: VerdictReading) -> pa.Table:
        from rmqtx.readers.model.findings import findings_table

        return self.counted.table() if self.asked.summary else findings_table(reading.findings)

    def say_rest(self, source: Source) -> None:
        """Print what follows the rows: summary, flags, damage."""
        from rmqtx_cli.output.table import print_table
        from rmqtx_cli.pages.summary import COUNTS_VIEW

        if not self.asked.summary and not self.listing.voice.quiet:
            print_table(self.counted.table(), COUNTS_VIEW)
        for line in self.counted.lines(source.stores, self._met, self.at_ms):
            self.listing.voice.note(line)
