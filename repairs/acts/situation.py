"""The request for an act, and everything that the guards judge: the state of one transaction, and the conditions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.releases import Version
from rmqtx.readers.store.store import HALF_TOPIC, HALF_TOPICS, WAITING_TOPICS
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.plan_file import RecordPlace
from rmqtx.verdicts.model.transaction import Transaction
from rmqtx.verdicts.model.verdict_words import State

#: Topics of half copies that are not prepared records.
_HALF_TOPICS = (*HALF_TOPICS, *WAITING_TOPICS)
#: The reason of an undecided transaction whose RocksDB table, which shows whether it is still checked, was not read.
OPEN_OR_DROPPED = "rocksdb_table_unread"


@dataclass(frozen=True, slots=True)
class ActRequest:
    """An action and its limits.

    `group`: refuse a transaction of another producer group. `queue_offset`: name this half copy, not the newest.
    """

    action: ActKind
    group: str | None = None
    queue_offset: int | None = None

    @property
    def decides(self) -> bool:
        """Whether the action sends a decision on a half copy first."""
        return self.action != ActKind.RESUME


@dataclass(frozen=True, slots=True)
class NamedRecord:
    """A record that an action names, as it is in the store.

    Shape: `raw` is the record exactly as in the log; empty where it was not read. `topic`: the topic field of the
           record, not its real topic.
    """

    store: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    length_bytes: int
    body_crc: int
    sys_flag: int
    born_time_ms: int
    message_id: str
    raw: bytes = field(default=b"", repr=False)
    topic: str = HALF_TOPIC

    @property
    def is_prepared(self) -> bool:
        """Whether, as a half copy, it is a prepared record (before 4.3), which is stored under its real topic."""
        return self.topic not in _HALF_TOPICS

    def place(self) -> RecordPlace:
        """Its place, as in plans and receipts."""
        return RecordPlace(
            self.store, self.queue_id, self.queue_offset, self.commit_log_offset, self.length_bytes, self.body_crc
        )


def named_record(block: Block, store: str, number: int = 0) -> NamedRecord:
    """Make a NamedRecord from a sound record of a block."""
    begin, length = int(block.starts[number]), int(block.lengths[number])
    alone = block.take(np.array([number]))
    return NamedRecord(
        store=store,
        queue_id=int(alone.header("queue_id")[0]),
        queue_offset=int(alone.header("queue_offset")[0]),
        commit_log_offset=int(alone.commit_log_offsets[0]),
        length_bytes=length,
        body_crc=int(alone.header("body_crc")[0]),
        sys_flag=int(alone.sys_flag[0]),
        born_time_ms=int(alone.header("born_time_ms")[0]),
        message_id=str(alone.message_ids()[0]),
        raw=block.raw[begin : begin + length],
        topic=str(alone.topic_texts()[0]),
    )


class ReadAgain(NamedTuple):
    """A half copy that an op message settles, and that the check reads nevertheless.

    Shape: `end_offset`: the half queue offset where the round ends that leaves the op message behind; `stopping_id`:
           the transaction of the copy there, None if it is unknown.
    """

    queue_offset: int
    end_offset: int
    stopping_id: str | None


@dataclass(frozen=True, slots=True)
class SentTo:
    """Where a redelivery from files sends a copy.

    Shape: `left_out`: its delays and timers, which the copy does not have; `as_half`: as a new half message.
    """

    store: str
    topic: str
    queue_id: int
    left_out: tuple[str, ...] = ()
    as_half: bool = False


@dataclass(frozen=True, slots=True)
class ActConditions:
    """Facts from the medium besides the transaction itself.

    Shape: `producers`: connected clients of the producer group, as text; None where unknown, then `producers_unknown`
           is the reason. `rivals`: other rmqtx processes that act on the group. `unread`: what could not be read;
           `contradictions`: findings that contradict the transaction's own records. `is_stopped`: the broker does not
           run, and its files are changed. `is_of_files`: only files were read, no broker was asked. `unwritable`:
           actions whose records cannot be appended to the files, with the reason. `read_again`: a settled half copy
           that the check would read after a decision. `unread_op`: the op cursor, and the number of the next op
           message, if the cursor is after it. `hides_new`: the topics, half or op, whose next record gets no slot, or
           one that the check passes. `takes_halves`: the numbers of the
           half queue are those of the log, so a half message can be appended to the files. `stopped_time_ms`: when the
           broker stopped, where files were read. `traced_rollback`: the rollback in its producer's message
           trace, in words; None where no trace has one, which shows nothing; `traces_unread`: which traces could not
           be read, and why. `sent_to`: a copy is sent to there
           instead of a decision; `unsendable`: why it cannot be sent. `is_there`: a broker that is asked has the
           transaction; `is_decidable_there`: and a half copy that it can commit.
    Units: `settle_ms`: how long a decision made before now may take to become visible; `settled_ms`: time waited.
    """

    version: Version | None
    is_slave: bool
    settle_ms: int
    settled_ms: int
    file_reserved_time_hours: int
    now_ms: int
    producers: tuple[str, ...] | None
    producers_unknown: str | None = None
    rivals: tuple[str, ...] = ()
    rivals_unknown: str | None = None
    unread: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()
    is_stopped: bool = False
    is_of_files: bool = False
    unwritable: Mapping[str, str] = field(default_factory=dict)
    read_again: ReadAgain | None = None
    unread_op: tuple[int, int] | None = None
    hides_new: frozenset[str] = frozenset()
    takes_halves: bool = True
    stopped_time_ms: int | None = None
    traced_rollback: str | None = None
    traces_unread: tuple[str, ...] = ()
    sent_to: SentTo | None = None
    unsendable: str | None = None
    is_there: bool = False
    is_decidable_there: bool = False

    @property
    def is_by_request(self) -> bool:
        """Whether a running broker is asked to act."""
        return not (self.is_stopped or self.is_of_files or self.sent_to is not None)


@dataclass(frozen=True, slots=True)
class Situation:
    """One transaction, its newest records, and the conditions of an act on it.

    Shape: `half_copy` is the newest half copy that can still be read, `discard_copy` the
           newest discard copy; `named` is the half copy that a decision would name.
    """

    transaction: Transaction
    half_copy: NamedRecord | None
    discard_copy: NamedRecord | None
    named: NamedRecord | None
    conditions: ActConditions

    @property
    def transaction_id(self) -> str:
        """Its id."""
        return self.transaction.transaction_id

    @property
    def store(self) -> str:
        """The store of its row."""
        return str(self.transaction.store)

    @property
    def state(self) -> State:
        """Its state."""
        return self.transaction.state

    @property
    def group(self) -> str | None:
        """The producer group that a decision must name."""
        return self.transaction.producer_group

    @property
    def is_sent_as_half(self) -> bool:
        """Whether a copy is sent as a new half message, which delivers nothing by itself."""
        return self.conditions.sent_to is not None and self.conditions.sent_to.as_half

    @property
    def is_open_or_dropped(self) -> bool:
        """Whether the only unknown is whether the broker's table still has its half."""
        return self.transaction.reason_code == OPEN_OR_DROPPED

    @property
    def is_prepared(self) -> bool:
        """Whether its half copy is a prepared record (before 4.3)."""
        return self.half_copy is not None and self.half_copy.is_prepared

    @property
    def newest_queue_offset(self) -> int | None:
        """Half queue offset of its newest half copy, whether or not it can be read."""
        newest = self.transaction.newest_half
        return None if newest is None else newest.queue_offset
