"""`rmqtx reconcile`: compare transactions with a business ledger."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from rmqtx.readers.ledger.ledger import open_ledger
from rmqtx.readers.model import clock
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.traces import TraceLedger
from rmqtx.repairs.plans.draft_plan import Planner
from rmqtx.verdicts.audit.provenance import Provenance
from rmqtx.verdicts.ledger.join import LedgerFit, reconcile
from rmqtx.verdicts.ledger.reconcile import RECONCILED, by_outcome
from rmqtx_cli.commands.declared.data import LedgerOptions, ReconcileCommand, WantedOptions
from rmqtx_cli.options.engine import EngineName, EngineOptions
from rmqtx_cli.options.filters import all_of
from rmqtx_cli.options.ledgers import Comparison, LedgerQuery
from rmqtx_cli.options.options import OutputOptions, StoreOptions
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.streams import open_stream
from rmqtx_cli.output.views import RECONCILED_VIEW
from rmqtx_cli.sources.engine_port import StoreEngine
from rmqtx_cli.sources.engine_run import EngineRun, engine_run
from rmqtx_cli.sources.opening import Opened, open_stores, refuse_inside, say_header
from rmqtx_cli.sources.provenance import TakenProvenance
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import asked_time_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The name of the ledger that --trace stands for.
TRACES_NAME = "the message traces"


def run(options: ReconcileCommand) -> int:
    """Run the command; return its exit status."""
    engine = options.engine
    at_ms = asked_time_ms("--at", options.wanted.at, options.voice, is_of_state=True)
    query = _query(options.ledger)
    engine = _for_ledger(engine, query)
    listing = _listing(options.wanted, options.output, options.voice, with_meta=options.provenance.with_meta)
    if options.wanted.plan is not None and at_ms is not None:
        raise BadRequest("--plan needs the present state of the store and does not go with --at")
    opened = _opened(options.store, options.files, (options.output.output, options.wanted.plan), options.voice)
    counted, planner = Comparison(), Planner(opened.stores, query.name)
    carrier = listing if options.wanted.plan is None else TakenProvenance(options.voice)
    with engine_run(
        options.context, "reconciling", opened.stores, carrier, engine, options.provenance, inputs=query.files
    ) as run:
        listing.meta = run.provenance
        task = _ReconcileRun(run, opened, query, at_ms, options.ledger.missing_is_not_done, counted.fit)
        reading = run.engine.compared(task)
        rows = planner.watching(_rows(reading, query, counted, engine))
        listing.write(rows, to_the_end=True, answer=lambda: [counted.answer()])
    for line in counted.lines():
        options.voice.note(line)
    if options.wanted.plan is not None and run.provenance is not None:
        _write_plan(planner, run.provenance, options.wanted.plan, options.voice)
    if at_ms is None and (following := counted.next_line(options.wanted.plan)) is not None:
        options.voice.note(following)
    unread = [one for one in task.traces.findings if one not in reading.findings]
    reading.findings.extend(unread)  # a line that cannot be read may be the last decision
    return listing.conclude(reading, has_undecidable=counted.undecidable_count > 0 or bool(unread))


def _query(ledger: LedgerOptions) -> LedgerQuery:
    """Parsed options, as far as possible before the ledger is opened. Raises: BadRequest."""
    given = {"--ledger": ledger.ledger, "--match": ledger.match, "--done": ledger.done, "--not-done": ledger.not_done}
    if ledger.trace:
        _refuse_with_trace(ledger, given)
        return LedgerQuery(
            TRACES_NAME, None, "transaction_id = transaction_id", "decision = COMMIT", "decision = ROLLBACK",
        )
    for name, value in given.items():
        if value is None:
            raise BadRequest(f"{name} is required", advice="see rmqtx reconcile --help; or give --trace")
    jar = None if ledger.ledger_driver_jar is None else str(ledger.ledger_driver_jar)
    return LedgerQuery(
        str(ledger.ledger), ledger.ledger_table, str(ledger.match), str(ledger.done), str(ledger.not_done), jar
    )


def _refuse_with_trace(ledger: LedgerOptions, given: Mapping[str, str | None]) -> None:
    """Raises: BadRequest for options that describe another ledger."""
    others = {
        **given, "--ledger-table": ledger.ledger_table, "--ledger-driver-jar": ledger.ledger_driver_jar,
        "--missing-is-not-done": ledger.missing_is_not_done,
    }
    for name, value in others.items():
        if value not in (None, False):
            raise BadRequest(
                f"{name} does not go with --trace: the trace is the ledger, and a missing line shows nothing"
            )


def _condition(wanted: WantedOptions) -> str | None:
    """Condition on the rows to list."""
    texts = (wanted.where, None if wanted.every else "outcome != agrees")
    return all_of(texts)


def _listing(wanted: WantedOptions, output: OutputOptions, voice: Voice, *, with_meta: bool) -> Listing:
    where, fail_on, limit = _condition(wanted), wanted.fail_on, wanted.limit
    return Listing(RECONCILED, RECONCILED_VIEW, output, where, fail_on, limit, voice, with_meta)


def _opened(paths: list[str], files: StoreOptions, written: tuple[Path | None, ...], voice: Voice) -> Opened:
    """The stores, with their header line. `written`: files that must not lie inside a store."""
    opened = open_stores(paths, files)
    for file in written:
        refuse_inside(file, opened.stores)
    say_header(opened, voice)
    return opened


def _rows(
    reading: Reading, query: LedgerQuery, counted: Comparison, engine: EngineOptions
) -> Iterator[pa.RecordBatch]:
    """The rows by outcome, counted as they pass; an error where `--match` fits nothing."""
    fitting = _fitting(reading.batches, query, counted.fit)
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
    with ExitStack() as stack:
        if isinstance(batches, Generator):
            stack.callback(batches.close)  # its temporary files are removed before an error is handled
        for batch in batches:
            _assert_fits(query, fit)
            yield batch


def _assert_fits(query: LedgerQuery, fit: LedgerFit) -> None:
    """Raises: BadRequest if `--match` matches nothing, or the traces have no decision."""
    if query.location == TRACES_NAME and not fit.rows_count and fit.keys_count:
        raise BadRequest(
            "the stores contain no decision in message traces",
            advice="Java clients 4.9.0 and later write them if they are switched on; else give --ledger FILE",
        )
    query.assert_fits(fit)


def _write_plan(planner: Planner, facts: Provenance, file: Path, voice: Voice) -> None:
    plan = planner.plan(facts, clock.now_ms())
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
        self.traces = TraceLedger(self.opened.stores)

    def here(self, engine: StoreEngine) -> Reading:
        """See `StoreComparison`: rows of RECONCILED."""
        query = self.query
        is_trace = query.location == TRACES_NAME
        ledger = self.traces if is_trace else open_ledger(query.location, query.table, query.text_columns)
        asked = self.query.parsed(ledger.schema)
        reading = engine.audit(
            self.opened.stores, self.opened.settings_of, at_ms=self.at_ms, progress=self.run.progress
        )
        reading.batches = reconcile(
            reading.batches, ledger, asked.terms(missing_is_not_done=self.missing_is_not_done), asked.columns,
            temporary_directory=engine.options.temporary_directory, fit=self.fit,
        )
        reading.schema = RECONCILED
        return reading

    def by_spark(self, engine: StoreEngine, spark: SparkSession) -> Reading:
        """See `StoreComparison`."""
        from rmqtx.spark_tasks.jobs import ledger as ledgers  # PySpark
        from rmqtx.spark_tasks.jobs import reconcile as by_spark

        query = self.query
        ledger = ledgers.read_ledger(spark, query.location, query.table, query.text_columns, login=query.login())
        asked = query.parsed(ledgers.arrow_schema(ledger))
        chosen = by_spark.FrameLedger(
            ledger.select(*asked.columns), asked.terms(missing_is_not_done=self.missing_is_not_done)
        )
        return by_spark.reconcile(
            spark, self.opened.stores, self.opened.settings_of, chosen, at_ms=self.at_ms,
            split_bytes=engine.split_bytes_for(self.opened.stores), fit=self.fit,
        )
