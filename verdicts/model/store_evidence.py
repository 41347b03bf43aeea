"""The facts of one store that the rules of causes read, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rmqtx.readers.model.columns import Int64s, no_numbers
from rmqtx.readers.model.releases import OPS_WAIT_TWICE, Version, newest_default
from rmqtx.verdicts.model.log_evidence import LogEvidence
from rmqtx.verdicts.model.trace_evidence import Traces
from rmqtx.verdicts.model.verdict_inputs import CheckStop

#: How long the write of an op message may take after its wait.
OP_WRITE_MS = 1_000
#: Where a cause shows: the records, which files have and live brokers serve; what a live broker reports of its state
#: and clients; the text log of a broker process. Each with what must be read.
FILES, WIRE, BROKER_LOG, TRACE = "files", "wire", "broker log", "trace"
SOURCES: dict[str, str] = {
    FILES: "the records of the store",
    WIRE: "the running broker: -n HOST:PORT",
    BROKER_LOG: "the logs of the broker: --broker-logs DIR",
    TRACE: "the message traces of its producers, if they write any",
}


@dataclass(frozen=True, slots=True)
class StoreEvidence:
    """The facts of one store that rules read; they are known before the first transaction is judged.

    Shape: `last_op_offset`: commit-log offset of the last op message, -1 without any; None if unknown.
           `first_op_offset`: that of the op message with queue offset 0; None if unknown or if the queue has none.
           `stop`: where the check of its half queue is stopped. `conf`: the configuration of its broker; None if
           unknown. `read`: what was read, of SOURCES. `are_cursors_damaged`: neither the cursor file nor its backup
           can be parsed. `topics`: those in config/topics.json; None if unknown. `topics_without_group`: topics of
           which a consumer group has a cursor and is not in config/subscriptionGroup.json. `logs`: what the logs of
           its broker show; None if they were not read. `was_stopped`: it was stopped in order. `op_interval_ms`: how
           long its broker collects op messages (transactionOpBatchInterval), by default if `conf` is unknown.
           `light_halves`: its half messages that are in light queues, ascending; `shifted_halves`: those in another
           slot of the half queue than their queue offset. `proxy_keeps_ms`: how long the
           proxies before the broker keep the place of a half message; None if no configuration of a proxy was given.
           `has_proxy`: a proxy of 5.x has used the broker: it has the topic of the heartbeats.
           `traces`: the message traces of producers; None if the store has none, or they were not read.
    Units: commit-log offsets; versions are (5, 1, 4).
    """

    version_low: Version | None = None
    version_high: Version | None = None
    last_op_offset: int | None = None
    first_op_offset: int | None = None
    was_killed: bool = False
    stop: CheckStop | None = None
    conf: Mapping[str, str] | None = None
    read: frozenset[str] = frozenset({FILES})
    are_cursors_damaged: bool = False
    topics: frozenset[str] | None = None
    topics_without_group: frozenset[str] = frozenset()
    logs: LogEvidence | None = None
    proxy_keeps_ms: int | None = None
    has_proxy: bool = False
    was_stopped: bool = False
    op_interval_ms: int = newest_default("transactionOpBatchInterval")
    traces: Traces | None = None
    light_halves: Int64s = field(default_factory=no_numbers, compare=False, repr=False)
    shifted_halves: Int64s = field(default_factory=no_numbers, compare=False, repr=False)

    @property
    def is_slave(self) -> bool:
        """Whether its broker is known to be a slave, which refuses decisions: by its logs, or by its configuration.

        A controller changes roles; the configuration does not show its choice.
        """
        conf = self.conf or {}
        is_configured = conf.get("brokerRole") == "SLAVE" and conf.get("enableControllerMode", "").lower() != "true"
        return is_configured or (self.logs is not None and self.logs.is_slave)

    @property
    def op_hold_ms(self) -> int:
        """How long its broker from 5.1.0 on holds an op message at most before it is written."""
        return op_hold_ms(self.version_low, self.version_high, self.op_interval_ms)


def op_hold_ms(low: Version | None, high: Version | None, interval_ms: int) -> int:
    """Return how long a broker from 5.1.0 on holds an op message at most before it is written.

    `low`, `high`: its possible releases. `interval_ms`: its transactionOpBatchInterval.
    """
    waits = 1 if OPS_WAIT_TWICE.between(low, high) is False else 2
    return waits * interval_ms + OP_WRITE_MS
