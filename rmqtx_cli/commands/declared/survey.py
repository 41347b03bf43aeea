"""Declarations of the further commands under "Look": whole stores, records, words of the output."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rmqtx_cli.commands import Command, Example
from rmqtx_cli.options import completion
from rmqtx_cli.options.command_tree import OwnStore
from rmqtx_cli.options.engine import EngineOptions
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import (
    AtOption,
    BodyForm,
    BodyOption,
    CommitLogOption,
    DecoderOption,
    FailOnOption,
    FindingsOption,
    FlaggedOption,
    GroupOption,
    HashOption,
    LimitOption,
    OptionalStoreArguments,
    OutputOptions,
    ProofOption,
    ProvenanceOptions,
    ProxyConfOption,
    RangeOptions,
    StoreArguments,
    StoreOptions,
    VoiceOptions,
    WhereOption,
)
from rmqtx_cli.options.source_options import LogOptions, NoPagerOption, SourceOptions
from rmqtx_cli.words.text import stored_text

OneTransactionOption = Annotated[
    str | None,
    typer.Option(
        "--transaction", parser=stored_text, metavar="ID", autocompletion=completion.transaction_ids,
        help="Only this transaction: its id, the message id of any of its records, or its business key",
    ),
]


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Which rows an audit lists, and how."""

    where: WhereOption = None
    flagged: FlaggedOption = False
    limit: LimitOption = None
    at: AtOption = None
    summary: Annotated[
        bool, typer.Option("--summary", help="Print only counts, times, checks per group and topic")
    ] = False
    findings: FindingsOption = False
    fail_on: FailOnOption = None
    partition_by: Annotated[
        str | None,
        typer.Option(
            "--partition-by", metavar="NAME,NAME",
            help="With -o DIR/: folders by day, state, topic, producer_group or store; as day=2026-01-31/state=PENDING",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCommand(Command):
    """List every transaction of the stores: state, flags, reason, advice and evidence.

    Reads the whole commit log; of live brokers, the whole half queues. A summary per group and topic and the next
    safe command follow on stderr.
    """

    NAME = "audit"
    MODULE = "reading.audit"
    EXAMPLES = (
        Example("rmqtx audit STORE --summary", "counts, times and checks per group and topic"),
        Example(
            "rmqtx audit STORE --where 'state = LOST or causes = op-written-late'", "lost, or explained by a cause"
        ),
        Example(
            "rmqtx audit 's3://evidence/*/store' --engine spark -o verdicts/ --partition-by day,state",
            "many stores, with Spark, as a folder of Parquet",
        ),
        Example(
            "rmqtx audit -n 10.0.0.1:9876 --flagged", "transactions with flags, in the half queues of live brokers"
        ),
    )

    context: typer.Context
    store: OptionalStoreArguments = None
    asked: AuditOptions
    proof: ProofOption = None
    output: OutputOptions
    engine: EngineOptions
    provenance: ProvenanceOptions
    logs: LogOptions
    source: SourceOptions


@dataclass(frozen=True, slots=True)
class DiagnoseOptions:
    """Which transactions are diagnosed, and which causes are listed."""

    transaction: OneTransactionOption = None
    where: WhereOption = None
    limit: LimitOption = None
    fail_on: FailOnOption = None
    at: AtOption = None
    proxy_conf: ProxyConfOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnoseCommand(Command):
    """Name the causes of unusual transactions: why checked again, delivered twice, discarded, never checked.

    A cause explains transactions only if their records show it, the release of the broker is known to behave so, and no
    other cause leaves the same records; else it could explain them, and would_decide names what is missing. Causes that
    fit the records but not the release are ruled out. Reads what audit reads, or with --transaction what show reads.
    Some causes show only in the logs of the broker: --broker-logs reads them.
    """

    NAME = "diagnose"
    MODULE = "reading.diagnose"
    EXAMPLES = (
        Example("rmqtx diagnose STORE", "the causes of all unusual transactions, most transactions first"),
        Example("rmqtx diagnose STORE --transaction ORDER-4711", "the causes of one transaction"),
        Example(
            "rmqtx diagnose STORE --broker-version 4.9.7 --broker-logs ~/logs/rocketmqlogs",
            "with the release, if the store does not show it, and with the broker's logs",
        ),
        Example("rmqtx diagnose STORE --where 'strength = explains' --format json", "for a script"),
        Example("rmqtx diagnose -n 10.0.0.1:9876", "of live brokers"),
    )

    context: typer.Context
    store: OptionalStoreArguments = None
    asked: DiagnoseOptions
    output: OutputOptions
    engine: EngineOptions
    provenance: ProvenanceOptions
    logs: LogOptions
    source: SourceOptions


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What a report is about, and where it is written."""

    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="Write the page to FILE: .html, or .md for Markdown"),
    ]
    transaction: OneTransactionOption = None
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare", metavar="OTHER",
            help="Show an earlier store, or a file of an audit (.parquet, .arrow), beside it",
        ),
    ] = None
    hash_all: HashOption = False
    proof: ProofOption = None
    proxy_conf: ProxyConfOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportCommand(Command):
    """Write one page about stores or live brokers, to read in a browser, to print, or to attach to a ticket.

    The page contains what is the matter, numbers by state, a timeline, the cursors of the check, ages, latencies,
    causes, the first pending, lost and twice delivered transactions with their records, damage, and what was read. It
    is one file without scripts, and loads nothing. Reads what audit reads, or with --transaction what show reads.
    """

    NAME = "report"
    MODULE = "reading.report"
    EXAMPLES = (
        Example("rmqtx report STORE -o incident.html", "one page: what is the matter, numbers, causes, evidence"),
        Example("rmqtx report STORE -o incident.md", "the same as Markdown, for a ticket"),
        Example("rmqtx report STORE --transaction ORDER-4711 -o order.html", "one transaction"),
        Example("rmqtx report STORE --compare /backup/yesterday/store -o change.html", "beside yesterday's store"),
        Example("rmqtx report -n 10.0.0.1:9876 -o now.html", "of live brokers"),
    )

    context: typer.Context
    store: OptionalStoreArguments = None
    asked: ReportOptions
    engine: EngineOptions
    logs: LogOptions
    source: SourceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducersCommand(Command):
    """List the producers that are connected to live brokers: clients, addresses, releases, pending transactions.

    A check goes to one of the clients of the transaction's group that are connected to the broker. A group with pending
    transactions and without a client has a row without one: no process answers its checks. A producer that has not
    sent since its start is not listed by most brokers; behind a proxy the proxy is listed in place of its clients. The
    exit status is 3 where evidence is missing, so that pending transactions may be missing too.
    """

    NAME = "producers"
    MODULE = "reading.producers"
    EXAMPLES = (
        Example("rmqtx producers -n 10.0.0.1:9876", "all producers, and the pending transactions that wait for them"),
        Example("rmqtx producers -n 10.0.0.1:9876 --group pay_tx", "those of one group"),
        Example(
            "rmqtx producers -n 10.0.0.1:9876 --fail-on 'client_id is null'", "status 1 if a group has no client"
        ),
    )

    group: GroupOption = None
    where: WhereOption = None
    fail_on: FailOnOption = None
    output: OutputOptions
    voice: VoiceOptions
    live: LiveOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class StoresCommand(Command):
    """List stores: design, broker version, settings, files, offsets, cursors, whether in use, what can be trusted.

    Reads only directory entries and small files, however large the logs are.
    """

    NAME = "stores"
    MODULE = "reading.stores"
    OWN_STORE = OwnStore.OF_ENVIRONMENT  # it lists all stores of the configuration file instead
    EXAMPLES = (
        Example("rmqtx stores /data/rocketmq/store", "one store"),
        Example("rmqtx stores /evidence", "all stores below a directory"),
        Example("rmqtx stores 's3://evidence/*/store'", "stores in object storage, read in place"),
        Example("rmqtx stores", "the stores of the configuration file"),
        Example("rmqtx stores STORE --format json --fields store,half_lag", "one value, for a script"),
    )

    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH",
            help="Roots of stores, or directories above them: paths, URIs, patterns; default: the stores of the "
            "configuration file",
        ),
    ] = None
    where: WhereOption = None
    output: OutputOptions
    files: StoreOptions
    voice: VoiceOptions


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Conditions on records; all that are given must hold."""

    key: Annotated[
        str | None,
        typer.Option(
            "--key", parser=stored_text, metavar="KEY",
            help="Records with this business key (a word of the property KEYS)",
        ),
    ] = None
    identity: Annotated[
        str | None,
        typer.Option(
            "--id", parser=stored_text, metavar="ID",
            help="Records with this UNIQ_KEY, transaction id or offset message id",
        ),
    ] = None
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic", parser=stored_text, metavar="TOPIC",
            help="Records of this topic, and records meant for it: half copies, discard copies, delayed messages",
        ),
    ] = None
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property", parser=stored_text, metavar="NAME=VALUE",
            help="Records with this property; VALUE can contain * ? [] as in file names; repeatable, all must match",
        ),
    ] = None
    body_contains: Annotated[
        str | None,
        typer.Option(
            "--body-contains", parser=stored_text, metavar="TEXT|0xHEX",
            help="Records with this text or these bytes in the body, decompressed if necessary",
        ),
    ] = None
    body_regex: Annotated[
        str | None,
        typer.Option(
            "--body-regex", parser=stored_text, metavar="RE",
            help="Records whose body matches this Python regular expression; an expression with nested repetitions, "
            "like (a+)+, can run without end",
        ),
    ] = None
    within: RangeOptions = field(default_factory=RangeOptions)


@dataclass(frozen=True, slots=True)
class BodiesOptions:
    """How bodies are printed."""

    body: BodyOption = BodyForm.NONE
    body_decoder: DecoderOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchCommand(Command):
    """Find the records of the commit log that meet all given conditions.

    Reads the whole log. --body text prints decompressed bodies, --body raw prints them as stored.

    --body-decoder CMD runs a filter once and prints what it makes of each body: it reads one line of base64 for each
    body, and prints one line of text for each, in the same order and at once (flushed), or an empty line. A filter that
    fails, or takes longer than 10 s for an answer, is ended with a note; the records are printed without its text.
    """

    NAME = "search"
    MODULE = "reading.search"
    EXAMPLES = (
        Example("rmqtx search STORE --key order-21020", "all records with a business key, half copies included"),
        Example("rmqtx search STORE --id 7F00000100002A9F000000000003FC21", "one record, by its message id"),
        Example(
            "rmqtx search STORE --topic orders --body-contains 'order 17' --body text", "text in bodies of a topic"
        ),
        Example(
            "rmqtx search STORE --property 'case=late*' --from 2026-01-02T03:00:00Z", "by a property, from a time on"
        ),
        Example(
            "rmqtx search STORE --body-regex '\"amount\": ?9{4,}' --limit 10", "by a regular expression, the first 10"
        ),
    )

    context: typer.Context
    store: StoreArguments
    asked: SearchOptions
    bodies: BodiesOptions
    where: WhereOption = None
    limit: LimitOption = None
    fail_on: FailOnOption = None
    output: OutputOptions
    engine: EngineOptions
    provenance: ProvenanceOptions
    commit_log: CommitLogOption = None
    voice: VoiceOptions


class Shown(StrEnum):
    """Which rows are printed."""

    CHECKS = "checks"
    ROUNDS = "rounds"
    TRANSACTIONS = "transactions"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What to simulate, and for how many rounds."""

    show: Annotated[
        Shown,
        typer.Option(
            "--show",
            help="checks: one row per half copy and round; rounds: one per round; transactions: one per half copy, "
            "with its discard",
        ),
    ] = Shown.CHECKS
    rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds", min=1, max=10_000, metavar="N",
            help="Number of rounds; default: 3, with --show transactions until all are discarded",
        ),
    ] = None
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--with", metavar="NAME=VALUE",
            help="Compare with another value of a broker setting; repeatable, to change several at once",
        ),
    ] = None
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="TIME",
            help="When a stopped broker starts, or the clock of a running one: ISO 8601, a date, +10m, epoch seconds "
            "or milliseconds; default: now",
        ),
    ] = None
    half_cursor: Annotated[
        int | None, typer.Option("--half-cursor", min=0, metavar="N", help="Start with this half cursor")
    ] = None
    op_cursor: Annotated[
        int | None, typer.Option("--op-cursor", min=0, metavar="N", help="Start with this op cursor")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateCommand(Command):
    """Predict the broker's next checks: which transactions it checks, puts back and discards, and when.

    Simulates the check of half topics (4.3.0+), of the state table (3.0, 3.1) or of RocksDB (5.4.0+), as the store
    requires, by the rules of the broker's version. A stopped broker is assumed to start now, or at --at; no producer
    answers and no half message is sent. Nothing is written. Of a half queue in RocksDB each slot must have its record
    (else exit status 10).
    """

    NAME = "simulate"
    MODULE = "reading.simulate"
    EXAMPLES = (
        Example("rmqtx simulate STORE", "the next three rounds, half by half"),
        Example("rmqtx simulate STORE --show transactions", "when each open transaction is discarded"),
        Example("rmqtx simulate STORE --show rounds --rounds 20", "counts, bytes and cursors of 20 rounds"),
        Example(
            "rmqtx simulate STORE --show transactions --with transactionCheckMax=30", "the same with another setting"
        ),
        Example("rmqtx simulate STORE --half-cursor 0 --op-cursor 0", "the effect of setting the cursors back"),
    )

    store: StoreArguments
    run: RunOptions
    where: WhereOption = None
    fail_on: FailOnOption = None
    limit: LimitOption = None
    output: OutputOptions
    files: StoreOptions
    voice: VoiceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainCommand(Command):
    """Explain words of the output, and name their pages of the documentation.

    Without a word, lists all words by kind.
    """

    NAME = "explain"
    MODULE = "reading.explain"
    EXAMPLES = (
        Example("rmqtx explain", "list all words, by kind"),
        Example("rmqtx explain open_after_decision", "a flag"),
        Example("rmqtx explain decided-twice", "a cause"),
        Example("rmqtx explain transactionCheckMax", "a setting of the broker"),
        Example("rmqtx explain 16", "an exit status"),
    )

    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORD", autocompletion=completion.words,
            help="State, flag, advice, reason, cause, finding, guard, term, setting of the broker, table, column, "
            "structure, response code or exit status",
        ),
    ] = None
    no_pager: NoPagerOption = False


COMMANDS: tuple[type[Command], ...] = (
    AuditCommand,
    DiagnoseCommand,
    ReportCommand,
    ProducersCommand,
    StoresCommand,
    SearchCommand,
    SimulateCommand,
    ExplainCommand,
)
