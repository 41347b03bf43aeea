"""The message of a transaction as a send: what a broker gets, from which copy, and with which mark.

A half message that is sent as it is becomes a half message again, of which nothing is delivered, and the broker
answers with success: so the properties of halves are left out. What consumers need is kept, and compressed bodies stay
compressed. The mark shows where the copy comes from.
Source: seen on 3.2.6, 4.2.0 and 4.4.0 to 5.5.0; docs/safety.md#redeliveries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from rmqtx.readers.log.compression import KIND_MASK
from rmqtx.readers.log.properties import (
    CHECK_TIMES,
    IMMUNITY,
    ORIGIN,
    PREPARED_QUEUE_OFFSET,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRANSACTION_ID,
    UNIQ_KEY,
)
from rmqtx.readers.log.record_layout import COMPRESSED, PREPARED
from rmqtx.readers.model.errors import FormatError
from rmqtx.remoting.producer.producer import HALF_MARK
from rmqtx.repairs.acts.situation import NamedRecord
from rmqtx.repairs.records.record_writer import draft_of, has_readable_body, property_values

_DIGEST_DIGITS = 16
_MULTI_TAGS = 0x2
_KEPT_FLAGS = COMPRESSED | _MULTI_TAGS | KIND_MASK
#: What makes a half message of a record, and what the broker wrote for its checks.
_OF_HALVES = frozenset({
    HALF_MARK, PRODUCER_GROUP, REAL_TOPIC, REAL_QUEUE_ID, CHECK_TIMES, IMMUNITY, PREPARED_QUEUE_OFFSET, TRANSACTION_ID,
    "TRAN_PREPARED_QUEUE_OFFSET", "TRANS_OFFSET",
})  # fmt: skip
#: What would put the message off again: its time began when the half message was sent.
_DELAYS = frozenset({
    "DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DEQUEUE_MS", "TIMER_ENQUEUE_MS",
    "TIMER_OUT_MS", "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class CopyToSend:
    """A message to send. Shape: `left_out`: delays and timers of the record that it does not have."""

    topic: str
    queue_id: int
    body: bytes
    properties: Mapping[str, str]
    sys_flag: int
    flag: int
    born_time_ms: int
    left_out: tuple[str, ...]


def copy_to_send(record: NamedRecord, topic: str, group: str | None = None) -> CopyToSend:
    """Return the copy of a record, for its real topic.

    `group`: as a new half message of this producer group, which the broker checks; else as an ordinary message.
    Raises: FormatError where consumers could not read it, or a second copy could not be recognised.
    """
    where = f"the record at commit-log offset {record.commit_log_offset}"
    if not has_readable_body(record.raw):
        raise FormatError(f"consumers cannot read the body of {where}")
    draft = draft_of(record.raw)
    try:
        values = {name.decode(): value.decode() for name, value in property_values(draft.properties).items()}
    except UnicodeDecodeError as error:
        raise FormatError(f"the properties of {where} are not UTF-8") from error
    if UNIQ_KEY not in values:
        raise FormatError(f"{where} has no UNIQ_KEY, by which a second copy would be found")
    queue = values.get(REAL_QUEUE_ID, "")
    kept = {name: value for name, value in values.items() if name not in _OF_HALVES and name not in _DELAYS}
    if group is not None:
        kept |= {HALF_MARK: "true", PRODUCER_GROUP: group}
        kept |= {IMMUNITY: values[IMMUNITY]} if IMMUNITY in values else {}
    digest = hashlib.sha256(record.raw).hexdigest()[:_DIGEST_DIGITS]
    return CopyToSend(
        topic, int(queue) if queue.isdecimal() else draft.queue_id, draft.body,
        kept | {ORIGIN: f"{record.message_id}:{digest}"},
        draft.sys_flag & _KEPT_FLAGS | (0 if group is None else PREPARED), draft.flag, draft.born_time_ms,
        tuple(sorted(_DELAYS & set(values))),
    )  # fmt: skip
