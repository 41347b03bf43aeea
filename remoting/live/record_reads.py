"""Reading records of a live broker by its queues and its index, and collecting them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.op_messages import ops_of
from rmqtx.readers.log.prepared_records import is_prepared
from rmqtx.readers.log.properties import UNIQ_KEY
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.torn_properties import are_damaged_ids
from rmqtx.readers.log.transaction_records import is_final
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.identities import AT, FINAL, HALF, NamedPlace, offset_of
from rmqtx.readers.model.moments import HOUR_MS
from rmqtx.readers.model.releases import UNIQ_KEY_INDEXED
from rmqtx.readers.store.store import (
    DISCARD_TOPIC,
    HALF_TOPIC,
    HALF_TOPICS,
    OP_TOPIC,
    ROCKSDB_HALF_TOPIC,
    TIMER_TOPIC,
    WAITING_TOPICS,
)
from rmqtx.remoting.connections.batched_reads import EVER_MS, Pace, UnreadEntries, queries, topics, views
from rmqtx.remoting.live.queues import (
    LogTooLong,
    OpsUnreadable,
    first_kept,
    ops,
    records,
    records_of_system_topic,
    walked,
)
from rmqtx.remoting.live.store_facts import LiveStore
from rmqtx.remoting.protocol.codes import ResponseCode
from rmqtx.remoting.protocol.errors import Refused
from rmqtx.remoting.protocol.record_bytes import blocks_of
from rmqtx.verdicts.ends.doubtful_ends import names_of
from rmqtx.verdicts.evidence.witness_collector import CollectedWitnesses
from rmqtx.verdicts.transactions.shared_numbers import FINAL_SLACK_MS

#: Topics of half copies that are not prepared records.
_HALF_TOPICS = (*HALF_TOPICS, *WAITING_TOPICS)
_CLOCK_AHEAD_MS = HOUR_MS
#: Reading this number of records from a queue costs about as much as one query of the index.
RECORDS_PER_QUERY = 2
#: Most records from before the broker's last start that are read because the index may lack them.
HOLE_RECORDS_MAX = 1_000_000
#: Most topics in which a key, or in whose queue 0 a wrongly named record, is looked up.
_TOPICS_MAX = 256
#: Queue offsets closer than this are read together.
_APART_MAX = 32


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

    def place_at(self, topic: str, queue_id: int, time_ms: int, end: int) -> int:
        """Return a queue offset after all records that were stored before a time, at most `end`.

        The 2 is added because 4.x answers with the nearest offset.
        """
        found = self._broker.offset_at(topic, queue_id, time_ms)
        return end if found is None else min(end, found + 2)

    def queue(self, topic: str, queue_id: int, begin: int, end: int) -> Iterator[Block]:
        """Yield the records of a part of a queue.

        A broker 4.x refuses the pulls from the half queue (17) until its first round has made the topic's
        configuration; its entries lead to the records then, or on 4.3.0, which does not serve them, the log does.
        Source: TransactionalMessageBridge.selectTopicConfig.
        """
        facts, broker = self._facts, self._broker
        if topic != HALF_TOPIC:
            bodies = records(broker, topic, queue_id, begin, end, self.pace, self.gaps)
            yield from blocks_of(bodies, facts.root, facts.findings)
            return
        try:
            bodies = records_of_system_topic(broker, topic, begin, end, self.pace, self.gaps)
            yield from blocks_of(bodies, facts.root, facts.findings)
        except OpsUnreadable:
            bodies = walked(broker, facts.log_begin_offset, facts.log_file_bytes, self.pace)
            for block in blocks_of(bodies, facts.root, []):
                numbers = block.header("queue_offset")
                yield block.take(block.topic_is(topic) & (begin <= numbers) & (numbers < end))

    def add_gaps(self, topic: str, numbers: Int64s) -> None:
        """Add entries of queue 0 of a topic, in order, of which the broker has no record; not those known as gaps."""
        known = [np.arange(gap.begin, gap.end) for gap in self.gaps if (gap.topic, gap.queue_id) == (topic, 0)]
        lacking = np.setdiff1d(numbers, np.concatenate([numbers[:0], *known]))
        for run in np.split(lacking, np.flatnonzero(np.diff(lacking) != 1) + 1) if len(lacking) else ():
            self.gaps.append(UnreadEntries(topic, 0, int(run[0]), int(run[-1]) + 1))

    def read_index(self, keys: Iterable[tuple[str, str]]) -> None:
        """Add the records that the index has under some keys; a key with more records than it returns is a finding."""
        incomplete: list[str] = []
        bodies = queries(self._broker, keys, self.pace, incomplete)
        for block in blocks_of(bodies, self._facts.root, self._facts.findings):
            self._add(block)
        self._facts.findings.extend(Finding(self._facts.root, "key-incomplete", actual=key) for key in incomplete)

    def _add(self, block: Block) -> None:
        self.gathered.add(block)
        self._facts.copies.add(block, self._facts.root)

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
                    self._add(only_with(block, ids))
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
                begin = begin if found is None else min(max(begin, found), end)
            if begin < end and until_ms is not None:
                end = max(begin, self.place_at(topic, queue_id, until_ms, end))
            if begin < end:
                ranges.append((queue_id, begin, end))
        return ranges, sum(end - begin for _, begin, end in ranges)


def only_with(block: Block, ids: list[str]) -> Block:
    """Return the records with one of the ids, or without an id that can be read."""
    own = block.properties.text(UNIQ_KEY)
    chosen = pc.or_(pc.is_null(own), pc.is_in(own, value_set=pa.array(ids, pa.string())))
    chosen = pc.or_(chosen, are_damaged_ids(own))
    return block.take(np.asarray(chosen))


# Looking up single records of a broker: for decisions on other records, whose op messages may hide a half.
#
# The rule is in `rmqtx.verdicts.ends.doubtful_ends`; docs/formats/end_transaction.md#repeats.


class LiveRecords:
    """The records of a broker, looked up singly for `misdirected_decisions`.

    Damage: foreign-unsearched where the broker does not list its topics or return their records.
    """

    def __init__(self, facts: LiveStore, pace: Pace) -> None:
        self._facts = facts
        self._pace = pace

    def namesakes(self, named: Sequence[Block]) -> Iterator[Block]:
        """Yield the records that the broker has under the ids of other records."""
        keys = dict.fromkeys(key for block in named for key in names_of(block))
        for block in blocks_of(queries(self._facts.broker, keys, self._pace), self._facts.root, []):
            yield from (block.take(np.array([row])) for row in range(len(block)))

    def numbered(self, numbers: Sequence[int]) -> Iterator[Block]:
        """Yield the records with some queue offsets in queue 0 of any topic except those of halves and ops."""
        broker = self._facts.broker
        try:
            names = [name for name in topics(broker) if name not in (HALF_TOPIC, OP_TOPIC) and not name.startswith("%")]
        except Refused:  # access control: this requires an administrator's account
            names = []
        if not names or len(names) > _TOPICS_MAX:
            self._facts.findings.append(Finding(self._facts.root, "foreign-unsearched"))
            return
        refused: list[str] = []
        for topic in sorted({*names, DISCARD_TOPIC, TIMER_TOPIC}):  # unlisted without a wheel: the timer topic
            try:
                yield from self._in_topic(topic, numbers)
            except Refused as error:
                if error.code != ResponseCode.TOPIC_NOT_EXIST:  # deleted meanwhile
                    refused.append(topic)
        if refused:  # access control: an operator's account may lack rights on topics without transactions
            more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
            self._facts.findings.append(Finding(self._facts.root, "foreign-unsearched", actual=refused[0] + more))

    def _in_topic(self, topic: str, numbers: Sequence[int]) -> Iterator[Block]:
        broker = self._facts.broker
        low, high = max(0, broker.min_offset(topic)), broker.max_offset(topic)
        places = [number for number in numbers if low <= number < high]
        for begin, end in _runs(places):
            bodies = records_of_system_topic(broker, topic, begin, end, self._pace, [])
            for block in blocks_of(bodies, self._facts.root, []):
                for row in np.flatnonzero(np.isin(block.header("queue_offset"), places)).tolist():
                    yield block.take(np.array([row]))


def _runs(places: list[int]) -> list[tuple[int, int]]:
    """Ascending numbers as ranges."""
    runs: list[tuple[int, int]] = []
    for place in places:
        if runs and place - runs[-1][1] < _APART_MAX:
            runs[-1] = (runs[-1][0], place + 1)
        else:
            runs.append((place, place + 1))
    return runs


# The records at a place of a live broker: a number in its half or op queue, or the first byte of a record.
#
# A broker returns the record to which a queue leads now, and a record by its first byte; it has no request for the
# record that covers another byte, or for an earlier record with the same number.


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
    )
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


# Prepared records of live brokers (before 4.3) and their decisions, from the index and from the log itself.
#
# A prepared record is in no queue. Its index entry is under its real topic, as for other messages. Its decision may
# not be in the index either: ROLLBACK records never are, COMMIT records only since 4.0. So the log is read after it.


def read_prepared(facts: LiveStore, gathered: CollectedWitnesses, names: Sequence[str], pace: Pace) -> None:
    """Add the prepared records that the index has under some ids or business keys, in any topic.

    For a broker before 4.3, COMMIT records are added too: their prepared record may have expired.
    Raises: Unreachable, NoAnswer, Refused.
    """
    try:
        known = topics(facts.broker)
    except Refused:  # access control: this requires an administrator's account
        return
    real = [topic for topic in known if not topic.startswith("%") and topic not in _HALF_TOPICS][:_TOPICS_MAX]
    keys = [(topic, name) for topic in real for name in names]
    for times_ms in _spans(facts):
        for block in blocks_of(queries(facts.broker, keys, pace, times_ms=times_ms), facts.root, facts.findings):
            chosen = is_prepared(block) if facts.has_half_topic else np.ones(len(block), np.bool_)
            gathered.add(block.take(chosen))


def _spans(facts: LiveStore) -> Iterator[tuple[int, int]]:
    """Yield the time since the log's first record, in spans that the broker accepts in one query."""
    end_ms = facts.taken_time_ms + _CLOCK_AHEAD_MS
    if facts.query_span_ms is None:
        yield 0, EVER_MS
        return
    begin_ms = end_ms - facts.query_span_ms
    for block in blocks_of([facts.broker.view(facts.log_begin_offset) or b""], facts.root, []):
        begin_ms = int(block.header("store_time_ms")[0])
    while begin_ms < end_ms:
        yield begin_ms, min(begin_ms + facts.query_span_ms, end_ms)
        begin_ms += facts.query_span_ms


def walk_behind_prepared(facts: LiveStore, gathered: CollectedWitnesses, names: Sequence[str], pace: Pace) -> None:
    """Add all records after the first prepared record of some transactions, unless they are too many.

    Damage: too many are a finding, and verdicts that rest on the absence of records are UNDECIDABLE.
    Raises: Unreachable, NoAnswer, Refused.
    """
    halves = gathered.chosen("halves", names)
    prepared = halves.filter(pc.invert(pc.is_in(halves["topic"], value_set=pa.array(_HALF_TOPICS))))
    if not prepared.num_rows:
        return
    first = pc.min(prepared["commit_log_offset"]).as_py()
    try:
        for block in blocks_of(walked(facts.broker, first, facts.log_file_bytes, pace), facts.root, []):
            gathered.add(block)
    except LogTooLong as error:
        facts.findings.append(Finding(facts.root, "prepared-unwalked", actual=f"{error.actual} bytes"))
        facts.add_missing(
            f"the {error.actual} bytes of its log after a prepared record, too many to read from the broker"
        )


def messages_with_id(
    facts: LiveStore, place: tuple[str, int], name: str, since_ms: int, unread: list[str]
) -> Iterator[Block]:
    """Yield messages of a topic that may have an id as UNIQ_KEY; messages with other ids may be among them.

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
