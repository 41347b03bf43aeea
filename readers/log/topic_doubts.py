"""Find damaged topics: records of the broker's internal topics, by their other fields.

No checksum covers a topic. Half messages, discard copies and delayed messages have their destination in REAL_TOPIC, and
keep the property after delivery, where it equals their topic. An op message has numbers as its body. A record with
these fields and a topic of the same length as an internal topic was in the internal topic, unless the store has the
other topic.

A message that a consumer sent back (%RETRY%, %DLQ%) keeps the REAL_TOPIC of the original.
Source: TransactionalMessageBridge.parseHalfMessageInner, makeOpMessageInner; ScheduleMessageService.messageTimeup;
docs/formats/half_and_op.md#topics.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.op_messages import parse_op_bodies
from rmqtx.readers.log.properties import OP_TAG, REAL_TOPIC, TAGS
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.columns import Bools
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.queues.slot_files import cache_of
from rmqtx.readers.store.fastjson import config_table
from rmqtx.readers.store.store import HALF_TOPICS, OP_TOPIC, TRANSACTION_TOPICS, WAITING_TOPICS, Store

#: The topics that the broker's check reads and writes, and those in which a delayed half message waits.
_OWN_TOPICS = (*TRANSACTION_TOPICS, *WAITING_TOPICS)
_LENGTH_MAX = max(map(len, _OWN_TOPICS))
_HAS_OWN_LENGTH = np.isin(np.arange(_LENGTH_MAX + 2), [len(topic) for topic in _OWN_TOPICS])


def topic_findings(store: Store, block: Block) -> list[Finding]:
    """Return findings for records of the broker's internal topics with another topic, which the store does not have.

    Order: commit-log offset.
    Damage: words-contradict.
    """
    found: list[Finding] = []
    strange = _are_strange(block)
    if not strange.any():
        return found
    alone = block.take(strange)
    alone = alone.take(~_are_known(store, alone))
    # In a store without topics most records of these lengths are messages without REAL_TOPIC and without numbers.
    alone = alone.take(alone.properties.locate(REAL_TOPIC)[2] | (alone.topic_lengths == len(OP_TOPIC)))
    for row in range(len(alone)):
        one = alone.take(np.array([row]))
        topic = _own_topic_of(one)
        if topic is not None:
            found.append(Finding(
                store.root, "words-contradict", one.file, int(one.positions[0]), int(one.lengths[0]),
                commit_log_offset=int(one.commit_log_offsets[0]),
                expected=f"topic {topic}, by the record's other fields",
                actual=f"topic {one.topic_texts()[0]}, which the store does not have",
            ))
    return found


def internal_topic_of(store: Store, one: Block) -> str | None:
    """Return the internal topic in which a record was, for a block of one; None if its topic is not damaged."""
    return _own_topic_of(one) if _are_strange(one)[0] and not _are_known(store, one)[0] else None


def _are_strange(block: Block) -> Bools:
    """Return which records have a topic of the same length as an internal topic, and another name."""
    strange: Bools = _HAS_OWN_LENGTH[np.minimum(block.topic_lengths, _LENGTH_MAX + 1)]
    for topic in _OWN_TOPICS:
        if not strange.any():
            break
        strange &= ~block.topic_is(topic)
    return strange


def _own_topic_of(one: Block) -> str | None:
    """Return the internal topic by the other fields of a record; of two with the same length, the more similar one."""
    mine = one.topics()[0].as_py()
    if mine.startswith(b"%"):
        return None
    known = [topic for topic in _OWN_TOPICS if len(topic) == len(mine)]
    topic = min(known, key=lambda name: sum(a != b for a, b in zip(name.encode(), mine, strict=True)))
    if topic == OP_TOPIC:
        _, forms = parse_op_bodies(one.bodies().cast(pa.binary()), one.body_crc_matches())
        is_op = one.properties.text(TAGS)[0].as_py() == OP_TAG and forms[0].as_py() != "unreadable"
        return topic if is_op else None
    real_topic = one.properties.text(REAL_TOPIC)[0].as_py()
    if real_topic is None or real_topic.encode() == mine:
        return None
    return topic if topic not in WAITING_TOPICS or real_topic in HALF_TOPICS else None


def _are_known(store: Store, block: Block) -> Bools:
    """Return which records have a topic with queues or a configuration in the store; looked up once in each process."""
    cache = cache_of(store)
    known = cache.get("known topics")
    if not isinstance(known, pa.Array):
        names = {*store.topics(), *(config_table(store, "topics.json", "topicConfigTable") or ())}
        known = cache["known topics"] = pa.array([name.encode("utf-8", "surrogatepass") for name in names], pa.binary())
    found: Bools = np.asarray(pc.is_in(block.topics().cast(pa.binary()), value_set=known))
    return found
