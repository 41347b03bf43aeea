"""The messages of a topic that have the id of a transaction, from the index and, where it lacks records, the queue."""

from __future__ import annotations

from collections.abc import Iterator

from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.releases import UNIQ_KEY_INDEXED
from rmqtx.remoting.connections.batched_reads import Pace, queries
from rmqtx.remoting.live.record_reads import HOLE_RECORDS_MAX, LiveReads
from rmqtx.remoting.live.store_facts import LiveStore
from rmqtx.remoting.protocol.codes import ResponseCode
from rmqtx.remoting.protocol.errors import Refused
from rmqtx.remoting.protocol.record_bytes import blocks_of


def messages_with_id(
    facts: LiveStore, place: tuple[str, int], name: str, since_ms: int, unread: list[str]
) -> Iterator[Block]:
    """Yield records of a topic that may have an id as UNIQ_KEY; records with other ids may be among them.

    `place`: topic and queue number; the index is asked for the topic, the queue is read where the index is not whole:
    from `since_ms` on until the last start of the broker. `unread` takes what could not be read, in words.
    Raises: Unreachable, NoAnswer, Refused.
    """
    topic, queue_id = place
    low = facts.settings.version_low
    is_indexed = facts.has_index and low is not None and UNIQ_KEY_INDEXED.holds(low)
    until_ms = facts.index_whole_since_ms if is_indexed else None
    reads = LiveReads(facts, Pace())
    try:
        if until_ms is None or since_ms < until_ms:
            ranges, count = reads.ranges(topic, {queue_id}, since_ms, until_ms)
            if count > HOLE_RECORDS_MAX:
                unread.append(f"the index of {facts.root} may lack some of {count} messages of {topic}")
                return
            for number, begin, end in ranges:
                yield from reads.queue(topic, number, begin, end)
            unread.extend(f"{facts.root} did not return all messages of {topic}" for _ in reads.gaps[:1])
        if is_indexed:
            incomplete: list[str] = []
            yield from blocks_of(queries(facts.broker, [(topic, name)], Pace(), incomplete), facts.root, [])
            unread.extend(f"{facts.root} has more records of {key} than it returns" for key in incomplete)
    except Refused as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
