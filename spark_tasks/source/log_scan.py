"""Tables whose rows are records of the commit log, or lines of them, as splits: records, halves, ops, traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.commit_log import WrittenEnd, record_columns
from rmqtx.readers.log.kernels import ACCELERATED_BYTES_MIN
from rmqtx.readers.log.op_messages import ops_of
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.splits import UNSEARCHED, Split, SplitPlan, live_blocks, settled
from rmqtx.readers.log.transaction_records import are_halves, are_ops, halves_of, real_topics
from rmqtx.readers.model.columns import nulls
from rmqtx.readers.store.store import Store
from rmqtx.readers.traces import traces_of
from rmqtx.spark_tasks.session.tasks import use_accelerator
from rmqtx.spark_tasks.source.pushdown import Narrowing, PushedConditions
from rmqtx.spark_tasks.source.read_options import ReadOptions

_BATCH_RECORDS_MAX = 65_536
#: A reader does not know how many processes share the scan: with a few, this amount justifies the start of each.
_ACCELERATED_BYTES_MIN = 4 * ACCELERATED_BYTES_MIN


class LogScan(Narrowing):
    """A table over the splits of the commit logs. Order: within a task commit-log offset ascending."""

    def __init__(self, options: ReadOptions, stores: list[Store]) -> None:
        super().__init__(conditions_of(options))
        is_records = options.table == "records"
        names = {"store", "commit_log_offset", "store_time_ms", *(() if options.table == "traces" else ("queue_id",))}
        self.conditioned = frozenset(names | {"topic"} if is_records else names)
        self._options = options
        self._stores = stores

    @cached_property
    def plan(self) -> SplitPlan:
        """Return the splits, made from lengths only: each task finds out which segment is the last with data."""
        stores = tuple(store for store in self._stores if self.conditions.has_store(store.root))
        return SplitPlan(
            stores, (WrittenEnd(0, UNSEARCHED),) * len(stores), self._options.split_bytes, self.conditions.from_offset,
            self.conditions.to_offset,
        )

    def __len__(self) -> int:
        return len(self.plan)

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split. Raises: UnreadableFile, FileChanged."""
        use_accelerator(self.plan.total_bytes >= _ACCELERATED_BYTES_MIN)
        split = settled(self.plan[number])
        yield from rows_of_split(split, live_blocks(split), self._options, self.conditions)


def conditions_of(options: ReadOptions) -> PushedConditions:
    """Return the conditions in the options. The topic of half messages is the real topic, which needs decoding."""
    topics = frozenset({options.topic}) if options.topic is not None and options.table == "records" else None
    return PushedConditions(
        options.from_offset, options.to_offset, options.from_time_ms, options.to_time_ms, topics=topics
    )


def rows_of_split(
    split: Split, blocks: Iterator[Block], options: ReadOptions, conditions: PushedConditions
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the options' table from the blocks of a split. Raises: UnreadableFile, FileChanged."""
    make = _MAKERS[options.table]
    for block in blocks:
        chosen = _chosen(block, conditions)
        for first in range(0, len(chosen), _BATCH_RECORDS_MAX):
            part = chosen.take(np.arange(first, min(first + _BATCH_RECORDS_MAX, len(chosen))))
            rows = make(part, split.store.root, options)
            if len(rows):
                yield rows


def _chosen(block: Block, conditions: PushedConditions) -> Block:
    if conditions.topics is not None:
        wanted = np.zeros(len(block), np.bool_)
        for topic in conditions.topics:
            wanted |= block.topic_is(topic)
        block = block.take(wanted)
    if conditions.queue_ids is not None:
        wanted_ids = [queue_id for queue_id in conditions.queue_ids if abs(queue_id) < 1 << 31]
        block = block.take(np.isin(block.header("queue_id"), np.array(wanted_ids, np.int64)))
    return block.within(conditions.from_time_ms, conditions.to_time_ms)


def _records(block: Block, store: str, options: ReadOptions) -> pa.RecordBatch:
    schema = options.schema
    left_out = {"body": options.body == "none", "body_crc_matches": not options.check_crc}
    wanted = [name for name in schema.names if not left_out.get(name)]
    decoded = record_columns(block, store, wanted, decompress=options.body == "decompressed")
    arrays = dict(zip(wanted, decoded, strict=True))
    return pa.RecordBatch.from_arrays(
        [arrays[field.name] if field.name in arrays else nulls(len(block), field.type) for field in schema],
        schema=schema,
    )


def _halves(block: Block, store: str, options: ReadOptions) -> pa.RecordBatch:
    chosen = block.take(are_halves(block))
    if options.topic is not None:
        real = real_topics(chosen)
        chosen = chosen.take(np.asarray(pc.fill_null(pc.equal(real, options.topic), False)))
    return halves_of(chosen, store, options.schema)


def _ops(block: Block, store: str, options: ReadOptions) -> pa.RecordBatch:
    return ops_of(block.take(are_ops(block)), store).select(options.schema.names)


def _traces(block: Block, store: str, options: ReadOptions) -> pa.RecordBatch:
    return traces_of(block.take(block.topic_is(options.trace_topic)), store, []).select(options.schema.names)


_Maker = Callable[[Block, str, ReadOptions], pa.RecordBatch]
_MAKERS: dict[str, _Maker] = {"records": _records, "halves": _halves, "ops": _ops, "traces": _traces}
