"""Half copies and op messages of a live broker in the order of their queues, as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.op_messages import op_findings, ops_of
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.transaction_records import halves_of
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.reading import WHOLE, Bounds, Reading
from rmqtx.readers.model.tables import HALVES, OPS
from rmqtx.readers.store.store import HALF_TOPICS, OP_TOPIC, OP_TOPICS
from rmqtx.remoting.connections.batched_reads import Pace, UnreadEntries
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.live.queues import OpsUnreadable, first_kept, ops, place_of, records
from rmqtx.remoting.live.store_facts import rocksdb_range
from rmqtx.remoting.protocol.record_bytes import blocks_of
from rmqtx.verdicts.model.verdict_words import State

#: The topics of both designs; the topic of transactions in RocksDB is read from the version that introduced it.
_TOPICS = {
    "halves": HALF_TOPICS, "ops": OP_TOPICS,
}


def read_halves(broker: Broker, bounds: Bounds = WHOLE, pace: Pace | None = None) -> Reading:
    """Return every half copy of the half queue, or of a range of commit-log offsets or store times, as rows of HALVES.

    Order:  queue offset; those of transactions in RocksDB, which have a queue of their own, come last.
    Damage: records that the broker does not return, and bytes that are not a record, are findings.
    Raises: Unreachable, NoAnswer, Refused while it is iterated.
    """
    return _reading(broker, "halves", HALVES, halves_of, bounds, pace or Pace())


def read_ops(broker: Broker, bounds: Bounds = WHOLE, pace: Pace | None = None) -> Reading:
    """Return every op message of the op queue, or of a range of commit-log offsets or store times, as rows of OPS.

    Order:  queue offset; those of transactions in RocksDB, which have a queue of their own, come last.
    Damage: an unreadable body is a finding and stays a row; ops-unreadable if the broker returns none (4.3.0).
    Raises: Unreachable, NoAnswer, Refused while it is iterated.
    """
    return _reading(broker, "ops", OPS, ops_of, bounds, pace or Pace())


def _within(block: Block, bounds: Bounds) -> Block:
    offsets = block.commit_log_offsets
    low = 0 if bounds.from_offset is None else bounds.from_offset
    high = 1 << 62 if bounds.to_offset is None else bounds.to_offset
    return block.take((offsets >= low) & (offsets < high)).within(bounds.from_time_ms, bounds.to_time_ms)


def _reading(
    broker: Broker, kind: str, schema: pa.Schema, make: Callable[[Block, str], pa.RecordBatch], bounds: Bounds,
    pace: Pace,
) -> Reading:
    reading = Reading(schema, ())

    def batches() -> Iterator[pa.RecordBatch]:
        first, in_rocksdb = _TOPICS[kind]
        ranges = [(first, max(0, broker.min_offset(first)), max(0, broker.max_offset(first)))]
        is_in_use = broker.config().get("transRocksDBEnable") == "true"
        ranges.append((in_rocksdb, *rocksdb_range(broker, broker.version(), in_rocksdb, is_needed=is_in_use)))
        log_begin_offset = int(broker.runtime().get("commitLogMinOffset", "0"))
        for topic, low, end in ranges:
            begin = first_kept(broker, topic, 0, low, end, log_begin_offset)
            if begin < end:
                yield from _rows(reading, broker, topic, (begin, end), make, bounds, pace)

    reading.batches = batches()
    return reading


def _rows(
    reading: Reading, broker: Broker, topic: str, span: tuple[int, int],
    make: Callable[[Block, str], pa.RecordBatch], bounds: Bounds, pace: Pace,
) -> Iterator[pa.RecordBatch]:
    gaps: list[UnreadEntries] = []
    begin, end = span
    if bounds.from_offset is not None:
        begin = place_of(broker, topic, 0, begin, end, bounds.from_offset) or begin
    if bounds.to_offset is not None:
        end = min(end, place_of(broker, topic, 0, begin, end, bounds.to_offset) or end)
    if topic == OP_TOPIC:
        bodies = ops(broker, begin, end, pace, gaps)
    else:
        bodies = records(broker, topic, 0, begin, end, pace, gaps)
    try:
        for block in blocks_of(bodies, broker.root, reading.findings):
            chosen = _within(block.take(block.topic_is(topic)), bounds)
            if len(chosen):
                rows = make(chosen, broker.root)
                if reading.schema is OPS:
                    reading.findings.extend(op_findings(rows, broker.root))
                yield rows
    except OpsUnreadable:
        reading.findings.append(Finding(broker.root, "ops-unreadable", actual=f"{end - begin} entries"))
    reading.findings.extend(gap.finding(broker.root) for gap in gaps)


def groups_asked_through(rows: pa.Table, through: str) -> list[str]:
    """Return the producer groups that a broker asks in one way, among pending rows of LIVE_TRANSACTIONS."""
    waiting = rows.filter(
        pc.and_(pc.equal(rows["state"], State.PENDING), pc.fill_null(pc.equal(rows["asked_through"], through), False))
    )
    return sorted(group for group in pc.unique(waiting["producer_group"]).to_pylist() if group is not None)
