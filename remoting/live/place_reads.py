"""The records at a place of a live broker: a number in its half or op queue, or the first byte of a record.

A broker returns the record to which a queue leads now, and a record by its first byte; it has no request for the record
that covers another byte, or for an earlier record with the same number.
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqtx.readers.log.op_messages import ops_of
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.transaction_records import is_final
from rmqtx.readers.model.identities import AT, FINAL, HALF, NamedPlace
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC
from rmqtx.remoting.live.queues import ops
from rmqtx.remoting.live.record_reads import LiveReads
from rmqtx.remoting.live.store_facts import LiveStore
from rmqtx.remoting.protocol.record_bytes import blocks_of


def read_place(reads: LiveReads, facts: LiveStore, place: NamedPlace) -> list[int]:
    """Read the records at a place, and return their commit-log offsets; for an op message, the half messages it lists.

    Raises: OpsUnreadable if the broker does not serve its op queue (4.3.0); Unreachable, NoAnswer, Refused.
    """
    found: list[int] = []
    for block in _blocks(reads, facts, place):
        reads.gathered.add(block)
        found += block.commit_log_offsets.tolist()
    return found


def _blocks(reads: LiveReads, facts: LiveStore, place: NamedPlace) -> Iterator[Block]:
    if not place.is_in(facts.root, facts.broker.name):
        return
    if place.kind == HALF:
        yield from _halves(reads, facts, [place.number])
    elif place.is_of_log:
        for block in reads.at_offset(place.number):
            if block.topic_is(OP_TOPIC).all() and place.kind == AT:
                yield from _halves(reads, facts, _numbers(block, facts))
            elif place.kind != FINAL or is_final(block).all():
                yield block
    elif facts.op_begin <= place.number < facts.broker.max_offset(OP_TOPIC):
        bodies = ops(facts.broker, place.number, place.number + 1, reads.pace, reads.gaps)
        for block in blocks_of(bodies, facts.root, facts.findings):
            mine = block.take(block.topic_is(OP_TOPIC) & (block.header("queue_offset") == place.number))
            yield from _halves(reads, facts, _numbers(mine, facts))


def _numbers(block: Block, facts: LiveStore) -> list[int]:
    return sorted(set(ops_of(block, facts.root)["half_queue_offsets"].flatten().to_pylist()))


def _halves(reads: LiveReads, facts: LiveStore, numbers: list[int]) -> Iterator[Block]:
    queues = (HALF_TOPIC, facts.half_begin, facts.half_end), (
        ROCKSDB_HALF_TOPIC, facts.rocksdb_begin, facts.rocksdb_end
    )  # fmt: skip
    for number in numbers:
        for topic, begin, end in queues:
            if begin <= number < end:
                for block in reads.queue(topic, 0, number, number + 1):
                    yield block.take(block.header("queue_offset") == number)


def range_words(facts: LiveStore, place: NamedPlace) -> str:
    """Return a clause about the places that a broker has."""
    if not place.is_in(facts.root, facts.broker.name):
        return f"; {facts.root} is not {place.where}"
    if place.is_of_log:
        return (
            f"; the commit log of {facts.root} has bytes {facts.log_begin_offset} to {facts.log_end_offset - 1}; a "
            "broker returns only records that begin at the byte"
        )
    if not facts.has_half_topic:
        return f"; {facts.root} has no half queue and no op queue (before 4.3): use at:"
    if place.kind != HALF:
        end = facts.broker.max_offset(OP_TOPIC)
        return f"; the op queue of {facts.root} has {_range(facts.op_begin, end)}"
    more = f", in RocksDB {_range(facts.rocksdb_begin, facts.rocksdb_end)}" if facts.rocksdb_end else ""
    return f"; the half queue of {facts.root} has {_range(facts.half_begin, facts.half_end)}{more}"


def _range(begin: int, end: int) -> str:
    return f"queue offsets {begin} to {end - 1}" if begin < end else "no messages"
