"""Where a live broker's check comes no further: the rule of `readers.check_stops`, on what the broker sends."""

from __future__ import annotations

from collections.abc import Iterator

from readers.check_rules import CheckRules, check_rules, supposed_version
from readers.check_state import CheckState
from readers.check_stop import CheckStop
from readers.check_stops import blamed, may_stop, where_it_stands, where_it_stops, with_record
from readers.check_window import CheckWindow, StoredOps, halves_of_records, ops_of_records
from readers.columns import Int64s
from readers.record_block import Block
from readers.store import HALF_TOPIC, OP_TOPIC
from remoting.live_queues import LogTooLong, OpsUnreadable, ops, records, walked
from remoting.live_records import blocks_of
from remoting.live_requests import Gap, Pace
from remoting.live_store import LiveStore

#: How many halves behind the cursor are looked at: where any that cannot be read ends each round, and elsewhere, where
#: only one that has no room for another property does. A check that stands still is seen at its first half.
_HALVES_MAX, _HALVES_MAX_OF_LATER = 100_000, 2_000


def live_stops(facts: LiveStore, pace: Pace) -> list[CheckStop]:
    """Where the broker's check comes no further; nothing for a slave, which has none, and where the check goes on.

    What the broker does not send says nothing: a gap is told by those who read for their rows.
    Raises: Unreachable, NoAnswer, Refused.
    """
    if facts.is_slave or not facts.has_half_topic:
        return []
    version, _ = supposed_version(facts.settings)
    rules = check_rules(version)
    begin = max(facts.half_cursor, facts.half_begin)
    limit = _HALVES_MAX if rules.unreadable_ends_round else _HALVES_MAX_OF_LATER
    end = min(facts.half_end, begin + limit)
    if begin >= end:
        return []
    gaps: list[Gap] = []
    bodies = records(facts.broker, HALF_TOPIC, 0, begin, end, pace, gaps)
    halves = halves_of_records(_numbered(facts, bodies, HALF_TOPIC, begin, end), rules, begin, end)
    if gaps:
        return []

    def with_ops(found: StoredOps) -> CheckWindow:
        op_end = found.begin + len(found.ops)
        state = CheckState(0, begin, facts.half_begin, end, found.begin, found.begin, op_end, halves, found)
        return CheckWindow(state, halves.words)

    window = with_ops(StoredOps(facts.op_cursor, []))
    if may_stop(window):
        found = _ops(facts, rules, begin, halves.words["commit_log_offset"].to_pylist(), pace)
        if found is None:
            return []
        stop = where_it_stops(facts.root, with_ops(found), rules)
        if stop is not None:
            return [_of_record(facts, blamed(stop, facts.settings, version))]
    if facts.booted_time_ms <= 0:  # it does not say how long it has had time to come further
        return []
    standing = where_it_stands(facts.root, window, facts.settings, facts.booted_time_ms, facts.taken_time_ms)
    return [] if standing is None else [standing]


def _numbered(
    facts: LiveStore, bodies: Iterator[bytes], topic: str, begin: int, end: int
) -> Iterator[tuple[Block, Int64s]]:
    for block in blocks_of(bodies, facts.root, []):
        numbers = block.header("queue_offset")
        mine = block.topic_is(topic) & (numbers >= begin) & (numbers < end) & (block.header("queue_id") == 0)
        yield block.take(mine), numbers[mine]


def _ops(
    facts: LiveStore, rules: CheckRules, least: int, half_offsets: list[int], pace: Pace
) -> StoredOps | None:
    """The ops from the cursor on that can name the halves; None where the broker does not send all of them."""
    begin, end = max(facts.op_cursor, facts.op_begin), max(0, facts.broker.max_offset(OP_TOPIC))
    gaps: list[Gap] = []
    try:
        bodies = ops(facts.broker, begin, end, pace, gaps)
        found = list(_numbered(facts, bodies, OP_TOPIC, begin, end))
    except OpsUnreadable:
        try:
            first = min(half_offsets, default=facts.log_end_offset)
            bodies = walked(facts.broker, first, facts.log_file_bytes, pace)
            found = list(_numbered(facts, bodies, OP_TOPIC, begin, end))
        except LogTooLong:
            return None
        begin = min((int(numbers.min()) for _, numbers in found if len(numbers)), default=end)
    return None if gaps else ops_of_records(found, rules, begin, end, least)


def _of_record(facts: LiveStore, stop: CheckStop) -> CheckStop:
    """The same with what the record there says, however its body is."""
    if stop.is_op:
        return stop
    place = stop.queue_offset
    bodies = records(facts.broker, HALF_TOPIC, 0, place, place + 1, Pace(), [])
    for block, _ in _numbered(facts, bodies, HALF_TOPIC, place, place + 1):
        if len(block):
            stop = with_record(stop, block)
    return stop
