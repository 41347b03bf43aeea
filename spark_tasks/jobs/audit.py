"""The audit on Spark: the same rows as `rmqtx.verdicts.audit.local_audit.audit`, for logs of any size.

Stores that fit one task are audited by one (`opening.py`). Otherwise each split is scanned once in its own task and the
result is persisted. Tasks that have a range of offsets join op marks to half copies by queue offset, and unmatched
decisions to half copies by commit-log offset (`joins.py`). Then one task has all witnesses of a transaction, and of
many others, and calls `judge`. A partition is chosen by a transaction's
identity only, so neither a group that has most of the transactions nor a transaction with ten thousand copies makes a
task larger than others. Spark moves Arrow bytes, never a row for each transaction.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel

from rmqtx.readers.jobs.workers import Progress, show_phase
from rmqtx.readers.log.kernels import ACCELERATED_BYTES_MIN, is_accelerator_installed
from rmqtx.readers.log.splits import BY_ENGINE, SplitPlan, WorkDivision
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.identities import identities, identity_hashes, partition_of
from rmqtx.readers.model.reading import Note, NoteKind
from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.readers.store.store import Store
from rmqtx.spark_tasks.jobs.joins import joined_marks, unresolved
from rmqtx.spark_tasks.jobs.opening import (
    OPENED_COLUMNS,
    AuditAtOnce,
    Begun,
    Formed,
    OpenOrAudit,
    Whole,
    begin_store,
    fit_one_task,
    restored,
    take_over,
)
from rmqtx.spark_tasks.jobs.verdicts import JUDGED, UNREAD, HandedOver, Judge, RowForm, as_rows, without_unread
from rmqtx.spark_tasks.jobs.witnesses import (
    COLUMNS,
    FACTS,
    ROWS,
    ScanForWitnesses,
    by_partition,
    half_rows,
    restored_facts,
)
from rmqtx.spark_tasks.session.handover import HANDED_COLUMNS, handover
from rmqtx.spark_tasks.session.progress import Phase, ScanCounts, described, tracked
from rmqtx.spark_tasks.session.schemas import spark_schema
from rmqtx.spark_tasks.session.tasks import Packs, Shared, in_tasks, packed, results, sizes_for
from rmqtx.verdicts.audit.local_audit import tied_partitions
from rmqtx.verdicts.audit.log_copies import with_log_copies
from rmqtx.verdicts.causes.evidence import Evidence
from rmqtx.verdicts.causes.groups import habits_of
from rmqtx.verdicts.causes.judging import Judging, report_begun, report_concluded, store_evidence
from rmqtx.verdicts.evidence.copied_ranges import views_of
from rmqtx.verdicts.evidence.store_conclusion import Conclusion, conclude, without_stale
from rmqtx.verdicts.evidence.store_facts import SettingsOf, StoreFacts, moment_ms
from rmqtx.verdicts.evidence.witness_scan import SplitFacts
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx.verdicts.model.store_evidence import StoreEvidence
from rmqtx.verdicts.model.verdict_inputs import StoreView
from rmqtx.verdicts.transactions.judge import chosen_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: With fewer partitions one task would judge nearly all transactions.
PARTITIONS_MIN = 2


def audit(
    spark: SparkSession, stores: list[Store], settings_of: SettingsOf, *, at_ms: int | None = None,
    work: WorkDivision = BY_ENGINE, progress: Progress | None = None, measures: Collection[str] = (),
) -> VerdictReading:
    """Return the verdict on every transaction of the stores, which are one audit.

    Shape:  batches of TRANSACTIONS, and the given columns of MEASURES.
    Units:  `progress` receives bytes.
    Order:  none.
    Damage: findings; a transaction that damage makes unknown is UNDECIDABLE.
    """
    reading = VerdictReading(chosen_schema({*TRANSACTIONS.names, *measures}), [])
    task = SparkAudit(spark, stores, settings_of, reading, at_ms, work.split_bytes, progress)
    batches = _audit(task, reading, tuple(reading.schema.names), work.temporary_directory)
    reading.batches = with_log_copies(batches, stores, reading)
    return reading


def _audit(
    task: SparkAudit, reading: VerdictReading, columns: tuple[str, ...], temporary_directory: str | None
) -> Iterator[pa.RecordBatch]:
    with handover(task.spark, temporary_directory) as way:
        try:
            frame = task.judged(HandedOver(way), HANDED_COLUMNS, columns)
            if task.is_whole:
                show_phase(task.progress, "writing", 0, 1)
                yield from _with_habits(reading, way.taken_at_once(frame))
                return
            judged = way.keeps(frame)
            try:
                with tracked(task.spark, Phase("judging", task.partitions_count), task.progress):
                    sizes_bytes = way.computed(judged, "audit: judge the transactions")
                show_phase(task.progress, "writing", 0, 1)
                yield from _with_habits(reading, way.taken(judged, sizes_bytes))
            finally:
                judged.unpersist()
        finally:
            task.release()


def _with_habits(reading: VerdictReading, taken: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield verdicts; their habits, and what could not be read of traces, are added to the reading."""
    for given in taken:
        batch, unread = without_unread(given)
        reading.add_findings(unread)
        reading.habits.update(habits_of(Evidence(pa.Table.from_batches([batch]), reading.evidence)))
        yield batch


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdicts of an audit as a DataFrame with the columns of TRANSACTIONS, to join, filter and write with Spark.

    The logs were scanned, once; each action on `frame` judges again, from the scan. Its last column is UNREAD, which
    `unread_in` reads. `tasks_count`: the tasks of this, and the number that joins of the verdicts should have.
    """

    frame: DataFrame
    tasks_count: int
    release: Callable[[], None]


def unread_in(frame: DataFrame) -> list[Finding]:
    """Return what could not be read of traces, from a frame with the column UNREAD."""
    rows = frame.where(frame[UNREAD.name].isNotNull()).select(UNREAD.name).collect()
    return list(dict.fromkeys(one for row in rows for one in pickle.loads(row[0])))


def transactions(
    spark: SparkSession, stores: list[Store], settings_of: SettingsOf, *, at_ms: int | None = None,
    split_bytes: int | None = None, reading: VerdictReading | None = None,
) -> Judged:
    """Return the verdicts on the transactions of some stores; call `release` when they have been read.

    Findings, coverage and notes are added to `reading`.
    """
    reading = VerdictReading(TRANSACTIONS, []) if reading is None else reading
    task = SparkAudit(spark, stores, settings_of, reading, at_ms, split_bytes, None)
    try:
        frame = task.judged(as_rows, spark_schema(TRANSACTIONS.append(UNREAD)))
    except BaseException:
        task.release()
        raise
    return Judged(frame, task.partitions_count, task.release)


class SparkAudit:
    """One audit: the results that its Spark jobs pass to later ones.

    Call `judged` once, which adds findings, coverage and notes to `reading`, and `release` when the rows have been
    read.
    """

    def __init__(
        self, spark: SparkSession, stores: list[Store], settings_of: SettingsOf, reading: VerdictReading,
        at_ms: int | None, split_bytes: int | None, progress: Progress | None,
    ) -> None:
        self.spark = spark
        self._reading = reading
        self._stores = stores
        # Settings come from small files beside the log; a dictionary can be pickled, a function may not.
        self._settings = {store.root: settings_of(store) for store in stores}
        self._at_ms = at_ms
        self._split_bytes = split_bytes
        self.progress = progress
        self._scan: DataFrame | None = None
        self.partitions_count = PARTITIONS_MIN
        #: Whether one task audited the stores.
        self.is_whole = False

    def release(self) -> None:
        """Unpersist the scan."""
        if self._scan is not None:
            self._scan.unpersist()

    def judged(self, form: RowForm, schema: Any, columns: tuple[str, ...] = tuple(TRANSACTIONS.names)) -> DataFrame:
        """Return columns of the verdicts in some form, not computed yet; the scan is computed."""
        begun = self._begin(columns)
        if isinstance(begun, Whole):
            assert self._scan is not None
            take_over(self._reading, begun.reading)
            self.is_whole, self.partitions_count = True, 1
            return self._scan.filter(self._scan["verdicts"].isNotNull()).mapInArrow(Formed(form), schema)
        facts, plan = self._planned(begun)
        report_begun(self._reading, facts)
        scan = self._scan_splits(plan, facts)
        parts = self._split_facts(scan, plan)
        counted = {part.split.number for part in without_stale([part for part, _ in parts])}
        if len(counted) < len(parts):
            scan = scan.filter(scan["split"].isin(sorted(counted)))
        concluded = self._conclude(facts, plan, scan, [(part, number) for part, number in parts
                                                       if part.split.number in counted])
        conclusions = [conclusion for conclusion, _ in concluded]
        damaged = _damaged_rows(conclusions, self.partitions_count, len(plan))
        if damaged:
            scan = scan.unionByName(self.spark.createDataFrame(pa.Table.from_batches(damaged), COLUMNS))
        known = {conclusion.facts.store.root: conclusion.facts for conclusion in conclusions}
        for conclusion in conclusions:
            report_concluded(self._reading, conclusion)
        ties = [pair for conclusion in conclusions for pair in conclusion.ties]
        judging = Judging(
            self._views(known), columns,
            {found.facts.store.root: evidence for found, evidence in concluded if found.facts.past_ms is None},
            {root: fact.predicted for root, fact in known.items()},
            tuple(fact.copies for fact in known.values()),
        )
        self._reading.missing.extend(one for view in judging.views.values() for one in view.missing)
        judging.report(self._reading)
        judge = Judge(Shared.of(judging), form)
        return _together(scan, ties, self.partitions_count).mapInArrow(judge, schema)

    def _begin(self, columns: tuple[str, ...]) -> list[Begun] | Whole:
        """Return the facts of all stores, or their audit by one task."""
        # The moments of all stores are taken together, before tasks read the first one.
        tasks = [(store, self._settings[store.root], moment_ms(store)) for store in self._stores]
        show_phase(self.progress, "opening the stores", 0, 1)
        if len(tasks) == 1:
            found = self._by_one_task(
                OpenOrAudit(tasks[0], self._at_ms, columns, self._split_bytes), "audit: open the stores"
            )
            return found if isinstance(found, Whole) else [found]
        with described(self.spark, "audit: open the stores"):
            begun = results(self.spark, functools.partial(begin_store, self._at_ms), tasks)
        if not fit_one_task(begun, self._split_bytes):
            return begun
        show_phase(self.progress, "reading and judging", 0, 1)
        whole = self._by_one_task(AuditAtOnce(begun, columns), "audit: scan the logs and judge")
        assert isinstance(whole, Whole)
        return whole

    def _by_one_task(self, task: OpenOrAudit | AuditAtOnce, what: str) -> Begun | Whole:
        """Return what a task found; an audit's rows are kept. `what`: a description of the task."""
        with described(self.spark, what):
            self._scan = in_tasks(self.spark, task, Packs((0, 1)), OPENED_COLUMNS).persist(StorageLevel.DISK_ONLY)
            (row,) = self._scan.filter(self._scan["opened"].isNotNull()).select("opened").collect()
        found = restored(row["opened"])
        if isinstance(found, Begun):
            self.release()
        elif self.progress is not None:
            self.progress(found.total_bytes, found.total_bytes)
        return found

    def _planned(self, begun: list[Begun]) -> tuple[list[StoreFacts], SplitPlan]:
        total = sum(one.total_bytes for one in begun)
        split_bytes, partition_bytes = sizes_for(total)
        self.partitions_count = max(PARTITIONS_MIN, -(-total // partition_bytes))
        self._total_bytes = total
        ends = tuple(one.written_end for one in begun)
        plan = SplitPlan(tuple(self._stores), ends, self._split_bytes or split_bytes)
        return [one.facts for one in begun], plan

    def _scan_splits(self, plan: SplitPlan, facts: Sequence[StoreFacts]) -> DataFrame:
        fast = self._total_bytes >= ACCELERATED_BYTES_MIN and is_accelerator_installed()
        path = "the accelerator" if fast else "the reference path"
        self._reading.notes.append(Note(NoteKind.HOW, f"scanned by {path}"))
        self._counts = None if self.progress is None else ScanCounts.of(self.spark)
        past = tuple(one.past_ms for one in facts)
        task = ScanForWitnesses(Shared.of(plan), self.partitions_count, past, fast, self._counts)
        # On disk, so that it does not take the memory that tasks need.
        self._packs = packed(self.spark, plan.sizes_bytes)
        self._scan = in_tasks(self.spark, task, self._packs, COLUMNS).persist(StorageLevel.DISK_ONLY)
        return self._scan

    def _split_facts(self, scan: DataFrame, plan: SplitPlan) -> list[tuple[SplitFacts, int]]:
        with (
            described(self.spark, "audit: scan the logs"),
            tracked(self.spark, Phase("reading", len(self._packs), plan.total_bytes, self._counts), self.progress),
        ):
            rows = scan.filter(scan["kind"] == FACTS).select("split", "data").collect()
        rows.sort(key=lambda row: int(row["split"]))
        return [restored_facts(plan, row["split"], row["data"]) for row in rows]

    def _conclude(
        self, facts: list[StoreFacts], plan: SplitPlan, scan: DataFrame, parts: list[tuple[SplitFacts, int]]
    ) -> list[tuple[Conclusion, StoreEvidence]]:
        count = sum(count for _, count in parts)
        show_phase(self.progress, "concluding the stores", 0, 1)
        with described(self.spark, "audit: decisions that name no half copy of their split"):
            unmatched = unresolved(scan, self.partitions_count) if count else {}
        none = np.empty(0, np.int64)
        tasks = []
        for number, fact in enumerate(facts):
            scanned = [part for part, _ in parts if part.split.store is plan.stores[number]]
            tasks.append((fact, scanned, unmatched.get(number, (none, none))))
        with described(self.spark, "audit: conclude the stores"):
            return results(self.spark, _conclude_store, tasks)

    def _views(self, facts: dict[str, StoreFacts]) -> dict[str, StoreView]:
        """Return the views of the stores; several are compared with each other, in a task, which can read them."""
        if len(facts) < 2:
            return views_of(facts)
        with described(self.spark, "audit: compare the copies of logs"):
            (views,) = results(self.spark, views_of, [facts])
        return views


def _conclude_store(
    task: tuple[StoreFacts, list[SplitFacts], tuple[Int64s, Int64s]]
) -> tuple[Conclusion, StoreEvidence]:
    conclusion = conclude(*task)
    return conclusion, store_evidence(conclusion.facts)


def _damaged_rows(conclusions: list[Conclusion], partitions_count: int, split: int) -> list[pa.RecordBatch]:
    """Return damaged half copies as rows of an additional split."""
    found: list[pa.RecordBatch] = []
    for number, conclusion in enumerate(conclusions):
        rows = conclusion.damaged_halves
        if rows:
            hashes = np.concatenate([identity_hashes(identities(row)) for row in rows])
            place = {"split": split, "store": number}
            partitions = partition_of(hashes, partitions_count)
            found.extend(half_rows(rows, partitions, place))
            found.extend(by_partition("halves", rows, partitions, place))
    return found


def _together(scan: DataFrame, ties: list[tuple[str, str]], partitions_count: int) -> DataFrame:
    """Return all witnesses of a transaction in one partition; a mark once for each half copy that it settles."""
    rows = scan.filter(scan["kind"] == ROWS)
    witnesses = rows.select(*JUDGED).union(joined_marks(scan, partitions_count).select(*JUDGED))
    tied = {n: numbers[0] for numbers in tied_partitions(ties, partitions_count) for n in numbers[1:]}
    if tied:
        witnesses = witnesses.replace(list(tied), list(tied.values()), ["key"])
    return witnesses.repartitionById(partitions_count, "key")
