"""Where a live broker's check comes no further: the rule of `verdicts.check.check_stops`, on what the broker sends."""

from __future__ import annotations

from readers.store.store import HALF_TOPIC
from remoting.connections.batched_reads import Pace
from remoting.live.queues import OpsUnreadable, records
from remoting.live.store_facts import LiveStore
from remoting.live.witnesses import LiveWitnesses
from remoting.protocol.record_bytes import blocks_of
from verdicts.check.check_rules import check_rules, supposed_version
from verdicts.check.check_stops import blamed, where_it_stands, where_it_stops, with_record
from verdicts.model.check_stop import CheckStop


def live_stops(facts: LiveStore, source: LiveWitnesses) -> list[CheckStop]:
    """Where the broker's check comes no further; nothing for a slave, which has none, and where the check goes on.

    It costs what the halves and ops behind the check's cursors cost, as far as they were not read before. Where the
    broker does not show its ops, nothing is said.
    Raises: Unreachable, NoAnswer, Refused.
    """
    if facts.is_slave or not facts.has_half_topic:
        return []
    version, _ = supposed_version(facts.settings)
    rules = check_rules(version)
    try:
        window = source.check_window(rules)
    except OpsUnreadable:
        return []
    stop = where_it_stops(facts.root, window, rules)
    if stop is not None:
        return [_of_record(facts, blamed(stop, facts.settings, version))]
    if facts.booted_time_ms <= 0:  # it does not say how long it has had time to come further
        return []
    standing = where_it_stands(facts.root, window, facts.settings, facts.booted_time_ms, facts.taken_time_ms)
    return [] if standing is None else [standing]


def _of_record(facts: LiveStore, stop: CheckStop) -> CheckStop:
    """The same with what the record there says, however its body is."""
    if stop.is_op:
        return stop
    place = stop.queue_offset
    bodies = records(facts.broker, HALF_TOPIC, 0, place, place + 1, Pace(), [])
    for block in blocks_of(bodies, facts.root, []):
        mine = block.take(block.topic_is(HALF_TOPIC) & (block.header("queue_offset") == place))
        if len(mine):
            stop = with_record(stop, mine)
    return stop
