"""When live brokers will discard the transactions that their checks will still reach, by their own settings."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from rmqtx.readers.model.releases import PREPARED_NOT_CHECKED
from rmqtx.readers.store.store import HALF_TOPIC
from rmqtx.remoting.connections.batched_reads import Pace
from rmqtx.remoting.live.queues import OpsUnreadable, records_of_system_topic
from rmqtx.remoting.live.store_facts import LiveStore
from rmqtx.remoting.live.witnesses import LiveWitnesses
from rmqtx.remoting.protocol.record_bytes import blocks_of
from rmqtx.verdicts.check.check_rules import check_rules, check_settings, supposed_rules, supposed_version
from rmqtx.verdicts.check.check_stops import standstill_of_window, stop_of_window, with_broker_named, with_record
from rmqtx.verdicts.deadlines.predicting import predict_window, standing
from rmqtx.verdicts.model.predicted import NEVER_ASKED, NEVER_DISCARDED, SLAVE, Prediction, Why
from rmqtx.verdicts.model.verdict_inputs import CheckStop

IN_ROCKSDB = Why(
    "the number of its checks is in the broker's RocksDB table, which no request reads", is_known=False
)
OPS_HIDDEN = Why("this broker does not serve its op queue", is_known=False)


def predict_from_live(facts: LiveStore, source: LiveWitnesses) -> Prediction:
    """Predict what the next rounds of a live broker's check do.

    Reads the halves and ops after the check's cursors that were not read before.
    Raises: Unreachable, NoAnswer, Refused.
    """
    if not facts.has_half_topic:
        low = facts.settings.version_low
        asks = low is not None and not PREPARED_NOT_CHECKED.holds(low)
        return Prediction(is_running=True, why=NEVER_DISCARDED if asks else NEVER_ASKED)
    if facts.is_slave:
        return Prediction(is_running=True, why=SLAVE)
    rules = supposed_rules(facts.settings)
    try:
        window = source.check_window(rules)
    except OpsUnreadable:
        return Prediction(is_running=True, why=OPS_HIDDEN)
    found = predict_window(
        facts.root, window, rules, facts.settings, facts.taken_time_ms, is_running=True,
        booted_time_ms=facts.booted_time_ms,
    )
    # A slot without a record hides those behind it from the first round after a start, which moves the op cursor.
    found = replace(found, may_pass_ops=facts.has_not_checked and not source.shows_op_slots)
    if any(stop.is_readable for stop in facts.check_stops):
        found = standing(found)
    return replace(found, why=IN_ROCKSDB) if facts.rocksdb_end > facts.rocksdb_begin else found


def live_stops(facts: LiveStore, source: LiveWitnesses) -> list[CheckStop]:
    """Return where the broker's check stops; empty for a slave, which has no check, and where the check goes on.

    Reads the halves and ops after the check's cursors that were not read before. Empty also if the broker does not
    serve its op queue.
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
    stop = stop_of_window(facts.root, window, rules, check_settings(facts.settings), facts.taken_time_ms)
    if stop is not None:
        return [_of_record(facts, with_broker_named(stop, facts.settings, version))]
    if facts.booted_time_ms <= 0:  # unknown how long the check has had time to go on
        return []
    standing = standstill_of_window(facts.root, window, facts.settings, facts.booted_time_ms, facts.taken_time_ms)
    return [] if standing is None else [standing]


def _of_record(facts: LiveStore, stop: CheckStop) -> CheckStop:
    """The stop with details of the record at its place, even if the record's body is damaged.

    Without them if the broker does not serve the entries of its half queue: 4.3.0 before its first round.
    """
    if stop.is_op:
        return stop
    place = stop.queue_offset
    bodies = records_of_system_topic(facts.broker, HALF_TOPIC, place, place + 1, Pace(), [])
    with suppress(OpsUnreadable):
        for block in blocks_of(bodies, facts.root, []):
            mine = block.take(block.topic_is(HALF_TOPIC) & (block.header("queue_offset") == place))
            if len(mine):
                stop = with_record(stop, mine)
    return stop
