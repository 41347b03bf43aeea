"""`rmqtx audit`: the verdict on every transaction."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from readers.model.errors import BadRequest
from rmqtx_cli.commands import Example
from rmqtx_cli.options.live import LiveOptions, with_live_options
from rmqtx_cli.options.options import (
    AtOption,
    BrokerConfOption,
    BrokerVersionOption,
    CommitLogOption,
    ConfOption,
    EngineName,
    EngineOption,
    FailOnOption,
    FieldsOption,
    FindingsOption,
    FormatOption,
    HashOption,
    LimitOption,
    MasterOption,
    OptionalStoreArguments,
    OutputOption,
    ProcessesOption,
    QuietOption,
    RateOption,
    RemoteOption,
    SplitSizeOption,
    TemporaryOption,
    VerboseOption,
    WhereOption,
    WithMetaOption,
)
from rmqtx_cli.sources.transaction_tables import DatabaseOptions, with_database_options, with_entries
from rmqtx_cli.words import exit_status
from rmqtx_cli.words.durations import parse_duration_ms
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.times import asked_time_ms

if TYPE_CHECKING:
    from readers.model.findings import Finding
    from readers.store.store import Store
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


@with_live_options
@with_database_options
def command(
    context: typer.Context,
    store: OptionalStoreArguments = None,
    where: WhereOption = None,
    flagged: FlaggedOption = False,
    limit: LimitOption = None,
    at: AtOption = None,
    summary: SummaryOption = False,
    follow: FollowOption = False,
    checkpoint: CheckpointOption = None,
    interval: IntervalOption = None,
    until_idle: UntilIdleOption = False,
    findings: FindingsOption = False,
    fail_on: FailOnOption = None,
    fields: FieldsOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    engine: EngineOption = EngineName.AUTO,
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
    split_bytes: SplitSizeOption = None,
    processes: ProcessesOption = None,
    temporary: TemporaryOption = None,
    hash_all: HashOption = False,
    with_meta: WithMetaOption = False,
    commit_log: CommitLogOption = None,
    broker_conf: BrokerConfOption = None,
    broker_version: BrokerVersionOption = None,
    rate: RateOption = None,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
    *,
    live: LiveOptions,
    database: DatabaseOptions,
) -> int:
    """Judge every transaction of the stores: state, flags, reason, advice, and the evidence for each.

    Reads the whole log; of live brokers, all that their half queues still hold. Ends with a summary per group and
    topic, and the next safe command, on stderr.
    """
    from readers.model.findings import findings_table
    from readers.model.tables import FINDINGS, LIVE_TRANSACTIONS, TRANSACTIONS
    from readers.storage.file_systems import expand
    from rmqtx_cli.options.row_options import SORT
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.output.table import print_table
    from rmqtx_cli.output.views import VIEWS, transactions_view
    from rmqtx_cli.pages.summary import SUMMARY, SUMMARY_VIEW, Summary
    from rmqtx_cli.sources.engines import EngineOptions, chosen_engine
    from rmqtx_cli.sources.following import INTERVAL_MS, Following, refuse_with_follow
    from rmqtx_cli.sources.live_reading import arguments, live_source, refuse_with_live, refuse_without_live
    from rmqtx_cli.sources.opening import open_stores, refuse_inside, say_header
    from rmqtx_cli.sources.provenance import take_custody
    from rmqtx_cli.words.progress import shown

    voice = Voice(verbose, quiet)
    at_ms = asked_time_ms("--at", at, voice)
    now_ms = at_ms if at_ms is not None else time.time_ns() // 1_000_000
    is_live = live.instead_of(store or [], "rmqtx audit STORE, or rmqtx audit -n HOST:PORT")
    if is_live:
        refuse_with_live({
            "--at": at, "--follow": follow, "--master": master, "--remote": remote, "--conf": conf, "--hash": hash_all,
            "--split-size": split_bytes, "--processes": processes, "--temp-dir": temporary, "--with-meta": with_meta,
            "--engine": engine is not EngineName.AUTO, "--commitlog": commit_log, "--broker-conf": broker_conf,
            "--broker-version": broker_version, "--transaction-table": database.address,
        })
    else:
        refuse_without_live(rate)
    places = expand(store or [])
    view = transactions_view(
        now_ms, with_state=True, with_store=is_live or len(places) > 1, with_producers=is_live
    )
    condition = " and ".join(f"({text})" for text in (where, "flags ~ ." if flagged else None) if text) or None
    if follow:
        refuse_with_follow({
            "--at": at, "--limit": limit, "--summary": summary, "--findings": findings, "--output": output,
            "--hash": hash_all, "--with-meta": with_meta, "--split-size": split_bytes,
            "--transaction-table": database.address, "--sort": SORT.get(),
        })
        view = dataclasses.replace(view, nothing="nothing is new, and nothing has changed")
    elif condition is not None:
        view = dataclasses.replace(view, nothing="no transaction fulfils the condition")
    if not follow and (checkpoint is not None or interval is not None or until_idle):
        raise BadRequest("--checkpoint, --interval and --until-idle belong to --follow")
    if summary and findings:
        raise BadRequest("--summary and --findings are two listings: ask for one")
    rows_schema = LIVE_TRANSACTIONS if is_live else TRANSACTIONS
    schema, view = (
        (SUMMARY, SUMMARY_VIEW) if summary else (FINDINGS, VIEWS["findings"]) if findings else (rows_schema, view)
    )
    engine_options = database.engine_of(
        EngineOptions(engine, master, remote, conf, split_bytes, processes, temporary)
    )
    listing = Listing(
        schema, view, output_format, output, fields, condition, fail_on, limit, voice, with_meta, now_ms=now_ms
    )
    if follow:
        interval_ms = INTERVAL_MS if interval is None else parse_duration_ms(interval)
        return Following(
            places, engine_options, commit_log, broker_conf, broker_version, checkpoint, interval_ms, until_idle, voice
        ).run(listing)
    counted = Summary()
    met: list[Finding] = []

    def written(reading: VerdictReading, stores: list[Store], where_to_look: str, brokers: str | None) -> int:
        def answer() -> Iterator[str]:
            return counted.answer(stores, where_to_look, reading.findings, reading.check_stops, now_ms, brokers)

        batches = counted.watching(reading)
        if findings or summary:
            for _ in batches:
                pass
            rows = counted.table() if summary else findings_table(reading.findings)
            listing.write(iter(rows.to_batches()), to_the_end=True, answer=answer)
        else:
            listing.write(batches, to_the_end=True, answer=answer)
        listing.say_limit("row" if findings or summary else "transaction")
        met.extend(reading.findings)
        return listing.conclude(reading)

    if is_live:
        with live_source(live, voice, rate) as source:
            status = written(source.audit(), [], arguments(live), arguments(live))
        lines = counted.lines([], met)
    else:
        opened = open_stores(places, commit_log, broker_conf, broker_version)
        refuse_inside(output, opened.stores)
        say_header(opened, voice)
        with chosen_engine(engine_options, opened.stores, voice) as given, shown("auditing", voice) as progress:
            take_custody(context, listing, given, opened.stores, hash_all=hash_all, voice=voice)
            table = database.read(opened.stores, given)
            reading = given.audit(opened.stores, opened.settings_of, at_ms=at_ms, progress=progress)
            reading.batches = with_entries(reading.batches, table)
            status = written(reading, opened.stores, opened.arguments, None)
        lines = counted.lines(opened.stores, met)
    if not summary and not quiet:
        print_table(counted.table(), SUMMARY_VIEW)
    for line in lines:
        voice.note(line)
    if counted.states["UNDECIDABLE"] and status in (exit_status.DONE, exit_status.FINDINGS):
        return exit_status.INCOMPLETE
    return status
