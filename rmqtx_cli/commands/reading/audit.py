"""`rmqtx audit`: the verdict on every transaction."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from readers.model.errors import BadRequest
from rmqtx_cli.commands import Example
from rmqtx_cli.options.engine import EngineName, EngineOptions
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import (
    AtOption,
    FailOnOption,
    FindingsOption,
    LimitOption,
    OptionalStoreArguments,
    OutputOptions,
    ProvenanceOptions,
    WhereOption,
)
from rmqtx_cli.sources.source import SourceOptions
from rmqtx_cli.words.durations import parse_duration_ms
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.times import asked_time_ms

if TYPE_CHECKING:
    import pyarrow as pa

    from readers.model.findings import Finding
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.sources.source import Door, Source
    from verdicts.model.reading import VerdictReading

NAME = "audit"
SHORT = "the verdict on every transaction"
EXAMPLES = (
    Example("rmqtx audit STORE --where 'state = LOST or flags = duplicate_commit'", "what went wrong"),
    Example("rmqtx audit STORE -o verdicts.parquet", "every transaction with its evidence, for other tools"),
    Example("rmqtx audit MASTER SLAVE --format jsonl", "two copies of a broker's log, one verdict"),
    Example("rmqtx audit 's3://evidence/*/store' --engine spark -o verdicts.parquet", "the same rows from Spark"),
    Example("rmqtx audit STORE --at 2026-01-02T03:04:05Z", "as it was known then"),
    Example("rmqtx audit STORE --summary", "only the counts"),
    Example("rmqtx audit -n 10.0.0.1:9876 --flagged", "what is odd of all that live brokers' half queues hold"),
    Example(
        "rmqtx audit STORE --follow --checkpoint orders.sqlite --format jsonl",
        "each verdict that is new or has changed, for days; a restart goes on",
    ),
)

SummaryOption = Annotated[bool, typer.Option("--summary", help="Only the summary, no row per transaction.")]
FlaggedOption = Annotated[bool, typer.Option("--flagged", help="Only transactions that something is odd about.")]
FollowOption = Annotated[
    bool, typer.Option("--follow", help="Stay, and print each verdict that is new or has changed as the stores grow.")
]
CheckpointOption = Annotated[
    Path | None,
    typer.Option("--checkpoint", metavar="FILE", help="With --follow: where a restart finds what was read and said."),
]
IntervalOption = Annotated[
    str | None,
    typer.Option("--interval", metavar="DURATION", help="With --follow: how often to look again; 10s without it."),
]
UntilIdleOption = Annotated[
    bool, typer.Option("--until-idle", help="With --follow: end when nothing is new; for cron, with --checkpoint.")
]


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """What is asked of an audit."""

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

    @property
    def condition(self) -> str | None:
        """What a row that is listed fulfils."""
        texts = (self.where, "flags ~ ." if self.flagged else None)
        return " and ".join(f"({text})" for text in texts if text) or None

    def check(self) -> None:
        """Refuse what contradicts itself.

        Raises: BadRequest.
        """
        if not self.follow and (self.checkpoint is not None or self.interval is not None or self.until_idle):
            raise BadRequest("--checkpoint, --interval and --until-idle belong to --follow")
        if self.summary and self.findings:
            raise BadRequest("--summary and --findings are two listings: ask for one")


@with_option_groups
def command(
    context: typer.Context,
    store: OptionalStoreArguments = None,
    *,
    asked: AuditOptions,
    output: OutputOptions,
    engine: EngineOptions,
    provenance: ProvenanceOptions,
    source: SourceOptions,
) -> int:
    """Judge every transaction of the stores: state, flags, reason, advice, and the evidence for each.

    Reads the whole log; of live brokers, all that their half queues still hold. Ends with a summary per group and
    topic, and the next safe command, on stderr.
    """
    voice = source.voice
    at_ms = asked_time_ms("--at", asked.at, voice)
    now_ms = at_ms if at_ms is not None else time.time_ns() // 1_000_000
    files_only = {"--at": asked.at, "--follow": asked.follow, **_of_whole_stores(engine, provenance)}
    door = source.door(store or [], "rmqtx audit STORE, or rmqtx audit -n HOST:PORT", files_only)
    if asked.follow:
        _refuse_with_follow(asked, output, engine, provenance, source)
    asked.check()
    engine = source.database.engine_of(engine)
    listing = _listing(asked, output, provenance, door, now_ms, voice)
    if asked.follow:
        return _followed(store or [], asked, engine, source, listing)
    audit = _AuditRun(asked, listing)
    with door.opened(output.output) as opened, opened.audited(context, listing, engine, provenance, at_ms) as reading:
        status = audit.written(reading, opened)
    audit.say_rest(opened)
    return status


def _of_whole_stores(engine: EngineOptions, provenance: ProvenanceOptions) -> dict[str, Any]:
    """What only a reading of whole stores has, by what it is called."""
    return {
        "--master": engine.master, "--remote": engine.remote, "--conf": engine.conf, "--hash": provenance.hash_all,
        "--split-size": engine.split_bytes, "--processes": engine.processes, "--temp-dir": engine.temporary,
        "--with-meta": provenance.with_meta, "--engine": engine.engine is not EngineName.AUTO,
    }  # fmt: skip


def _refuse_with_follow(
    asked: AuditOptions, output: OutputOptions, engine: EngineOptions, provenance: ProvenanceOptions,
    source: SourceOptions,
) -> None:
    """Refuse what only an audit with an end can have.

    Raises: BadRequest.
    """
    from rmqtx_cli.options.row_options import SORT
    from rmqtx_cli.sources.following import refuse_with_follow

    refuse_with_follow({
        "--at": asked.at, "--limit": asked.limit, "--summary": asked.summary, "--findings": asked.findings,
        "--output": output.output, "--hash": provenance.hash_all, "--with-meta": provenance.with_meta,
        "--split-size": engine.split_bytes, "--transaction-table": source.database.address, "--sort": SORT.get(),
    })  # fmt: skip


def _listing(
    asked: AuditOptions, output: OutputOptions, provenance: ProvenanceOptions, door: Door, now_ms: int, voice: Voice
) -> Listing:
    """What is listed: transactions, or the summary or the findings instead."""
    from readers.model.tables import FINDINGS
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.output.views import VIEWS
    from rmqtx_cli.pages.summary import SUMMARY, SUMMARY_VIEW

    schema, view = door.schema, door.view(now_ms, with_state=True)
    if asked.follow:
        view = replace(view, nothing="nothing is new, and nothing has changed")
    elif asked.condition is not None:
        view = replace(view, nothing="no transaction fulfils the condition")
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
    from readers.storage.file_systems import expand
    from rmqtx_cli.sources.following import INTERVAL_MS, Following

    interval_ms = INTERVAL_MS if asked.interval is None else parse_duration_ms(asked.interval)
    return Following(
        expand(stores), engine, source.files, asked.checkpoint, interval_ms, asked.until_idle, source.voice
    ).run(listing)


class _AuditRun:
    """An audit with an end: counts what it lists, and says what that comes to."""

    def __init__(self, asked: AuditOptions, listing: Listing) -> None:
        from rmqtx_cli.pages.summary import Summary

        self.asked, self.listing = asked, listing
        self.counted = Summary()
        self._met: list[Finding] = []

    def written(self, reading: VerdictReading, source: Source) -> int:
        """Write the rows, and above them what they come to; gives the status."""

        def answer() -> Iterator[str]:
            return self.counted.answer(
                source.stores, source.arguments, reading.findings, reading.check_stops, self.listing.now_ms, source.live
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
        return self.listing.conclude(reading, has_undecidable=self.counted.states["UNDECIDABLE"] > 0)

    @property
    def _instead(self) -> bool:
        """Whether something else is listed than transactions."""
        return self.asked.findings or self.asked.summary

    def _rows_instead(self, reading: VerdictReading) -> pa.Table:
        from readers.model.findings import findings_table

        return self.counted.table() if self.asked.summary else findings_table(reading.findings)

    def say_rest(self, source: Source) -> None:
        """Say what stands below the rows: the counts, oddities, cost."""
        from rmqtx_cli.output.table import print_table
        from rmqtx_cli.pages.summary import SUMMARY_VIEW

        if not self.asked.summary and not self.listing.voice.quiet:
            print_table(self.counted.table(), SUMMARY_VIEW)
        for line in self.counted.lines(source.stores, self._met):
            self.listing.voice.note(line)
