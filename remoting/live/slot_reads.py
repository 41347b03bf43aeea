"""What a live broker's store returns for slots without a record, and which records are missing there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rmqtx.remoting.connections.batched_reads import UnreadEntries
from rmqtx.remoting.live.store_facts import EVERYWHERE, LiveStore
from rmqtx.remoting.protocol.errors import Refused
from rmqtx.verdicts.check.slots import LogPlaces, SlotRead, slot_reads
from rmqtx.verdicts.model.verdict_inputs import HiddenTopic

_SLOTS_AT_ONCE = 1000
#: The most slots that are read for it.
_SLOTS_MAX = 100_000


def live_slot_reads(
    facts: LiveStore, topic: str, begin: int, end: int, gaps: Sequence[UnreadEntries]
) -> dict[int, SlotRead]:
    """Return what the check gets for the slots of queue 0 of a topic in [begin, end) that have no record.

    `gaps`: the entries that the broker did not return; nothing is read if none of them is one of these slots.
    Shape: empty also if the broker does not serve its entries (before 4.7, and queues in RocksDB).
    Raises: Unreachable, NoAnswer.
    """
    is_lacking = any(one.topic == topic and one.begin < end and begin < one.end for one in gaps)
    if not is_lacking or end - begin > _SLOTS_MAX:
        return {}
    offsets: list[int] = []
    lengths: list[int] = []
    while begin + len(offsets) < end:
        place = begin + len(offsets)
        try:
            found = facts.broker.slots(topic, 0, place, min(_SLOTS_AT_ONCE, end - place)).slots
        except Refused:  # an account may have the right to pull and not the right to read entries
            return {}
        if not found:
            return {}
        offsets += [one.commit_log_offset for one in found]
        lengths += [one.length_bytes for one in found]
    # Read after the slots: each of them that has a record leads before this end.
    log_end = int(facts.broker.runtime()["commitLogMaxOffset"])
    log = LogPlaces(facts.log_begin_offset, facts.log_file_bytes, log_end)
    first = begin - begin % facts.queue_file_slots + facts.queue_file_slots
    file_ends = np.arange(first, end + facts.queue_file_slots, facts.queue_file_slots)
    return slot_reads(
        log, begin, np.array(offsets, np.int64), np.array(lengths, np.int64), file_ends, np.ones(len(offsets), np.bool_)
    )


def hidden_topic(facts: LiveStore, gap: UnreadEntries) -> HiddenTopic:
    """Return the records of a topic that the broker did not return, with their places where its entries show them.

    Raises: Unreachable, NoAnswer.
    """
    unknown = HiddenTopic(gap.topic, *EVERYWHERE)
    count = gap.end - gap.begin
    if count > _SLOTS_AT_ONCE:
        return unknown
    try:
        found = facts.broker.slots(gap.topic, gap.queue_id, gap.begin, count).slots
    except Refused:  # an account may have the right to pull and not the right to read entries
        return unknown
    places = [one.commit_log_offset for one in found if one.length_bytes > 0]
    return HiddenTopic(gap.topic, min(places), max(places) + 1) if 0 < len(places) == count else unknown
