"""Queues of a live broker: ranges are read with several pulls under way, or in another way that the version supports.

A broker returns 32 records per pull, and fewer if they are large or cold; so the next pulls are sent before the first
is answered, and records that one pull left out are pulled before the next is processed. The op topic of 4.x cannot be
pulled (17, it has no topic configuration): there the queue's entries are read (321), and each record by its offset
(33).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from rmqtx.readers.queues.consume_queue import PRE_BLANK_LENGTH
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC
from rmqtx.remoting.connections.batched_reads import Pace, UnreadEntries, again, views
from rmqtx.remoting.connections.broker import PULL_RECORDS_MAX, Broker
from rmqtx.remoting.protocol.answers import QueueSlot
from rmqtx.remoting.protocol.codes import ResponseCode
from rmqtx.remoting.protocol.errors import NoAnswer, Refused, RemotingError
from rmqtx.remoting.protocol.record_bytes import blocks_of, cut

_SLOTS_AT_ONCE = 1000
#: Seen on 5.1.4 and 5.5.0, with slots of zeros; earlier releases refuse the pull.
_SILENT_ADVICE = (
    "to wait longer, add --timeout DURATION; if the broker answers other requests, one of these slots may lead to no "
    "record (5.1.4 and later do not answer then): rmqtx verify STORE reads its files"
)
#: Some 100,000 records, at some 1,000 per second.
_WALKED_BYTES_MAX = 64 << 20


def records(
    broker: Broker, topic: str, queue_id: int, begin: int, end: int, pace: Pace, gaps: list[UnreadEntries]
) -> Iterator[bytes]:
    """Yield the records of a range of a queue as the broker sends them: one or several in each value.

    Units:  queue offsets, `end` excluded.
    Order:  queue offset.
    Damage: records that the broker does not return are added to `gaps`.
    Raises: Refused (17 where the topic has no configuration), Unreachable, NoAnswer.
    """
    place = begin

    def ask() -> Iterator[tuple[int, bytes]]:
        return _pulls(broker, topic, queue_id, place, end, pace, gaps)

    while True:
        try:
            for following, body in again(ask):
                place = following  # where a repeated request continues
                if body:
                    yield body
            return
        except NoAnswer as error:
            error.message += f", about {topic}/{queue_id} from queue offset {place} on"
            error.advice = _SILENT_ADVICE
            raise
        except Refused as error:
            if not error.meets_empty_slot:
                raise
            refusal = error
        before = place
        for following, body in _one_by_one(
            broker, topic, queue_id, place, min(end, place + PULL_RECORDS_MAX), pace, gaps
        ):
            place = following
            if body:
                yield body
        if place == before:
            raise refusal


def _pulls(
    broker: Broker, topic: str, queue_id: int, begin: int, end: int, pace: Pace, gaps: list[UnreadEntries]
) -> Iterator[tuple[int, bytes]]:
    """Yield the queue offset of the next record, and the records before it."""
    asked: deque[tuple[int, int]] = deque()
    stride = PULL_RECORDS_MAX

    def places() -> Iterator[tuple[str, int, int, int]]:
        place = begin
        while place < end:
            pace.wait()
            count = min(stride, end - place)
            asked.append((place, count))
            yield topic, queue_id, place, count
            place += count

    for pulled in broker.pulls(places()):
        place, count = asked.popleft()
        stop = place + count
        while True:
            if pulled.status == "none":  # the queue ends here
                return
            following = min(stop, max(pulled.next_offset, place + 1))
            if pulled.status == "moved":  # the queue begins later by now
                _add_gap(gaps, topic, queue_id, place, following)
                yield following, b""
            elif pulled.next_offset <= stop and _has_one_for_each(pulled.body, following - place):
                yield following, pulled.body
            else:
                yield from _one_by_one(broker, topic, queue_id, place, following, pace, gaps)
            if following >= stop:
                break
            stride = max(1, min(stride, following - place))
            place = following
            pace.wait()
            pulled = broker.pull(topic, queue_id, place, stop - place)


def _has_one_for_each(body: bytes, count: int) -> bool:
    """Whether some bytes are one record for each of some entries.

    For an entry that leads between two records a broker sends several, and a part of the last one.
    """
    starts, _, end = cut(body)
    return len(starts) == count and end == len(body)


def _one_by_one(
    broker: Broker, topic: str, queue_id: int, begin: int, end: int, pace: Pace, gaps: list[UnreadEntries]
) -> Iterator[tuple[int, bytes]]:
    """Yield what `_pulls` does, for a range of which one pull gave fewer records than it has entries.

    A broker passes an entry whose record it cannot read, and in that pull the others that lead into the same file of
    the log. Source: store/DefaultMessageStore.java getMessage (nextPhyFileStartOffset).
    """
    place = begin
    while place < end:
        pace.wait()
        try:
            pulled = broker.pull(topic, queue_id, place, 1)
        except Refused as error:
            if not error.meets_empty_slot:
                raise
            _add_gap(gaps, topic, queue_id, place, place + 1)
            place += 1
            yield place, b""
            continue
        if pulled.status == "none":
            return
        if pulled.status == "found" and (pulled.next_offset == place + 1 or _number(pulled.body) == place):
            place = pulled.next_offset
            yield place, pulled.body
        else:  # what is found is of a later entry
            _add_gap(gaps, topic, queue_id, place, place + 1)
            place += 1
            yield place, b""


def _number(body: bytes) -> int | None:
    """The queue offset of the first record in some bytes."""
    return next((int(block.header("queue_offset")[0]) for block in blocks_of([body], "", [])), None)


def _add_gap(gaps: list[UnreadEntries], topic: str, queue_id: int, begin: int, end: int) -> None:
    last = gaps[-1] if gaps else None
    if last is not None and (last.topic, last.queue_id, last.end) == (topic, queue_id, begin):
        last.end = end
    else:
        gaps.append(UnreadEntries(topic, queue_id, begin, end))


def ops(broker: Broker, begin: int, end: int, pace: Pace, gaps: list[UnreadEntries]) -> Iterator[bytes]:
    """Yield the op messages of a range of the op queue, in the way that this broker supports.

    Raises: OpsUnreadable; Refused, Unreachable, NoAnswer.
    """
    return records_of_system_topic(broker, OP_TOPIC, begin, end, pace, gaps)


def records_of_system_topic(
    broker: Broker, topic: str, begin: int, end: int, pace: Pace, gaps: list[UnreadEntries]
) -> Iterator[bytes]:
    """Yield the records of a range of queue 0 of a topic; entry by entry if the topic has no configuration.

    Raises: OpsUnreadable; Refused, Unreachable, NoAnswer.
    """
    try:
        yield from records(broker, topic, 0, begin, end, pace, gaps)
    except Refused as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
    else:
        return
    yield from _viewed(broker, topic, begin, end, pace, gaps)


def _is_filler(slot: QueueSlot) -> bool:
    """Whether a slot has no record; it names place 0, where the log may have one."""
    return slot.commit_log_offset == 0 and slot.length_bytes == PRE_BLANK_LENGTH


class OpsUnreadable(Refused):
    """A system topic's queue that this broker does not serve (4.3.0)."""


class LogTooLong(RemotingError):
    """A log that is too long to be read record by record; `actual`: number of bytes left."""


def _viewed(broker: Broker, topic: str, begin: int, end: int, pace: Pace, gaps: list[UnreadEntries]) -> Iterator[bytes]:
    place = begin
    while place < end:
        found = broker.slots(topic, 0, place, min(_SLOTS_AT_ONCE, end - place)).slots
        if not found:
            raise OpsUnreadable(f"{broker.root} does not serve its queue of {topic}")
        offsets = [slot.commit_log_offset for slot in found]
        for slot, (_, body) in zip(found, views(broker, offsets, pace), strict=True):
            if body is None or _is_filler(slot):
                gaps.append(UnreadEntries(topic, 0, slot.queue_offset, slot.queue_offset + 1))
            else:
                yield body
        place += len(found)


def walked(broker: Broker, begin: int, file_bytes: int, pace: Pace, end: int | None = None) -> Iterator[bytes]:
    """Yield every record of the commit log from an offset on, one by one; for brokers that do not serve a queue.

    `file_bytes`: length of a file of the log; a blank record ends it. `end`: of the part that is read; the end of the
    log without it.
    Raises: LogTooLong if there are too many bytes to read.
    """
    end = int(broker.runtime()["commitLogMaxOffset"]) if end is None else end
    if end - begin > _WALKED_BYTES_MAX:
        raise LogTooLong(f"{end - begin} bytes of the log of {broker.root} are too many to read", actual=end - begin)
    place = begin
    while place < end:
        pace.wait()
        body = broker.view(place) or b""
        starts, _, stop = cut(body)
        if starts:
            yield body
            place += stop
        else:
            place = (place // file_bytes + 1) * file_bytes


def place_of(broker: Broker, topic: str, queue_id: int, low: int, high: int, offset: int) -> int | None:
    """Return the first queue offset in [low, high) whose record is at a commit-log offset or later; else `high`.

    None if the broker returns no entries (4.3.0, queues in RocksDB).
    """
    while low < high:
        middle = (low + high) // 2
        found = broker.slots(topic, queue_id, middle, 1).slots
        if not found:
            return None
        if found[0].commit_log_offset < offset:
            low = middle + 1
        else:
            high = middle
    return low


def left_slots(broker: Broker, begin: int, end: int, log_end_offset: int) -> Iterator[int]:
    """Yield the entries of the half queue in [begin, end) that a power loss left: they lead over the next one, or over
    the end of the log.

    Raises: Refused, Unreachable, NoAnswer.
    """
    place = begin
    while place < end:
        found = broker.slots(HALF_TOPIC, 0, place, min(_SLOTS_AT_ONCE, end - place) + 1).slots
        for number, slot in enumerate(found):
            following = found[number + 1].commit_log_offset if number + 1 < len(found) else log_end_offset
            if slot.queue_offset < end and slot.commit_log_offset + slot.length_bytes > min(following, log_end_offset):
                yield slot.queue_offset
        if not found:
            return
        place = found[-1].queue_offset + (len(found) == 1)


def first_kept(broker: Broker, topic: str, queue_id: int, begin: int, end: int, log_begin_offset: int) -> int:
    """Return the first queue offset in [begin, end) whose record the log still has; `end` if it has none of them.

    A broker's minimum of a queue is where its files begin, and these stay longer than those of the log; a queue of
    which every record has expired keeps its old minimum permanently (ConsumeQueue.correctMinOffset, 4.9.7). For an
    expired record a broker may return bytes: for the record at commit-log offset 0 a real 4.9.7 returned the first
    bytes of the remaining log (CommitLog.getData uses the first file if it finds none for offset 0).
    """
    if begin >= end or log_begin_offset <= 0:
        return begin
    try:
        found = broker.slots(topic, queue_id, begin, 1).slots
        if not found or found[0].commit_log_offset >= log_begin_offset:
            return begin
        place = place_of(broker, topic, queue_id, begin + 1, end, log_begin_offset)
    except Refused:  # an account may have the right to pull from a topic and not the right to read its entries
        return begin
    return begin if place is None else place
