"""Commands that write tables and compare them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rmqtx_cli.commands import Command, Example
from rmqtx_cli.options import completion
from rmqtx_cli.options.engine import EngineOptions
from rmqtx_cli.options.ledger_options import (
    MATCH_OPTION,
    LedgerTableOption,
    MissingOption,
    done_option,
    not_done_option,
)
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import (
    AtOption,
    BrokerConfOption,
    BrokerVersionOption,
    DecoderOption,
    FailOnOption,
    FieldsOption,
    FormatOption,
    LimitOption,
    OptionalStoreArguments,
    OutputFormat,
    OutputOption,
    OutputOptions,
    ProvenanceOptions,
    RowForm,
    StoreArguments,
    StoreOptions,
    TracedStoreOptions,
    VoiceOptions,
    WhereOption,
    WideOption,
)
from rmqtx_cli.words.text import stored_text


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


@dataclass(frozen=True, slots=True)
class FilesOptions:
    """Format and columns of the files."""

    output_format: Annotated[
        OutputFormat, typer.Option("--format", help="Format of the files: parquet, arrow, csv or jsonl")
    ] = OutputFormat.PARQUET
    form: RowForm = field(default_factory=RowForm)
    fields: FieldsOption = None
    body: Annotated[
        Bodies, typer.Option("--body", help="Export bodies too: raw is as stored, inflated is decompressed")
    ] = Bodies.NONE
    body_decoder: DecoderOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportCommand(Command):
    """Write a table to files below a directory: topic=T/day=YYYY-MM-DD/part-*.

    A file gets its name when it is complete. The next run continues an interrupted one, or adds the rows that are new:
    no row is written twice. Transactions change as the log grows, so each run replaces them. With Spark, all tasks must
    be able to write to the directory.

    --body-decoder CMD writes what a filter makes of each body into the column body_decoded, as rmqtx search prints it;
    each process that reads the log runs a filter of its own.
    """

    NAME = "export"
    MODULE = "reading.export"
    EXAMPLES = (
        Example("rmqtx export records STORE --to DIR", "all records as Parquet; run again to add new records"),
        Example("rmqtx export transactions STORE --to DIR", "all transactions; replaces those of the previous run"),
        Example("rmqtx export halves STORE --to DIR --format jsonl", "half copies as JSON lines"),
        Example("rmqtx export traces STORE --to DIR", "what producers wrote about their transactions"),
        Example("rmqtx export records BROKER_A BROKER_B --to DIR --body raw --engine spark", "with bodies, with Spark"),
    )

    context: typer.Context
    table: Annotated[
        Table, typer.Argument(metavar="TABLE", help="Table to export: records, halves, ops, traces or transactions")
    ]
    store: StoreArguments
    to: Annotated[
        str,
        typer.Option("--to", metavar="DIR", help="Directory of the files: new, or of an export to continue"),
    ]
    kind: FilesOptions
    listed: Annotated[bool, typer.Option("--list", help="List the files written, with their number of rows")] = False
    engine: EngineOptions
    provenance: ProvenanceOptions
    files: TracedStoreOptions
    voice: VoiceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommand(Command):
    """Keep a table of verdicts up to date: read what was appended to the logs, and change its rows in one commit.

    The first run reads the whole store and makes the table. A row is one state of a transaction; earlier states stay,
    with the times between which they were current. A run reads little, so it is local unless Spark is asked for.
    """

    NAME = "table"
    MODULE = "reading.table"
    EXAMPLES = (
        Example("rmqtx table STORE --into /var/lib/rmqtx/verdicts", "a folder of Parquet; again: what is new"),
        Example(
            "rmqtx table STORE --into delta:s3://lake/verdicts --checkpoint orders.sqlite",
            "Delta Lake, in an object store",
        ),
        Example(
            "rmqtx table STORE --into iceberg:prod.audits.verdicts --checkpoint orders.sqlite", "Apache Iceberg"
        ),
    )

    store: StoreArguments
    into: Annotated[
        str,
        typer.Option(
            "--into", metavar="TABLE",
            help="The table: a folder or URI of Parquet, delta:PLACE, or iceberg:CATALOG.NAMESPACE.TABLE",
        ),
    ]
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint", metavar="FILE",
            help="Keep what was read in FILE, for the next run; default: in a table that is a folder of this machine",
        ),
    ] = None
    engine: EngineOptions
    files: TracedStoreOptions
    voice: VoiceOptions


@dataclass(frozen=True, slots=True)
class SidesOptions:
    """The two sides to compare."""

    sides: Annotated[
        list[str],
        typer.Argument(
            metavar="SIDE", help="Two sides, each a store or a file written by audit; or one store, with --at"
        ),
    ]
    at: AtOption = None
    and_at: Annotated[
        str | None, typer.Option("--and-at", metavar="TIME", help="The later of two times; default: now")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffCommand(Command):
    """List the transactions that appeared, vanished or changed between two stores, two audits or two times.

    Transactions are matched by id, producer group and topic. State, flags and the number of records are compared;
    offsets are not, because a restored copy or a slave can have other ones.
    """

    NAME = "diff"
    MODULE = "reading.diff"
    EXAMPLES = (
        Example("rmqtx diff BEFORE AFTER", "an older copy and the store, or a master and its slave"),
        Example("rmqtx diff STORE --at 2026-01-02T03:00:00Z --and-at 2026-01-02T04:00:00Z", "one store at two times"),
        Example("rmqtx diff yesterday.parquet today.parquet", "two results of rmqtx audit -o"),
        Example("rmqtx diff BEFORE AFTER --exit-code --quiet", "for a script: exit status 1 if there is a difference"),
    )

    context: typer.Context
    asked: SidesOptions
    where: WhereOption = None
    limit: LimitOption = None
    exit_code: Annotated[
        bool,
        typer.Option(
            "--exit-code",
            help="Exit with status 1 if a difference is listed, 0 if none. Status 3 (damage or UNDECIDABLE "
            "transactions) and 10 (a side cannot be read) take precedence: not everything was compared",
        ),
    ] = False
    fail_on: FailOnOption = None
    output: OutputOptions
    engine: EngineOptions
    provenance: ProvenanceOptions
    broker_conf: BrokerConfOption = None
    broker_version: BrokerVersionOption = None
    voice: VoiceOptions


_ORDERS = "--match 'keys = order_id' --done 'status = PAID' --not-done 'status = CANCELLED'"


@dataclass(frozen=True, slots=True)
class LedgerOptions:
    """The ledger, and how its rows are read."""

    ledger: Annotated[
        str | None,
        typer.Option(
            "--ledger", metavar="PLACE",
            help="The ledger: a Parquet or CSV file or directory, sqlite:///FILE, or jdbc:... with Spark",
        ),
    ] = None
    match: Annotated[str | None, MATCH_OPTION] = None
    done: Annotated[str | None, done_option()] = None
    not_done: Annotated[str | None, not_done_option()] = None
    trace: Annotated[
        bool,
        typer.Option(
            "--trace",
            help="Take the last decisions in the producers' message traces as the ledger, instead of --ledger"
        ),
    ] = False
    ledger_table: LedgerTableOption = None
    ledger_driver_jar: Annotated[
        Path | None,
        typer.Option("--ledger-driver-jar", metavar="JAR", help="JDBC driver, if Spark does not have it yet"),
    ] = None
    missing_is_not_done: MissingOption = False


@dataclass(frozen=True, slots=True)
class WantedOptions:
    """Which rows to list, as of when, and where to write a plan."""

    plan: Annotated[
        Path | None,
        typer.Option("--plan", metavar="FILE", help="Write a plan of what the ledger settles, for rmqtx apply"),
    ] = None
    every: Annotated[bool, typer.Option("--all", help="Also list transactions where broker and ledger agree")] = False
    where: WhereOption = None
    limit: LimitOption = None
    at: AtOption = None
    fail_on: FailOnOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileCommand(Command):
    """Compare every transaction with the application's ledger, and list what to do.

    The ledger shows what the local transaction did; the broker has only the decision that it received. Where the broker
    has no decision, the decision of the ledger is advised. Where the two contradict each other, the contradiction is
    listed and nothing is changed. If a ledger row matches several transactions, or several rows match one transaction,
    nothing is decided. Rows to act on come first. Ledger rows without a transaction are counted; a --match that matches
    nothing is an error.

    With --trace the last decision in the message traces of Java producers (4.9.0+) is the ledger. It is what the
    producer decided, not what its database did: where these can differ, ask the application before you apply a plan. A
    transaction without a line shows nothing.
    """

    NAME = "reconcile"
    MODULE = "reading.reconcile"
    EXAMPLES = (
        Example(f"rmqtx reconcile STORE --ledger orders.parquet {_ORDERS}", "where broker and ledger disagree"),
        Example(
            f"rmqtx reconcile STORE --ledger sqlite:///shop.db --ledger-table orders {_ORDERS} --plan plan.json",
            "write a plan that settles them",
        ),
        Example(
            "rmqtx reconcile STORE --trace --plan plan.json", "what the producers decided, by their message traces"
        ),
        Example(
            f"rmqtx reconcile STORE --ledger jdbc:postgresql://db/shop --ledger-table orders {_ORDERS} "
            "--ledger-driver-jar postgresql.jar",
            "a database, with Spark; set RMQTX_LEDGER_USER and RMQTX_LEDGER_PASSWORD",
        ),
    )

    context: typer.Context
    store: StoreArguments
    ledger: LedgerOptions
    wanted: WantedOptions
    output: OutputOptions
    engine: EngineOptions
    provenance: ProvenanceOptions
    files: TracedStoreOptions
    voice: VoiceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleCommand(Command):
    """Write the smallest part of a store that still shows some transactions, or some findings of verify.

    The bundle is a store with the same offsets, and every reading command can read it; it contains only the selected
    records.
    It is read back and compared before it gets its name. The rows list the id of each transaction in the bundle.
    """

    NAME = "bundle"
    MODULE = "repairing.bundle"
    EXAMPLES = (
        Example("rmqtx bundle STORE --transaction ORDER-4711 -o case.tar.xz", "one transaction with all its records"),
        Example("rmqtx bundle STORE --transaction ORDER-4711 --redact -o case.tar.xz", "without bodies and names"),
        Example(
            "rmqtx bundle STORE --finding slot-mismatch --to case", "what shows the findings of verify with one code"
        ),
        Example(
            "rmqtx bundle STORE --transaction ID --redact --redact-key-file key -o two.tar.xz",
            "with the pseudonyms of an earlier bundle",
        ),
    )

    store: Annotated[
        str, typer.Argument(metavar="STORE", help="Root of a broker's store, the directory that contains commitlog/")
    ]
    transaction: Annotated[
        list[str] | None,
        typer.Option(
            "--transaction", "-t", parser=stored_text, metavar="ID",
            help="Transaction id, message id of any of its records, or business key; repeatable",
        ),
    ] = None
    finding: Annotated[
        list[str] | None,
        typer.Option("--finding", metavar="CODE", help="Code of a finding of rmqtx verify; repeatable"),
    ] = None
    output: Annotated[
        Path | None, typer.Option(
            "--output", "-o", metavar="FILE.tar.xz", help="Archive to write; it must not exist yet"
        )
    ] = None
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Write a directory instead; it must not exist yet")
    ] = None
    redact: Annotated[
        bool,
        typer.Option(
            "--redact",
            help="Replace bodies by length and keyed hash; names, ids, keys and hosts by stable pseudonyms",
        ),
    ] = False
    redact_key_file: Annotated[
        Path | None,
        typer.Option(
            "--redact-key-file", metavar="FILE",
            help="Key of the pseudonyms, created if FILE does not exist; default: a random key that is not kept",
        ),
    ] = None
    no_scan: Annotated[
        bool,
        typer.Option(
            "--no-scan", help="Read queues and index instead of the whole log: fast, but damage in the log is not seen"
        ),
    ] = False
    output_format: FormatOption = None
    form: RowForm
    files: StoreOptions
    voice: VoiceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlCommand(Command):
    """Query the tables of stores in SQL, by DuckDB: transactions, halves, ops, records, findings, causes, trace.

    A query reads the tables and columns that it names, and nothing is copied to disk. Files of other systems can be
    joined: read_csv, read_parquet, read_json. Only queries are possible. Without a statement, one is typed at a prompt,
    or read from standard input. The columns are those of the table in Arrow files: DESCRIBE transactions lists them;
    findings has what verify finds, causes what diagnose finds. The status is 3 if what was read is damaged or missing,
    or a transaction is UNDECIDABLE, in the rows of the answer or not.
    """

    NAME = "sql"
    MODULE = "reading.sql"
    EXAMPLES = (
        Example('rmqtx sql "SELECT state, count(*) FROM transactions GROUP BY state" STORE', "count the states"),
        Example(
            "rmqtx sql \"FROM transactions JOIN 'orders.csv' USING (keys)\" STORE",
            "join with a ledger that has a column keys",
        ),
        Example(
            'rmqtx sql "FROM records SELECT topic, sum(length_bytes) GROUP BY ALL" STORE -o sizes.csv', "into a file"
        ),
        Example("rmqtx sql STORE", "type statements at a prompt"),
    )

    store: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STATEMENT] STORE", autocompletion=completion.stores,
            help="A statement in SQL, if one is given, and roots of stores: paths, s3://BUCKET/PATH, patterns "
            "(quoted), or names from the configuration file; default: $RMQTX_STORE",
        ),
    ] = None
    output_format: FormatOption = None
    form: RowForm = field(default_factory=RowForm)
    output: OutputOption = None
    files: TracedStoreOptions
    voice: VoiceOptions


@dataclass(frozen=True, slots=True)
class ProvedOptions:
    """Which verdicts of a proof are checked."""

    sample: Annotated[
        int | None,
        typer.Option(
            "--sample", metavar="N", min=1, help="Check N verdicts, drawn at random, and read only their bytes"
        ),
    ] = None
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Draw the sample by this number; default: 0")] = 0
    transaction: Annotated[
        str | None,
        typer.Option(
            "--transaction", parser=stored_text, metavar="ID", help="Check only the verdict on this transaction id"
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProveCommand(Command):
    """Check a proof on a copy of the store: read the bytes that it names, judge again, and compare.

    The rows list each verdict as same, differs or unknown, with the bytes, the column or the setting that
    differs. Without --sample and --transaction all of the store is read and judged again.

    Exit status 0: everything that was asked for is the same. 1: something differs. 3: something is unknown.
    """

    NAME = "prove"
    MODULE = "reading.prove"
    EXAMPLES = (
        Example("rmqtx audit STORE --proof audit.json -o verdicts.parquet", "write a proof beside the verdicts"),
        Example("rmqtx prove audit.json --store COPY", "check all of it"),
        Example("rmqtx prove audit.json.gz --store COPY --sample 1000 --seed 7", "check 1,000 verdicts"),
        Example("rmqtx prove audit.json --store COPY --where 'result != same'", "list only what is not the same"),
    )

    context: typer.Context
    proof: Annotated[Path, typer.Argument(metavar="FILE", help="Proof that --proof wrote, also compressed (.gz)")]
    store: Annotated[
        list[str],
        typer.Option("--store", metavar="COPY", help="Copy of a store of the proof; for several in their order"),
    ]
    asked: ProvedOptions
    where: WhereOption = None
    limit: LimitOption = None
    output: OutputOptions
    files: StoreOptions
    voice: VoiceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class McpCommand(Command):
    """Serve an assistant by the Model Context Protocol, on stdin and stdout, until stdin ends.

    Tools: pending, show, diagnose, verify, simulate, explain, receipts, producers, and plan, which only writes a plan
    file into --plans. No tool acts. The assistant reads the stores or brokers of this command line and nothing else.
    Text of producers is escaped and marked as data. Needs the extra mcp: pip install 'rmqtx[mcp]'.
    """

    NAME = "mcp"
    MODULE = "reading.mcp"
    EXAMPLES = (
        Example("rmqtx mcp /data/rocketmq/store", "an assistant may read one store"),
        Example("rmqtx mcp -n 10.0.0.1:9876 --plans plans", "live brokers, and write plans into a folder"),
        Example("claude mcp add rmqtx -- rmqtx mcp /data/rocketmq/store", "for an assistant that starts it"),
    )

    store: OptionalStoreArguments = None
    plans: Annotated[
        Path | None,
        typer.Option("--plans", metavar="DIR", help="Folder for plan files; default: plans are refused"),
    ] = None
    files: StoreOptions
    live: LiveOptions


class SchemaFormat(StrEnum):
    """How tables and columns are written."""

    TABLE = "table"
    JSON = "json"
    ODCS = "odcs"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaCommand(Command):
    """List the tables of rmqtx, and each column with its type, its unit and its meaning.

    They are the tables of all commands, files and libraries, and of Spark. No store is read. json is one document for
    programs, with the parts of lists and the values of closed lists; odcs is a contract of the Open Data Contract
    Standard 3 in YAML, for data catalogues and tools that check data.
    """

    NAME = "schema"
    MODULE = "reading.schema"
    EXAMPLES = (
        Example("rmqtx schema transactions", "the columns of one table"),
        Example("rmqtx schema --format json", "all tables, for a program"),
        Example("rmqtx schema transactions records --format odcs -o rmqtx.yaml", "a contract for two tables"),
    )

    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="TABLE", autocompletion=completion.tables, help="Names of tables; default: all"),
    ] = None
    output_format: Annotated[
        SchemaFormat | None,
        typer.Option(
            "--format", show_default=False,
            help="table, json or odcs; default: by the suffix of --output (.json, .yaml, .txt), else table",
        ),
    ] = None
    output: OutputOption = None
    wide: WideOption = False
    voice: VoiceOptions


COMMANDS: tuple[type[Command], ...] = (
    SchemaCommand,
    ExportCommand,
    TableCommand,
    DiffCommand,
    ReconcileCommand,
    BundleCommand,
    SqlCommand,
    ProveCommand,
    McpCommand,
)
