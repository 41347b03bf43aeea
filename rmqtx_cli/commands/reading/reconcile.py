"""`rmqtx reconcile`: transactions against the business ledger."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
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
    LimitOption,
    OutputOptions,
    ProvenanceOptions,
    StoreArguments,
    StoreOptions,
    VoiceOptions,
    WhereOption,
)
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count, stored_text
from rmqtx_cli.words.times import asked_time_ms

if TYPE_CHECKING:
    import pyarrow as pa

    from readers.model.reading import Reading
    from repairs.receipts.planner import Planner
    from rmqtx_cli.options.ledgers import Question
    from rmqtx_cli.sources.engine_run import EngineRun
    from rmqtx_cli.sources.opening import Opened
    from verdicts.ledger.join import LedgerFit

NAME = "reconcile"
SHORT = "transactions against the business ledger"
_ORDERS = "--match 'keys = order_id' --done 'status = PAID' --not-done 'status = CANCELLED'"
EXAMPLES = (
    Example(f"rmqtx reconcile STORE --ledger orders.parquet {_ORDERS}", "what broker and ledger disagree about"),
    Example(
        f"rmqtx reconcile STORE --ledger sqlite:///shop.db --ledger-table orders {_ORDERS} --plan plan.json",
        "and a plan to settle it",
    ),
    Example(
        f"rmqtx reconcile STORE --ledger jdbc:postgresql://db/shop --ledger-table orders {_ORDERS} "
        "--ledger-driver-jar postgresql.jar",
        "a database, through Spark; RMQTX_LEDGER_USER and RMQTX_LEDGER_PASSWORD are in the environment",
    ),
)

LedgerOption = Annotated[
    str,
    typer.Option(
        "--ledger", metavar="PLACE",
        help="The ledger: a Parquet or CSV file or directory, sqlite:///FILE, or jdbc:... with Spark.",
    ),
]
LedgerTableOption = Annotated[
    str | None, typer.Option("--ledger-table", metavar="NAME", help="The table or view, if the ledger is a database.")
]
MatchOption = Annotated[
    str,
    typer.Option(
        "--match", parser=stored_text, metavar="EXPR",
        help="Which row a transaction is about: \"keys = order_id\"; each word of keys may match; "
        "\"keys ~ '^order-([0-9]+)$' = id\" compares a part; several joined by and.",
    ),
]
DoneOption = Annotated[
    str,
    typer.Option(
        "--done", parser=stored_text, metavar="EXPR", help="The row says that it was done: \"status = PAID\"."
    ),
]
NotDoneOption = Annotated[
    str, typer.Option("--not-done", parser=stored_text, metavar="EXPR", help="The row says that it was not done.")
]
MissingOption = Annotated[
    bool,
    typer.Option(
        "--missing-is-not-done",
        help="A transaction without a row was not done: only if no row is ever written, or removed, otherwise.",
    ),
]
PlanOption = Annotated[
    Path | None,
    typer.Option("--plan", metavar="FILE", help="Write a plan of what the ledger settles, to be reviewed and applied."),
]
AllOption = Annotated[bool, typer.Option("--all", help="Also list transactions that broker and ledger agree about.")]
JarOption = Annotated[
    Path | None,
    typer.Option("--ledger-driver-jar", metavar="JAR", help="The JDBC driver, if Spark does not have it yet."),
]


@dataclass(frozen=True, slots=True)
class LedgerOptions:
    """The ledger, and what a row of it says."""

    ledger: LedgerOption
    match: MatchOption
    done: DoneOption
    not_done: NotDoneOption
    ledger_table: LedgerTableOption = None
    ledger_driver_jar: JarOption = None
    missing_is_not_done: MissingOption = False

    @property
    def question(self) -> Question:
        """The same, understood as far as it can be before the ledger is opened.

        Raises: BadRequest.
        """
        from rmqtx_cli.options.ledgers import Question

        jar = None if self.ledger_driver_jar is None else str(self.ledger_driver_jar)
        return Question(self.ledger, self.ledger_table, self.match, self.done, self.not_done, jar)


@dataclass(frozen=True, slots=True)
class WantedOptions:
    """Which rows are wanted, as of when, and whether a plan is."""

    plan: PlanOption = None
    every: AllOption = False
    where: WhereOption = None
    limit: LimitOption = None
    at: AtOption = None
    fail_on: FailOnOption = None

    @property
    def condition(self) -> str | None:
        """What a row that is listed fulfils."""
        texts = (self.where, None if self.every else "outcome != agrees")
        return " and ".join(f"({text})" for text in texts if text) or None


@with_option_groups
def command(
    context: typer.Context,
    store: StoreArguments,
    *,
    ledger: LedgerOptions,
    wanted: WantedOptions,
    output: OutputOptions,
    engine: EngineOptions,
    provenance: ProvenanceOptions,
    files: StoreOptions,
    voice: VoiceOptions,
) -> int:
    """Compare every transaction with the business ledger, and say what to do about it.

    The ledger knows what the local transaction did, the broker only what it was told. Where the broker has no decision,
    the ledger's is advised; where both say the opposite, that is said, and never undone. A ledger row that fits several
    transactions, or the other way round, decides nothing. Rows to act on come first; ledger rows that are of no
    transaction are counted, and a --match that fits nothing at all is an error.
    """
    from repairs.receipts.planner import Planner
    from rmqtx_cli.options.ledgers import Comparison
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.output.views import RECONCILED_VIEW
    from rmqtx_cli.sources.engine_run import engine_run
    from rmqtx_cli.sources.opening import open_stores, refuse_inside, say_header
    from verdicts.ledger.outcome_order import by_outcome
    from verdicts.ledger.reconcile import RECONCILED

    at_ms = asked_time_ms("--at", wanted.at, voice)
    question = ledger.question
    engine = _for_ledger(engine, question)
    listing = Listing(
        RECONCILED, RECONCILED_VIEW, output, wanted.condition, wanted.fail_on, wanted.limit, voice, provenance.with_meta
    )
    if wanted.plan is not None and at_ms is not None:
        raise BadRequest("--plan is about the store as it is now, and --at asks for a past time")
    opened = open_stores(store, files)
    refuse_inside(output.output, opened.stores)
    refuse_inside(wanted.plan, opened.stores)
    say_header(opened, voice)
    counted, planner = Comparison(), Planner(opened.stores, question.name)
    with engine_run(
        context, "reconciling", opened.stores, listing, engine, provenance, is_wanted=wanted.plan is not None,
        inputs=question.files,
    ) as run:
        reading = _ReconcileRun(run, opened, question, at_ms, ledger.missing_is_not_done, counted.fit).reading()
        rows = by_outcome(_fitting(reading, question, counted.fit), temporary_directory=engine.temporary_directory)
        listing.write(planner.watching(counted.watching(rows)), to_the_end=True)
    for line in counted.lines():
        voice.note(line)
    if wanted.plan is not None and run.provenance is not None:
        _write_plan(planner, run.provenance, wanted.plan, voice)
    following = None if at_ms is not None else counted.next_line(wanted.plan)
    if following is not None:
        voice.note(following)
    return listing.conclude(reading, has_undecidable=counted.undecidable_count > 0)


def _for_ledger(options: EngineOptions, question: Question) -> EngineOptions:
    """The engine that can read the ledger: a database is read by Spark."""
    if not question.is_jdbc:
        return options
    if options.engine is EngineName.LOCAL:
        raise BadRequest("--ledger jdbc: is read by Spark", advice="--engine spark, or an sqlite:/// or Parquet ledger")
    jars = [] if question.driver_jar is None else [f"spark.jars={question.driver_jar}"]
    return replace(options, engine=EngineName.SPARK, conf=[*(options.conf or ()), *jars])


def _fitting(batches: Iterable[pa.RecordBatch], question: Question, fit: LedgerFit) -> Iterator[pa.RecordBatch]:
    """The same batches, none of them where `--match` fits nothing."""
    for batch in batches:
        question.assert_fits(fit)
        yield batch


def _write_plan(planner: Planner, facts: dict[str, Any], file: Path, voice: Voice) -> None:
    from rmqtx_cli.output.streams import open_stream

    plan = planner.plan(facts, time.time_ns() // 1_000_000)
    with open_stream(file) as stream:
        stream.write(plan.text().encode())
    voice.note(f"{file}: a plan of {count(len(plan.steps), 'step')}")


@dataclass(frozen=True, slots=True)
class _ReconcileRun:
    """One comparison, by whichever engine."""

    run: EngineRun
    opened: Opened
    question: Question
    at_ms: int | None
    missing_is_not_done: bool
    fit: LedgerFit

    def reading(self) -> Reading:
        """The rows of RECONCILED, and what was said about reading them."""
        return self._by_spark() if self.run.engine.name == "spark" else self._here()

    def _here(self) -> Reading:
        from readers.ledger.ledger import open_ledger
        from verdicts.ledger.join import reconcile
        from verdicts.ledger.reconcile import RECONCILED

        ledger = open_ledger(self.question.location, self.question.table, self.question.text_columns)
        asked = self.question.understood(ledger.schema)
        reading = self.run.engine.audit(
            self.opened.stores, self.opened.settings_of, at_ms=self.at_ms, progress=self.run.progress
        )
        reading.batches = reconcile(
            reading.batches, ledger, asked.match, asked.done.mask, asked.not_done.mask, asked.columns,
            missing_is_not_done=self.missing_is_not_done,
            temporary_directory=self.run.engine.options.temporary_directory, fit=self.fit,
        )
        reading.schema = RECONCILED
        return reading

    def _by_spark(self) -> Reading:
        from rmqtx_cli.sources.engines import SparkEngine
        from spark_tasks.jobs.ledger import arrow_schema, read_ledger
        from spark_tasks.jobs.reconcile import reconcile
        from spark_tasks.session.errors import translated

        assert isinstance(self.run.engine, SparkEngine)
        question = self.question
        with translated():
            ledger = read_ledger(
                self.run.engine.spark, question.location, question.table, question.text_columns, login=question.login()
            )
            asked = question.understood(arrow_schema(ledger))
            reading = reconcile(
                self.run.engine.spark, self.opened.stores, self.opened.settings_of, ledger.select(*asked.columns),
                asked.match, asked.done.mask, asked.not_done.mask, at_ms=self.at_ms,
                split_bytes=self.run.engine.split_bytes_for(self.opened.stores),
                missing_is_not_done=self.missing_is_not_done, fit=self.fit,
            )
        reading.batches = self.run.engine.watched(reading.batches)
        return reading
