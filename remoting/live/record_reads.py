"""Reading records of a live broker by its queues and its index, and collecting them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.properties import UNIQ_KEY
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.identities import offset_of
from rmqtx.remoting.connections.batched_reads import Pace, UnreadEntries, queries, views
from rmqtx.remoting.live.queues import first_kept, records
from rmqtx.remoting.live.store_facts import LiveStore
from rmqtx.remoting.protocol.codes import ResponseCode
from rmqtx.remoting.protocol.errors import Refused
from rmqtx.remoting.protocol.record_bytes import blocks_of
from rmqtx.verdicts.evidence.witness_collector import CollectedWitnesses
from rmqtx.verdicts.transactions.shared_numbers import FINAL_SLACK_MS

#: Reading this number of records from a queue costs about as much as one query of the index.
RECORDS_PER_QUERY = 2
#: Most records from before the broker's last start that are read because the index may lack them.
HOLE_RECORDS_MAX = 1_000_000


class LiveReads:
    """Records of one live broker.

    Shape:  `gathered`: the collected records; `gaps`: parts of queues whose records the broker did not return.
            `message_ids`: the offsets of records that have a given text as message id; `other_ids`: the message ids of
            records that have only the offset in common with the given one.
    Raises: Unreachable, NoAnswer, Refused.
    """

    def __init__(self, facts: LiveStore, pace: Pace) -> None:
        self._facts, self._broker, self.pace = facts, facts.broker, pace
        self.gathered = CollectedWitnesses(facts.root)
        self.gaps: list[UnreadEntries] = []
        self.message_ids: dict[str, int] = {}
        self.other_ids: dict[str, str] = {}

    def place_at(self, topic: str, queue_id: int, time_ms: int) -> int:
        """Return a queue offset after all records that were stored before a time.

        The 2 is added because 4.x answers with the nearest offset.
        """
        return self._broker.offset_at(topic, queue_id, time_ms) + 2

    def queue(self, topic: str, queue_id: int, begin: int, end: int) -> Iterator[Block]:
        """Yield the records of a part of a queue."""
        bodies = records(self._broker, topic, queue_id, begin, end, self.pace, self.gaps)
        return blocks_of(bodies, self._facts.root, self._facts.findings)

    def read_index(self, keys: Iterable[tuple[str, str]]) -> None:
        """Add the records that the index has under some keys; a key with more records than it returns is a finding."""
        incomplete: list[str] = []
        bodies = queries(self._broker, keys, self.pace, incomplete)
        for block in blocks_of(bodies, self._facts.root, self._facts.findings):
            self.gathered.add(block)
        self._facts.findings.extend(Finding(self._facts.root, "key-incomplete", actual=key) for key in incomplete)

    def read_view(self, identity: str) -> None:
        """Add the record with a message id, which contains its offset; nothing if the text is not a record's id."""
        offset = offset_of(identity)
        if offset is None or not self._facts.log_begin_offset <= offset < self._facts.log_end_offset:
            return  # most ids have the form of message ids, but are not message ids
        for _, body in views(self._broker, [offset], self.pace):
            for block in blocks_of([body or b""], self._facts.root, []):
                own = block.message_ids().to_pylist()[0]
                if len(block) == 1 and own == identity.upper():
                    self.message_ids[identity] = offset
                    self.gathered.add(block)
                elif len(block) == 1:
                    self.other_ids[identity] = own

    def at_offset(self, offset: int) -> Iterator[Block]:
        """Return the record that begins at a commit-log offset; nothing if none begins there."""
        if self._facts.log_begin_offset <= offset < self._facts.log_end_offset:
            for _, body in views(self._broker, [offset], self.pace):
                for block in blocks_of([body or b""], self._facts.root, []):
                    yield block.take(block.commit_log_offsets == offset)

    @property
    def lone_names(self) -> set[str]:
        """The names of the half copies without an id that were read."""
        halves = self.gathered.table("halves")
        prints = halves["fingerprint"]
        return set() if prints.null_count == len(prints) else set(prints.to_pylist()) - {None}

    def read_topic(self, topic: str, queue_ids: set[int], names: list[str], since_ms: int) -> None:
        """Add the records of some transactions in a topic, by its queues or by the index, whichever is less."""
        lone = self.lone_names.intersection(names)
        ids = [name for name in names if name not in lone]
        ranges, count = self.ranges(topic, queue_ids, since_ms)
        if queue_ids and not count:
            return
        holes: list[tuple[int, int, int]] = []
        holes_count = 0
        if since_ms < self._facts.index_whole_since_ms:
            holes, holes_count = self.ranges(topic, queue_ids, since_ms, self._facts.index_whole_since_ms)
        is_less = count <= RECORDS_PER_QUERY * len(ids) + holes_count
        if ranges and (lone or not self._facts.has_index or is_less):
            if self._read_ranges(topic, ranges, ids):
                return
        elif holes_count > HOLE_RECORDS_MAX:
            actual = f"{holes_count} messages of {topic}"
            self._facts.findings.append(Finding(self._facts.root, "index-unproven", actual=actual))
            self._facts.add_missing(f"the index may lack some of {actual}, written before the broker's last start")
        else:
            self._read_ranges(topic, holes, ids)
        self.read_index((topic, name) for name in ids)

    def _read_ranges(self, topic: str, ranges: list[tuple[int, int, int]], ids: list[str]) -> bool:
        """Add the records of some transactions in parts of queues; false if the topic no longer exists."""
        try:
            for queue_id, begin, end in ranges:
                for block in self.queue(topic, queue_id, begin, end):
                    self.gathered.add(only_with(block, ids))
        except Refused as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return False
        return True

    def ranges(
        self, topic: str, queue_ids: set[int], since_ms: int, until_ms: int | None = None
    ) -> tuple[list[tuple[int, int, int]], int]:
        """Return the parts of a topic's queues written in a time (queue number, begin, end), and their record count."""
        ranges = []
        for queue_id in sorted(queue_ids):
            end = self._broker.max_offset(topic, queue_id)
            begin = max(0, self._broker.min_offset(topic, queue_id))
            begin = first_kept(self._broker, topic, queue_id, begin, end, self._facts.log_begin_offset)
            if begin < end and since_ms:
                found = self._broker.offset_at(topic, queue_id, since_ms - FINAL_SLACK_MS)
                begin = min(max(begin, found), end)
            if begin < end and until_ms is not None:
                end = max(begin, min(end, self.place_at(topic, queue_id, until_ms)))
            if begin < end:
                ranges.append((queue_id, begin, end))
        return ranges, sum(end - begin for _, begin, end in ranges)


def only_with(block: Block, ids: list[str]) -> Block:
    """Return the records with one of the ids, or without an id."""
    own = block.properties.text(UNIQ_KEY)
    chosen = pc.or_(pc.is_null(own), pc.is_in(own, value_set=pa.array(ids, pa.string())))
    return block.take(np.asarray(chosen))
