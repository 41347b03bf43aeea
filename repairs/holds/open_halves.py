"""The open half messages of a live broker, and when its check discards them under its settings or under others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rmqtx.readers.model.moments import HOUR_MS
from rmqtx.readers.store.broker_settings import BrokerSettings, settings_of_broker
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.live.deadlines import live_stops, predict_from_live
from rmqtx.remoting.live.queues import OpsUnreadable
from rmqtx.remoting.live.store_facts import LiveStore, live_store
from rmqtx.remoting.live.witnesses import LiveWitnesses
from rmqtx.verdicts.check.check_rules import check_settings, supposed_rules
from rmqtx.verdicts.check.stored_records import ABSENT, StoredOps
from rmqtx.verdicts.check.window import CheckWindow
from rmqtx.verdicts.deadlines.predicting import from_real_cursor
from rmqtx.verdicts.model.predicted import NEVER, Event
from rmqtx.verdicts.simulation.simulation import Simulated

#: Half copies that no round discards, whatever the settings are.
_NOT_REACHED = (Event.ENDED, Event.STOPPED, Event.SKIPPED, Event.UNREAD)
#: Steps of the simulation after which the bytes of an hour are calculated from the last round.
_STEPS_MAX = 20_000


@dataclass(frozen=True, slots=True)
class OpenHalf:
    """One half message that the check still reaches.

    Shape: `discard_ms`: when the check discards it; None if no predicted round does. `is_at_once`: the round that
           reaches it next discards it.
    Units: epoch milliseconds.
    """

    transaction_id: str
    checks_count: int
    born_ms: int
    discard_ms: int | None
    is_at_once: bool


@dataclass(frozen=True, slots=True)
class UnsettledHalf:
    """A half copy at or after the check's cursor that no readable op message names."""

    transaction_id: str
    producer_group: str | None
    topic: str | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the check does with open half messages.

    Shape: `unknown`: why it was not predicted; then `halves` may lack some. `begin_ms`: when its next round begins.
    Order: that of the log.
    """

    halves: tuple[OpenHalf, ...] = ()
    unknown: str | None = None
    begin_ms: int = 0


@dataclass(frozen=True, slots=True)
class OpenHalves:
    """The open half messages of one broker, as read at one moment.

    Shape: `conf`: its configuration. `window`: None without a check of half queues, or without readable queues.
           `unseen_ids`: half messages in RocksDB without an op message: the number of their checks is in a table that
           no request reads.
    """

    facts: LiveStore
    source: LiveWitnesses
    window: CheckWindow | None
    unseen_ids: tuple[str, ...]

    @property
    def conf(self) -> Mapping[str, str]:
        """The broker's configuration as read."""
        return self.facts.settings.given or {}

    def with_settings(self, changed: Mapping[str, str]) -> BrokerSettings:
        """Return the broker's settings with other values."""
        return settings_of_broker({**self.conf, **changed}, self.facts.settings.version)

    def forecast(self, changed: Mapping[str, str]) -> Forecast:
        """Predict what the check does with these values of settings. Raises: Unreachable, NoAnswer, Refused."""
        found = predict_from_live(replace(self.facts, settings=self.with_settings(changed)), self.source)
        if self.window is None or not found.is_whole:
            return Forecast(unknown=found.why.text, begin_ms=found.begin_ms)
        halves = self.window.stored_halves
        rows = {offset: row for row, offset in enumerate(self.window.words["commit_log_offset"].to_pylist())}
        ids = self.window.words["transaction_id"].to_pylist()
        checks, born = halves.numbers["checks_count"], halves.numbers["born_time_ms"]
        reached = ~np.isin(found.events, np.array(_NOT_REACHED, np.int64))
        columns = (found.offsets, found.times_ms, found.event_times_ms)
        return Forecast(
            tuple(
                OpenHalf(
                    ids[row], 0 if checks[row] == ABSENT else int(checks[row]), int(born[row]),
                    None if discard_ms == NEVER else discard_ms, NEVER != discard_ms <= event_ms,
                )
                for offset, discard_ms, event_ms in zip(*(one[reached].tolist() for one in columns), strict=True)
                if (row := rows.get(offset)) is not None
            ),
            begin_ms=found.begin_ms,
        )

    def unsettled(self) -> tuple[list[UnsettledHalf], int]:
        """Return the half copies that the check reaches and no op message names, and how many slots are unreadable.

        A decided half message is one of them until its op message is readable: after a stop only that shows the
        decision. Order: that of the queue. Raises: AssertionError without a window.
        """
        assert self.window is not None
        halves, ops = self.window.stored_halves, self.window.state.ops
        assert isinstance(ops, StoredOps)
        named = {number for op in ops.ops if op is not None and op.is_tagged for number in op.numbers}
        rows = [
            int(row) for slot, row in enumerate(halves.rows, halves.begin) if row >= 0 and slot not in named
        ]
        words = self.window.words.select(["transaction_id", "producer_group", "real_topic"])
        found = words.take(pa.array(rows, pa.int64())).to_pylist()
        unread = sum(1 for slot, row in enumerate(halves.rows, halves.begin) if row < 0 and slot not in named)
        return [UnsettledHalf(*word.values()) for word in found], unread

    def bytes_an_hour(self, changed: Mapping[str, str], begin_ms: int) -> int | None:
        """Return how much the check writes in an hour from a round on, if no producer answers; None if unknown."""
        if self.window is None:
            return None
        check = check_settings(self.with_settings(changed))
        rules = supposed_rules(self.facts.settings)
        simulated = Simulated(self.facts.root, "held", from_real_cursor(self.window), rules, check, begin_ms)
        written = steps = 0
        for played in simulated.rounds():
            if played.begin_ms >= begin_ms + HOUR_MS:
                break
            of_round = sum(step.written_bytes for step in played.steps)
            written, steps = written + of_round, steps + len(played.steps) + 1
            if steps > _STEPS_MAX:
                round_ms = max(1, played.end_ms - played.begin_ms + check.interval_ms)
                return written + of_round * max(0, begin_ms + HOUR_MS - played.begin_ms - round_ms) // round_ms
        return written


def read_open_halves(broker: Broker) -> OpenHalves:
    """Read the open half messages of a broker. Raises: Unreachable, NoAnswer, Refused, BadFrame."""
    facts = live_store(broker)
    source = LiveWitnesses(facts)
    window = None
    if facts.has_half_topic and not facts.is_slave:
        facts.check_stops[:] = live_stops(facts, source)
        try:
            window = source.check_window(supposed_rules(facts.settings))
        except OpsUnreadable:
            window = None
    unseen = source.undecided_in_rocksdb() if facts.rocksdb_end > facts.rocksdb_begin else []
    return OpenHalves(facts, source, window, tuple(unseen))
