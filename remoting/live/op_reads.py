"""The op messages of a live broker: those that may end some half messages, and those that its check reads.

The op queue is pulled, or its entries are read; where the broker serves neither (4.3.0), the log is walked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.op_messages import ops_of
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.columns import Int64s, IntegerSet, int64s
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.releases import QUEUES_CUT_AFTER_CLEAN_STOP
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC
from rmqtx.remoting.live.half_numbers import owner_of
from rmqtx.remoting.live.queues import LogTooLong, OpsUnreadable, ops, place_of, walked
from rmqtx.remoting.live.record_reads import LiveReads
from rmqtx.remoting.live.store_facts import LiveStore
from rmqtx.remoting.protocol.record_bytes import blocks_of

#: The most op messages before the first half copy that are read because the check reads them.
_OLDER_OPS_MAX = 10_000


class LiveOps:
    """The op queue of one live broker.

    Shape:  `checked`: the op messages that the check reads, as far as they are known. `has_slotless`: the log has some
            that no slot of the queue leads to, so that the check never reads them.
    Raises: Unreachable, NoAnswer, Refused.
    """

    def __init__(self, facts: LiveStore, reads: LiveReads) -> None:
        self._facts, self._broker, self._reads = facts, facts.broker, reads
        self.checked: list[Block] = []
        self.has_slotless = False
        #: The op queue offset from which on all op messages are known.
        self._known_from: int | None = None
        self._end: int | None = None
        self._walked: tuple[int, int] | None = None

    @property
    def shows_slots(self) -> bool:
        """Whether the broker serves its op queue (from 4.7 on), so far as the op messages of its check were read."""
        return self._walked is None

    @property
    def end(self) -> int:
        """The end of the op queue when it was read first."""
        if self._end is None:
            self._end = max(0, self._broker.max_offset(OP_TOPIC))
        return self._end

    @property
    def keeps_slots(self) -> bool:
        """Whether the broker keeps slots whose records a power loss took; it serves no entries of a queue then."""
        settings = self._facts.settings
        return QUEUES_CUT_AFTER_CLEAN_STOP.between(settings.version_low, settings.version_high) is False

    def read(self, halves: pa.Table, numbers: Int64s, later_halves: Callable[[], pa.Table]) -> None:
        """Read op messages from the first of some half copies on; an older op cannot name any of the copies.

        `numbers`: the half queue offsets that they may name. `later_halves`: returns the half copies again, with those
        that a walk of the log found.
        """
        end, begin = self.end, self._facts.op_begin
        first = pc.min(halves["commit_log_offset"]).as_py()
        if end > begin:
            place = place_of(self._broker, OP_TOPIC, 0, begin, end, first)
            begin = begin if place is None else place
            # The check reads these too, and compares only numbers.
            op_cursor = self._checked_from()
            if begin - _OLDER_OPS_MAX <= op_cursor < begin:
                begin = op_cursor
        if self.keeps_slots:
            self._walk(later_halves, first, end - begin)
            return
        try:
            bodies = ops(self._broker, begin, end, self._reads.pace, self._reads.gaps)
            self._add(blocks_of(bodies, self._facts.root, self._facts.findings), IntegerSet(numbers))
            self._known_from = begin
        except OpsUnreadable:
            self._walk(later_halves, first, end - begin)

    def read_checked(self, halves: Iterable[Block]) -> tuple[int, int]:
        """Read the ops from the check's cursor on, and return the cursor and the queue's begin.

        If the broker does not serve the queue, read the ops after the check's first half: no earlier op names one.
        """
        facts = self._facts
        if self._walked is not None:
            return self._walked
        op_begin, known_from = self._checked_from(), self._known_from
        if known_from is not None and known_from <= op_begin:
            return facts.op_cursor, facts.op_begin
        end = self.end if known_from is None else known_from
        try:
            bodies = ops(self._broker, op_begin, end, self._reads.pace, self._reads.gaps)
            self.checked += blocks_of(bodies, facts.root, facts.findings)
        except OpsUnreadable as error:
            first = min((int(block.commit_log_offsets.min()) for block in halves if len(block)), default=0)
            try:
                blocks = blocks_of(walked(self._broker, first, facts.log_file_bytes, self._reads.pace), facts.root, [])
                mine = [block.take(block.topic_is(OP_TOPIC) & (block.header("queue_id") == 0)) for block in blocks]
            except LogTooLong:
                raise error from None
            self.checked = [block.take(block.header("queue_offset") >= op_begin) for block in mine]
            end = self._leave_slotless()
            firsts = (int(block.header("queue_offset").min()) for block in self.checked if len(block))
            begin = min(firsts, default=end)
            self._walked = (facts.op_cursor if facts.op_cursor > end else begin), begin
            return self._walked
        self._known_from = op_begin
        if self.keeps_slots:  # they may have been read from the log
            self._leave_slotless()
        return facts.op_cursor, facts.op_begin

    def _add(self, blocks: Iterable[Block], wanted: IntegerSet) -> None:
        for block in blocks:
            block = block.take(block.topic_is(OP_TOPIC))
            self._reads.gathered.add_ops(ops_of(block, self._facts.root), wanted)
            self.checked.append(block.take(block.header("queue_offset") >= self._checked_from()))

    def _walk(self, later_halves: Callable[[], pa.Table], offset: int, count: int) -> None:
        """Read the ops of a broker that does not serve their queue: from all records after the first half copy.

        Numbers of either queue that no record has are a gap: 4.3.0 keeps the slots of those that a power loss took. It
        may also have written copies to the log that got no slot.
        Also records before the first half copy are read, if the check has not read all op messages that they may have.
        """
        facts, begin, end = self._facts, offset, self.end

        def walk(first: int, stop: int | None) -> list[Block]:
            bodies = walked(self._broker, first, facts.log_file_bytes, self._reads.pace, stop)
            blocks = blocks_of(bodies, facts.root, facts.findings)
            return [block.take(block.topic_is(HALF_TOPIC) | block.topic_is(OP_TOPIC)) for block in blocks]

        try:
            blocks = walk(offset, None)
        except LogTooLong:
            if count:
                facts.findings.append(Finding(facts.root, "ops-unreadable", actual=f"{count} entries"))
                facts.add_missing("this broker does not serve its op queue")
            return
        if _numbers(blocks, OP_TOPIC).min(initial=end) > self._checked_from():
            with contextlib.suppress(LogTooLong):
                blocks, begin = walk(facts.log_begin_offset, offset) + blocks, facts.log_begin_offset
        for block in blocks:
            self._reads.gathered.add(block.take(block.topic_is(HALF_TOPIC)))
        self._add(blocks, IntegerSet(int64s(later_halves()["queue_offset"])))
        for topic, first, last in ((HALF_TOPIC, facts.half_begin, facts.half_end), (OP_TOPIC, facts.op_begin, end)):
            numbers = _numbers(blocks, topic)
            known_from = numbers.min(initial=last) if begin else first
            lacking = np.setdiff1d(np.arange(known_from, last), numbers)
            if topic == HALF_TOPIC:  # its slot may lead to another record by now
                lacking = lacking[[owner_of(facts, number) is None for number in lacking.tolist()]]
            self._reads.add_gaps(topic, lacking)

    def _checked_from(self) -> int:
        """The first op message that the check may read: a cursor outside its queue is corrected."""
        facts = self._facts
        return facts.op_begin if facts.op_cursor > self.end else max(facts.op_cursor, facts.op_begin)

    def _leave_slotless(self) -> int:
        """Leave out the op messages whose slots the queue lost, which the check never reads; return the queue's end."""
        end = max(0, self._broker.max_offset(OP_TOPIC))
        are_read = [block.header("queue_offset") < end for block in self.checked]
        self.has_slotless = not all(rows.all() for rows in are_read)
        self.checked = [block.take(rows) for block, rows in zip(self.checked, are_read, strict=True)]
        return end


def _numbers(blocks: Sequence[Block], topic: str) -> Int64s:
    """The queue offsets of the records of queue 0 of a topic."""
    mine = (block.take(block.topic_is(topic) & (block.header("queue_id") == 0)) for block in blocks)
    return np.concatenate([np.zeros(0, np.int64), *(block.header("queue_offset").astype(np.int64) for block in mine)])
