"""Stores in files: `rmqtx.open`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rmqtx.api.opening import Paths, StoreSettings, given_settings, opened_stores
from rmqtx.api.results import Rows, diagnosed
from rmqtx.api.rows import Diagnosis, Finding, Half, Op, Record, SimulatedCheck, TraceLine, Transaction
from rmqtx.readers.jobs.job_runner import ScanJob, run_job
from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.log.transaction_records import scan_halves, scan_ops
from rmqtx.readers.model import clock
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.identities import NameForms
from rmqtx.readers.model.reading import Bounds, Note, NoteKind, Reading, chained
from rmqtx.readers.model.tables import FINDINGS, HALVES, OPS, RECORDS, TRACES, TRANSACTIONS
from rmqtx.readers.model.units import parse_time_ms
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.store import Store
from rmqtx.readers.traces import scan_traces
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import Scan, lookup, pending, show
from rmqtx.verdicts.causes.diagnosing import DIAGNOSES
from rmqtx.verdicts.causes.evidence import NEEDED_COLUMNS
from rmqtx.verdicts.claims.records_read import with_lost_records
from rmqtx.verdicts.model.reading import VerdictReading


class _Later:
    """A module that is loaded when its first name is used; for type checkers it is imported beside."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


if TYPE_CHECKING:
    from rmqtx.api import acting, file_acts
    from rmqtx.api.acting import Applied, Plan, Where
    from rmqtx.api.lazy_tables import LazyTable
    from rmqtx.verdicts.audit import simulated
    from rmqtx.verdicts.verify import copies, verify
else:  # a third of the modules: acts, simulations and `verify` need them, and an audit does not
    acting, file_acts = _Later("rmqtx.api.acting"), _Later("rmqtx.api.file_acts")
    simulated = _Later("rmqtx.verdicts.audit.simulated")
    verify, copies = _Later("rmqtx.verdicts.verify.verify"), _Later("rmqtx.verdicts.verify.copies")


class Stores:
    """Stores in files. Each question reads the files as they are when its rows are read.

    Made by `rmqtx.open`.
    """

    def __init__(self, paths: Sequence[Paths], settings: StoreSettings) -> None:
        self._paths, self._settings = paths, settings
        self.names = tuple(store.root for store in self._open()[0])

    def _open(self) -> tuple[list[Store], Callable[[Store], BrokerSettings]]:
        return opened_stores(self._paths, self._settings)

    def pending(self, *, at: str | None = None, scan: bool = False) -> Rows[Transaction]:
        """The transactions that the check will still reach, as `rmqtx pending --all-open`.

        `at`: as of this time, ISO 8601 with a zone or epoch milliseconds. `scan`: read the whole logs.
        """
        at_ms = _time_ms(at)

        def begin() -> Reading:
            return pending(*self._open(), at_ms=at_ms, scan=scan)

        return Rows(Transaction, TRANSACTIONS, begin)

    def audit(
        self, *, at: str | None = None, processes: int | None = None, columns: Sequence[str] | None = None
    ) -> Rows[Transaction]:
        """The verdict on every transaction, as `rmqtx audit`; the logs are read once for each reading of the rows.

        `processes`: of this machine. `columns`: only these, for `batches` and Arrow; typed values need all.
        """
        at_ms = _time_ms(at)
        needed = TRANSACTIONS.names if columns is None else list(columns)
        schema = pa.schema([TRANSACTIONS.field(name) for name in needed])

        def begin() -> Reading:
            judged = {*needed, "state"}  # an UNDECIDABLE one makes the answer incomplete, whichever columns are read
            return self._judged(judged, at_ms=at_ms, processes=processes)

        return Rows(Transaction, schema, begin)

    def show(self, identity: str, *, at: str | None = None, scan: bool = False) -> Rows[Transaction]:
        """One transaction by id, short id, message id or key, as `rmqtx show`.

        Raises: NoSuchTransaction, EvidenceMissing, when the rows are read.
        """
        at_ms = _time_ms(at)

        def begin() -> Reading:
            return show(*self._open(), identity, scan=Scan.asked(at_ms, scan=scan), forms=NameForms.PLACES)

        return Rows(Transaction, TRANSACTIONS, begin)

    def lookup(self, ids: Iterable[str]) -> Rows[Transaction]:
        """Some transactions by id."""
        wanted = list(ids)

        def begin() -> Reading:
            return lookup(*self._open(), wanted)

        return Rows(Transaction, TRANSACTIONS, begin)

    def records(
        self, *, body: bool = False, from_offset: int | None = None, to_offset: int | None = None,
        columns: Sequence[str] | None = None,
    ) -> Rows[Record]:
        """The records of the commit logs, as `rmqtx decode commitlog`. `body`: with their bodies.

        `columns`: only these, for `batches` and Arrow; typed values need all.
        """
        names = [name for name in columns or RECORDS.names if body or name != "body"]
        schema = RECORDS if columns is None else pa.schema([RECORDS.field(name) for name in columns])

        def one(store: Store) -> Reading:
            return scan_records(store, Bounds(from_offset, to_offset), columns=names, with_body=body)

        return Rows(Record, schema, lambda: self._of_each(schema, one, to_offset))

    def halves(self) -> Rows[Half]:
        """Every half copy, as `rmqtx decode half`."""
        return Rows(Half, HALVES, lambda: self._of_each(HALVES, scan_halves))

    def ops(self) -> Rows[Op]:
        """Every op message, as `rmqtx decode op`."""
        return Rows(Op, OPS, lambda: self._of_each(OPS, scan_ops))

    def trace(self) -> Rows[TraceLine]:
        """The message traces of producers, as `rmqtx decode trace`."""

        def one(store: Store) -> Reading:
            return scan_traces(store, store.trace_topic)

        return Rows(TraceLine, TRACES, lambda: self._of_each(TRACES, one))

    def verify(self, *, level: str = "default") -> Rows[Finding]:
        """Damage and contradictions, as `rmqtx verify`. `level`: quick, default or full."""
        given = self._settings

        def begin() -> Reading:
            stores, _ = self._open()
            job = verify.Verify(level, given.broker_version, tuple(sorted((given.conf or {}).items())))
            reading = self._run_job(job, stores)
            reading.batches = copies.with_copy_findings(
                iter(reading.batches), stores, job.settings_of, is_partial=level == verify.QUICK,
                say=lambda text: reading.notes.append(Note(NoteKind.WHY, text)),
            )
            return reading

        return Rows(Finding, FINDINGS, begin)

    def diagnose(self) -> Rows[Diagnosis]:
        """The causes of unusual transactions, as `rmqtx diagnose`."""
        return diagnosed(lambda: self._judged(NEEDED_COLUMNS))

    def tables(self) -> dict[str, LazyTable]:
        """The tables by the names of `rmqtx sql`: for `duckdb.register`, which reads the columns that a query uses."""
        from rmqtx.api.lazy_tables import LazyTable  # imports pandas, if that is installed

        def whole(rows: Callable[[], Rows[Any]]) -> Callable[[Sequence[str]], Rows[Any]]:
            return lambda _: rows()

        return {
            "transactions": LazyTable(TRANSACTIONS, lambda names: self.audit(columns=names)),
            "halves": LazyTable(HALVES, whole(self.halves)),
            "ops": LazyTable(OPS, whole(self.ops)),
            "records": LazyTable(RECORDS, lambda names: self.records(body="body" in names, columns=names)),
            "findings": LazyTable(FINDINGS, whole(self.verify)),
            "causes": LazyTable(DIAGNOSES, whole(self.diagnose)),
            "trace": LazyTable(TRACES, whole(self.trace)),
        }

    def simulate(
        self, table: str = "checks", *, rounds: int | None = None, at: str | None = None,
        changes: Mapping[str, str] | None = None,
    ) -> Rows[SimulatedCheck]:
        """The broker's next checks, as `rmqtx simulate`; no producer answers them.

        `table`: checks, or, for `batches` and Arrow, rounds or transactions. `rounds`: how many. `at`: when the broker
        starts. `changes`: settings of the check, for example `{"transactionCheckMax": "3"}`: rows for both.
        Raises: BadRequest.
        """
        tables = simulated.TABLES
        if table not in tables:
            raise BadRequest(f"no table {table!r} of a simulation", advice=f"one of {', '.join(tables)}")
        changed = simulated.changed_settings([f"{name}={value}" for name, value in (changes or {}).items()], "changes:")
        at_ms = _time_ms(at)

        def begin() -> Reading:
            stores, settings_of = self._open()
            now_ms = clock.now_ms() if at_ms is None else at_ms
            reading = Reading(tables[table], ())

            def batches() -> Iterator[pa.RecordBatch]:
                for store in stores:
                    conf = self._settings.conf or {}
                    configurations = simulated.configurations_of(store, conf, self._settings.broker_version, changed)
                    cursors = simulated.cursors_of(store, settings_of(store))
                    found = simulated.simulated_store(store, configurations, cursors, now_ms)
                    reading.findings += found.findings
                    reading.notes += [Note(NoteKind.WHY, text) for text in found.notes]
                    for check in found.checks:
                        yield from simulated.simulated_rows(check, table, rounds)

            reading.batches = batches()
            return reading

        return Rows(SimulatedCheck, tables[table], begin)

    def plan(
        self, action: str, *, reason: str, ids: Iterable[str] = (), where: Where | None = None,
        group: str | None = None,
    ) -> Plan:
        """A plan of one action, as `rmqtx plan STORE`: commit, rollback, discard, resume, close or redeliver.

        `ids`: these transactions, by id, message id or key; without them all that the action may be for. `where`: only
        those that meet a condition. `group`: only this producer group.
        Raises: BadRequest, NoSuchTransaction, SourceError.
        """
        source = file_acts.plan_source(*self._open())
        return acting.planned(source, action, ids, where, group, reason, self._settings.asked())

    def apply(
        self, plan: Plan | str | PathLike[str], *, to: str | PathLike[str] | None = None,
        undo: str | PathLike[str] | None = None, reason: str | None = None, yes: bool = False, dry_run: bool = False,
        require_approval: str | PathLike[str] | None = None, override: Sequence[str] = (), skip_stale: bool = False,
    ) -> Applied:
        """Carry out a plan file on the files of a stopped broker, as `rmqtx apply --store`.

        `to`: a new directory for the changed store; `undo`: change the store itself, after this undo file is written.
        One of the two is required. The others are those of `Brokers.apply`.
        Raises: BadRequest, NotApproved, StalePlan, StoreInUse, UnsafeStore before anything is done; UnwritableFile.
        """
        orders = acting.Orders(
            reason=reason, yes=yes, dry_run=dry_run, require_approval=require_approval, override=override,
            skip_stale=skip_stale,
        )
        root, medium = file_acts.medium(self._open, self._settings, to, undo)
        return acting.apply_known(
            acting.known_plan(plan), medium, [root], lambda one: one.is_of_files and one.store == root, orders
        )

    def _judged(
        self, columns: Collection[str], *, at_ms: int | None = None, processes: int | None = None
    ) -> VerdictReading:
        return audit(*self._open(), at_ms=at_ms, processes=processes, columns=columns)

    def _run_job(self, job: ScanJob, stores: list[Store]) -> Reading:
        return run_job(job, plan_splits(stores))

    def _of_each(
        self, schema: pa.Schema, read: Callable[[Store], Reading], to_offset: int | None = None
    ) -> Reading:
        """Read the records of each log."""
        return chained(schema, self._open()[0], lambda one: with_lost_records(read(one), [one], to_offset))

    def __repr__(self) -> str:
        return f"<rmqtx stores {', '.join(self.names)}>"


def _time_ms(text: str | None) -> int | None:
    return None if text is None else parse_time_ms(text)


def open_stores(
    *paths: Paths, broker_conf: Paths | None = None, broker_version: str | None = None,
    commit_log: Sequence[Paths] = (), trace_topic: str | None = None,
) -> Stores:
    """Open stores in files: directories, URIs of object stores, or patterns.

    `broker_conf`: the configuration file of their broker. `broker_version`: the release that reads them next.
    `commit_log`: the directories of a log that is not below the store. `trace_topic`: of the message traces.
    Raises: NotAStore, UnreadableFile, BadRequest.
    """
    if not paths:
        raise BadRequest("a store is missing", advice="rmqtx.open('/path/of/store')")
    return Stores(paths, given_settings(broker_conf, broker_version, commit_log, trace_topic))
