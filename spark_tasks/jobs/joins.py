"""The joins of an audit on Spark, in tasks that have all rows of a range of offsets, as Arrow bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from rmqtx.readers.model.columns import Int64s
from rmqtx.spark_tasks.jobs.witnesses import COLUMNS, HALVES, JOINED_MARKS, MARKS, PLACES, UNMATCHED, by_partition
from rmqtx.spark_tasks.session.tasks import from_bytes, to_bytes, working

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def joined_marks(scan: DataFrame, tasks_count: int) -> DataFrame:
    """Return the op marks as ROWS of each partition that has a half copy with their half queue offset.

    Shape: rows of WITNESSES: a mark once for each half copy that it settles, and no mark without a copy.
    """
    return _together(scan, (HALVES, MARKS), tasks_count).mapInArrow(_join_marks, COLUMNS)


def unresolved(scan: DataFrame, tasks_count: int) -> dict[int, tuple[Int64s, Int64s]]:
    """Return the decisions that name no half copy of their own transaction in any split.

    Shape: for the number of a store, their commit-log offsets and the offsets that they name.
    Order: of the commit-log offsets.
    """
    frame = _together(scan, (PLACES, UNMATCHED), tasks_count).mapInArrow(_without_half, "store int, data binary")
    found: dict[int, list[pa.RecordBatch]] = {}
    for row in frame.collect():
        found.setdefault(row["store"], []).extend(from_bytes(row["data"]))
    return {store: _sorted_offsets(pa.Table.from_batches(batches)) for store, batches in found.items()}


def _together(scan: DataFrame, kinds: tuple[int, int], tasks_count: int) -> DataFrame:
    rows = scan.filter(scan["kind"].isin(*kinds)).select("kind", "store", "key", "data")
    return rows.repartition(tasks_count, "store", "key")


def _sorted_offsets(decisions: pa.Table) -> tuple[Int64s, Int64s]:
    decisions = decisions.sort_by("commit_log_offset")
    return np.asarray(decisions["commit_log_offset"]), np.asarray(decisions["named_offset"])


def _join_marks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with working():
        for store, halves, marks in _by_store(batches, HALVES, MARKS):
            if halves is None or marks is None:
                continue
            offsets = np.asarray(halves["half_queue_offset"])
            order = np.argsort(offsets, kind="stable")
            wanted = np.asarray(marks["half_queue_offset"])
            firsts = np.searchsorted(offsets, wanted, "left", order)
            counts = np.searchsorted(offsets, wanted, "right", order) - firsts
            if not counts.any():  # the log begins after all half messages that these op messages name
                continue
            settled = marks.take(pa.array(np.repeat(np.arange(len(wanted)), counts)))
            # The copies of a mark are neighbours in the order: its first one, and those after it.
            after = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            partitions = np.asarray(halves["partition"])[order[np.repeat(firsts, counts) + after]]
            place = {"split": -1, "store": store}
            yield from by_partition(JOINED_MARKS, settled.to_batches(), partitions, place)


def _without_half(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with working():
        for store, places, decisions in _by_store(batches, PLACES, UNMATCHED):
            if decisions is None:
                continue
            if places is not None:
                keys = ["identity", "named_offset"]
                decisions = decisions.join(places.select(keys), keys, join_type="left anti", use_threads=False)
            if decisions.num_rows:
                data = to_bytes(decisions.select(["commit_log_offset", "named_offset"]).combine_chunks().to_batches())
                yield pa.RecordBatch.from_pydict(
                    {"store": [store], "data": [data]}, pa.schema([("store", pa.int32()), ("data", pa.binary())])
                )


def _by_store(
    batches: Iterable[pa.RecordBatch], *kinds: int
) -> Iterator[tuple[int, pa.Table | None, pa.Table | None]]:
    """Yield for each store its number and the data of both kinds in one table each, None for a kind without rows."""
    found: dict[int, dict[int, list[pa.RecordBatch]]] = {}
    for batch in batches:
        for store, kind, data in zip(
            batch["store"].to_pylist(), batch["kind"].to_pylist(), batch["data"], strict=True
        ):
            found.setdefault(store, {}).setdefault(kind, []).extend(from_bytes(data.as_buffer()))
    for store in sorted(found):
        left, right = (
            pa.Table.from_batches(found[store][kind]).combine_chunks() if kind in found[store] else None
            for kind in kinds
        )
        yield store, left, right
