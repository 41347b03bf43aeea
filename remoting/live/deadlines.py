"""When live brokers will discard the transactions that their checks will still reach, by their own settings."""

from __future__ import annotations

from dataclasses import replace

from rmqtx.readers.model.releases import PREPARED_NOT_CHECKED
from rmqtx.remoting.live.queues import OpsUnreadable
from rmqtx.remoting.live.store_facts import LiveStore
from rmqtx.remoting.live.witnesses import LiveWitnesses
from rmqtx.verdicts.check.check_rules import check_rules, supposed_version
from rmqtx.verdicts.deadlines.predicting import predict_window
from rmqtx.verdicts.model.predicted import NEVER_ASKED, NEVER_DISCARDED, SLAVE, Prediction, Why

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
    rules = check_rules(supposed_version(facts.settings)[0])
    try:
        window = source.check_window(rules)
    except OpsUnreadable:
        return Prediction(is_running=True, why=OPS_HIDDEN)
    found = predict_window(
        facts.root, window, rules, facts.settings, facts.taken_time_ms, is_running=True,
        booted_time_ms=facts.booted_time_ms, is_standing=any(stop.is_readable for stop in facts.check_stops),
    )
    return replace(found, why=IN_ROCKSDB) if facts.rocksdb_end > facts.rocksdb_begin else found
