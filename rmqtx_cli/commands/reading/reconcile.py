"""`rmqtx reconcile`: compare transactions with a business ledger."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.commands import Example
from rmqtx_cli.options.engine import EngineName, EngineOptions
from rmqtx_cli.options.filters import all_of
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.ledger_options import (
    MATCH_OPTION,
    LedgerTableOption,
    MissingOption,
    done_option,
    not_done_option,
)
from rmqtx_cli.options.options import (
    AtOption,
    FailOnOption,
    LimitOption,
    OutputOptions,
    ProvenanceOptions,
    StoreArguments,
    StoreOptions,
    TracedStoreOptions,
    VoiceOptions,
    WhereOption,
)
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import asked_time_ms

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx.readers.model.reading import Reading
    from rmqtx.readers.traces.trace_scan import TraceLedger
    from rmqtx.repairs.plans.draft_plan import Planner
    from rmqtx.verdicts.ledger.join import LedgerFit
    from rmqtx_cli.options.ledgers import Comparison, LedgerQuery
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.sources.engine_run import EngineRun
    from rmqtx_cli.sources.opening import Opened

NAME = "reconcile"
#: The name of the ledger that --trace stands for.
TRACES_NAME = "the message traces"
_ORDERS = "--match 'keys = order_id' --done 'status = PAID' --not-done 'status = CANCELLED'"
EXAMPLES = (
    Example(f"rmqtx reconcile STORE --ledger orders.parquet {_ORDERS}", "where broker and ledger disagree"),
    Example(
        f"rmqtx reconcile STORE --ledger sqlite:///shop.db --ledger-table orders {_ORDERS} --plan plan.json",
        "write a plan that settles them",
    ),
    Example("rmqtx reconcile STORE --trace --plan plan.json", "what the producers decided, by their message traces"),
    Example(
        f"rmqtx reconcile STORE --ledger jdbc:postgresql://db/shop --ledger-table orders {_ORDERS} "
        "--ledger-driver-jar postgresql.jar",
        "a database, with Spark; set RMQTX_LEDGER_USER and RMQTX_LEDGER_PASSWORD",
    ),
)

LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger", metavar="PLACE",
        help="The ledger: a Parquet or CSV file or directory, sqlite:///FILE, or jdbc:... with Spark",
    ),
]
TraceOption = Annotated[
    bool,
    typer.Option(
        "--trace", help="Take the last decisions in the producers' message traces as the ledger, instead of --ledger"
    ),
]
MatchOption = Annotated[str | None, MATCH_OPTION]
DoneOption = Annotated[str | None, done_option()]
NotDoneOption = Annotated[str | None, not_done_option()]
PlanOption = Annotated[
    Path | None,
    typer.Option("--plan", metavar="FILE", help="Write a plan of what the ledger settles, for rmqtx apply"),
]
AllOption = Annotated[bool, typer.Option("--all", help="Also list transactions where broker and ledger agree")]
JarOption = Annotated[
    Path | None,
    typer.Option("--ledger-driver-jar", metavar="JAR", help="JDBC driver, if Spark does not have it yet"),
]


@dataclass(frozen=True, slots=True)
class LedgerOptions:
    """The ledger, and how its rows are read."""

    ledger: LedgerOption = None
    match: MatchOption = None
    done: DoneOption = None
    not_done: NotDoneOption = None
    trace: TraceOption = False
    ledger_table: LedgerTableOption = None
    ledger_driver_jar: JarOption = None
    missing_is_not_done: MissingOption = False

    @property
    def query(self) -> LedgerQuery:
        """Parsed options, as far as possible before the ledger is opened.

        Raises: BadRequest.
        """
        from rmqtx_cli.options.ledgers import LedgerQuery

        given = {"--ledger": self.ledger, "--match": self.match, "--done": self.done, "--not-done": self.not_done}
        if self.trace:
            self._refuse_with_trace(given)
            return LedgerQuery(
                TRACES_NAME, None, "transaction_id = transaction_id", "decision = COMMIT", "decision = ROLLBACK",
            )
        for name, value in given.items():
            if value is None:
                raise BadRequest(f"{name} is required", advice="see rmqtx reconcile --help; or give --trace")
        jar = None if self.ledger_driver_jar is None else str(self.ledger_driver_jar)
        return LedgerQuery(
            str(self.ledger), self.ledger_table, str(self.match), str(self.done), str(self.not_done), jar
        )


    def _refuse_with_trace(self, given: Mapping[str, str | None]) -> None:
        """Raises: BadRequest for options that describe another ledger."""
        others = {
            **given, "--ledger-table": self.ledger_table, "--ledger-driver-jar": self.ledger_driver_jar,
            "--missing-is-not-done": self.missing_is_not_done,
        }  # fmt: skip
        for name, value in others.items():
            if value not in (None, False):
                raise BadRequest(
                    f"{name} does not go with --trace: the trace is the ledger, and a missing line shows nothing"
                )


@dataclass(frozen=True, slots=True)
class WantedOptions:
    """Which rows to list, as of when, and where to write a plan."""

    plan: PlanOption = None
    every: AllOption = False
    where: WhereOption = None
    limit: LimitOption = None
    at: AtOption = None
    fail_on: FailOnOption = None

    @property
    def condition(self) -> str | None:
        """Condition on the rows to list."""
        texts = (self.where, None if self.every else "outcome != agrees")
        return all_of(texts)


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
    files: TracedStoreOptions,
    voice: VoiceOptions,
) -> int:
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
    from rmqtx.repairs.plans.draft_plan import Planner
    from rmqtx_cli.options.ledgers import Comparison
    from rmqtx_cli.sources.engine_run import engine_run

    at_ms = asked_time_ms("--at", wanted.at, voice, is_of_state=True)
    query = ledger.query
    engine = _for_ledger(engine, query)
    listing = _listing(wanted, output, voice, with_meta=provenance.with_meta)
    if wanted.plan is not None and at_ms is not None:
        raise BadRequest("--plan needs the present state of the store and does not go with --at")
    opened = _opened(store, files, (output.output, wanted.plan), voice)
    counted, planner = Comparison(), Planner(opened.stores, query.name)
    with engine_run(
        context, "reconciling", opened.stores, listing, engine, provenance, is_wanted=wanted.plan is not None,
        inputs=query.files,
    ) as run:
        task = _ReconcileRun(run, opened, query, at_ms, ledger.missing_is_not_done, counted.fit)
        reading = task.reading()
        rows = planner.watching(_rows(reading, query, counted, engine))
        listing.write(rows, to_the_end=True, answer=lambda: [counted.answer()])
    for line in counted.lines():
        voice.note(line)
    if wanted.plan is not None and run.provenance is not None:
        _write_plan(planner, run.provenance, wanted.plan, voice)
    if at_ms is None and (following := counted.next_line(wanted.plan)) is not None:
        voice.note(following)
    unread = [one for one in task.traces.findings if one not in reading.findings]
    reading.findings.extend(unread)  # a line that cannot be read may be the last decision
    return listing.conclude(reading, has_undecidable=counted.undecidable_count > 0 or bool(unread))


def _listing(wanted: WantedOptions, output: OutputOptions, voice: Voice, *, with_meta: bool) -> Listing:
    from rmqtx.verdicts.ledger.reconcile import RECONCILED
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.output.views import RECONCILED_VIEW

    where, fail_on, limit = wanted.condition, wanted.fail_on, wanted.limit
    return Listing(RECONCILED, RECONCILED_VIEW, output, where, fail_on, limit, voice, with_meta)


def _opened(paths: list[str], files: StoreOptions, written: tuple[Path | None, ...], voice: Voice) -> Opened:
    """The stores, with their header line. `written`: files that must not lie inside a store."""
    from rmqtx_cli.sources.opening import open_stores, refuse_inside, say_header

    opened = open_stores(paths, files)
    for file in written:
        refuse_inside(file, opened.stores)
    say_header(opened, voice)
    return opened


def _rows(
    reading: Reading, query: LedgerQuery, counted: Comparison, engine: EngineOptions
) -> Iterator[pa.RecordBatch]:
    """The rows by outcome, counted as they pass; an error where `--match` fits nothing."""
    from rmqtx.verdicts.ledger.reconcile import by_outcome

    fitting = _fitting(reading, query, counted.fit)
    return counted.watching(by_outcome(fitting, temporary_directory=engine.temporary_directory))


def _for_ledger(options: EngineOptions, query: LedgerQuery) -> EngineOptions:
    """Return the engine options that can read the ledger: a database needs Spark."""
    if query.location == TRACES_NAME:
        if options.engine is EngineName.SPARK:
            raise BadRequest(
                "--trace is read without Spark",
                advice="rmqtx decode trace STORE --last -o decisions.parquet, then --ledger decisions.parquet",
            )
        return replace(options, engine=EngineName.LOCAL)
    if not query.is_jdbc:
        return options
    if options.engine is EngineName.LOCAL:
        raise BadRequest("--ledger jdbc: needs Spark", advice="--engine spark, or an sqlite:/// or Parquet ledger")
    jars = [] if query.driver_jar is None else [f"spark.jars={query.driver_jar}"]
    return replace(options, engine=EngineName.SPARK, conf=[*(options.conf or ()), *jars])


def _fitting(batches: Iterable[pa.RecordBatch], query: LedgerQuery, fit: LedgerFit) -> Iterator[pa.RecordBatch]:
    """Yield the same batches; raise BadRequest at the first one if `--match` matches nothing."""
    for batch in batches:
        query.assert_fits(fit)
        yield batch


def _write_plan(planner: Planner, facts: dict[str, Any], file: Path, voice: Voice) -> None:
    from rmqtx_cli.output.streams import open_stream

    plan = planner.plan(facts, time.time_ns() // 1_000_000)
    with open_stream(file) as stream:
        stream.write(plan.text().encode())
    voice.note(f"{file}: plan of {count(len(plan.steps), 'step')}")


@dataclass(slots=True)
class _ReconcileRun:
    """One comparison, by either engine."""

    run: EngineRun
    opened: Opened
    query: LedgerQuery
    at_ms: int | None
    missing_is_not_done: bool
    fit: LedgerFit
    traces: TraceLedger = field(init=False)

    def __post_init__(self) -> None:
        from rmqtx.readers.traces.trace_scan import TraceLedger

        self.traces = TraceLedger(self.opened.stores)

    def reading(self) -> Reading:
        """Return the rows of RECONCILED, with findings and notes."""
        return self._by_spark() if self.run.engine.name == "spark" else self._here()

    def _here(self) -> Reading:
        from rmqtx.readers.ledger.ledger import open_ledger
        from rmqtx.verdicts.ledger.join import reconcile
        from rmqtx.verdicts.ledger.reconcile import RECONCILED

        query = self.query
        is_trace = query.location == TRACES_NAME
        ledger = self.traces if is_trace else open_ledger(query.location, query.table, query.text_columns)
        asked = self.query.parsed(ledger.schema)
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
        from rmqtx.spark_tasks.jobs.ledger import arrow_schema, read_ledger
        from rmqtx.spark_tasks.jobs.reconcile import reconcile
        from rmqtx.spark_tasks.session.errors import translated
        from rmqtx_cli.sources.engines import SparkEngine

        assert isinstance(self.run.engine, SparkEngine)
        query = self.query
        with translated():
            ledger = read_ledger(
                self.run.engine.spark, query.location, query.table, query.text_columns, login=query.login()
            )
            asked = query.parsed(arrow_schema(ledger))
            reading = reconcile(
                self.run.engine.spark, self.opened.stores, self.opened.settings_of, ledger.select(*asked.columns),
                asked.match, asked.done.mask, asked.not_done.mask, at_ms=self.at_ms,
                split_bytes=self.run.engine.split_bytes_for(self.opened.stores),
                missing_is_not_done=self.missing_is_not_done, fit=self.fit,
            )
        reading.batches = self.run.engine.watched(reading.batches)
        return reading
