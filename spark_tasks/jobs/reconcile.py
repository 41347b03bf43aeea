"""Join verdicts with a ledger on Spark; the advice comes from the same function as in the local engine.

Only keys of both sides go through the join. Each ledger key is one row of the join, even if the ledger repeats the key,
so a key that every transaction has makes no partition larger than the number of transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import functions as sql

from rmqtx.readers.model.reading import Reading
from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.readers.store.store import Store
from rmqtx.spark_tasks.jobs.audit import Judged, transactions, unread_in
from rmqtx.spark_tasks.session.handover import HANDED_COLUMNS, Handover, handover
from rmqtx.spark_tasks.session.tasks import shuffles_of, working
from rmqtx.verdicts.evidence.store_facts import SettingsOf
from rmqtx.verdicts.ledger.join import SEPARATOR, UNMATCHED_SHOWN_MAX, LedgerFit, LedgerTerms, Match, ledger_words
from rmqtx.verdicts.ledger.reconcile import LOOKED_UP, RECONCILED, reconciled
from rmqtx.verdicts.model.reading import VerdictReading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The columns that identify a transaction, joined to one text.
_IDENTITY = ("transaction_id", "producer_group", "topic", "queue_id", "born_time_ms", "half_store_time_ms")
_KEYS = "identity string, key string"
_WORDS = "key string, says tinyint, ledger_row string"


@dataclass(frozen=True, slots=True)
class FrameLedger:
    """A ledger as a DataFrame that has only the columns that the terms use, and these terms."""

    frame: DataFrame
    terms: LedgerTerms


def reconcile(
    spark: SparkSession, stores: list[Store], settings_of: SettingsOf, ledger: FrameLedger, *,
    at_ms: int | None = None, split_bytes: int | None = None, fit: LedgerFit | None = None,
) -> Reading:
    """Return the rows of `rmqtx.verdicts.ledger.join.reconcile` for the audit of some stores.

    Shape:  batches of RECONCILED. `fit` is filled before the first batch.
    Order:  none.
    """
    reading = VerdictReading(RECONCILED, [])
    verdicts = transactions(spark, stores, settings_of, at_ms=at_ms, split_bytes=split_bytes, reading=reading)
    reading.batches = _handed_over(verdicts, ledger, fit, reading)
    return reading


def _handed_over(
    verdicts: Judged, ledger: FrameLedger, fit: LedgerFit | None, reading: VerdictReading
) -> Iterator[pa.RecordBatch]:
    spark = verdicts.frame.sparkSession
    with handover(spark) as way, ExitStack() as stack:
        stack.callback(verdicts.release)

        def kept(frame: DataFrame) -> DataFrame:
            """Return a frame that is computed once, and released at the end."""
            stack.callback(frame.unpersist)
            return frame.persist()

        with shuffles_of(spark, verdicts.tasks_count):
            identified = kept(_identified(verdicts.frame))
            frame = way.keeps(_advised(identified, ledger, way, kept, fit))
            stack.callback(frame.unpersist)
            sizes_bytes = way.computed(frame, "reconcile: compare with the ledger")
            reading.add_findings(unread_in(identified))
        yield from way.taken(frame, sizes_bytes)


def _identified(verdicts: DataFrame) -> DataFrame:
    """Return verdicts with the column `identity`."""
    words = (sql.coalesce(sql.col(name).cast("string"), sql.lit("")) for name in _IDENTITY)
    return verdicts.withColumn("identity", sql.concat_ws(SEPARATOR, *words))


def _advised(
    identified: DataFrame, ledger: FrameLedger, way: Handover, kept: Callable[[DataFrame], DataFrame],
    fit: LedgerFit | None,
) -> DataFrame:
    """Return identified verdicts with the ledger's value, as handed-over rows of RECONCILED."""
    terms = ledger.terms
    keys = identified.select("identity", *terms.match.columns).mapInArrow(_Keys(terms.match), _KEYS).distinct()
    words = ledger.frame.mapInArrow(_Words(terms), _WORDS)
    if fit is not None:  # the ledger is read once
        _fill(fit, keys, kept(words))
    by_key = words.where("key is not null").groupBy("key").agg(
        sql.count("*").alias("rows"), sql.max("says").alias("says"), sql.max("ledger_row").alias("ledger_row")
    )
    matched = keys.join(by_key, "key")
    shared = matched.groupBy("key").agg(sql.count("*").alias("transactions"))
    found = matched.join(shared, "key").groupBy("identity").agg(
        sql.sum("rows").alias("ledger_rows_count"), sql.max("transactions").alias("transactions_count"),
        sql.max("says").alias("says"), sql.max("ledger_row").alias("ledger_row"),
    )
    has_key = keys.select("identity").distinct().withColumn("has_key", sql.lit(True))
    looked_up = has_key.join(found, "identity", "left")
    whole = identified.join(looked_up, "identity", "left").select(*TRANSACTIONS.names, *LOOKED_UP.names)
    return whole.mapInArrow(_Advise(terms.missing_is_not_done, way), HANDED_COLUMNS)


def _fill(fit: LedgerFit, keys: DataFrame, words: DataFrame) -> None:
    """Count matches of keys: three small queries over keys and ledger values."""
    known = keys.select("key").distinct()
    counted = known.agg(sql.count("*"), sql.min("key")).first()
    is_known = known.withColumn("is_known", sql.lit(True))
    whole = words.join(is_known, "key", "left")
    of_rows = whole.agg(sql.count("*"), sql.count_if(sql.col("is_known").isNull()), sql.min("key")).first()
    assert counted is not None
    assert of_rows is not None
    fit.keys_count, fit.key = counted
    fit.rows_count, fit.unmatched_count, fit.ledger_key = of_rows
    left = whole.where("is_known is null").orderBy("ledger_row").limit(UNMATCHED_SHOWN_MAX).collect()
    fit.unmatched = [row["ledger_row"] for row in left]


@dataclass(frozen=True)
class _Keys:
    """Returns the keys under which each transaction could be in the ledger."""

    match: Match

    @property
    def __name__(self) -> str:  # Spark shows it
        return "keys"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with working():
            for batch in batches:
                rows, keys = self.match.keys_of(batch)
                identities = batch["identity"].take(pa.array(rows)).cast(pa.string())
                yield pa.RecordBatch.from_arrays([identities, keys.cast(pa.string())], names=["identity", "key"])


@dataclass(frozen=True)
class _Words:
    """Returns the key and value of each ledger row."""

    terms: LedgerTerms

    @property
    def __name__(self) -> str:  # Spark shows it
        return "words"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with working():
            for batch in batches:
                if batch.num_rows:
                    yield ledger_words(batch, self.terms)


@dataclass(frozen=True)
class _Advise:
    """Converts rows with the columns of TRANSACTIONS and LOOKED_UP to handed-over rows of RECONCILED."""

    missing_is_not_done: bool
    way: Handover

    @property
    def __name__(self) -> str:  # Spark shows it
        return "advise"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        with working():
            for batch in batches:
                if not batch.num_rows:
                    continue
                verdicts = batch.select(TRANSACTIONS.names).cast(TRANSACTIONS)
                looked_up = _only_of_one_row(batch.select(LOOKED_UP.names).cast(LOOKED_UP))
                rows = reconciled(verdicts, looked_up, missing_is_not_done=self.missing_is_not_done)
                yield from self.way.give(context.partitionId(), [rows])


def _only_of_one_row(looked_up: pa.RecordBatch) -> pa.RecordBatch:
    """Keep ledger values only for transactions with one ledger row; nulls of Spark's outer join become 0 and false."""
    columns = {name: looked_up[name] for name in LOOKED_UP.names}
    for name in ("ledger_rows_count", "transactions_count"):
        columns[name] = pc.fill_null(columns[name], 0)
    columns["has_key"] = pc.fill_null(columns["has_key"], False)
    is_one = pc.equal(columns["ledger_rows_count"], 1)
    for name in ("says", "ledger_row"):
        columns[name] = pc.if_else(is_one, columns[name], pa.scalar(None, columns[name].type))
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=LOOKED_UP)
