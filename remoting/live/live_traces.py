"""What producers wrote about transactions into the message traces of a live broker: one query for each transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rmqtx.readers.model.findings import Finding
from rmqtx.remoting.connections.batched_reads import Pace, queries
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.protocol.errors import Refused
from rmqtx.remoting.protocol.record_bytes import blocks_of
from rmqtx.verdicts.model.trace_evidence import rows_by_id


@dataclass(slots=True)
class LiveTraces:
    """The traces of one broker. See `rmqtx.verdicts.model.trace_evidence.Traces`.

    Shape: `has_topic`: whether the broker has the topic; None: not asked yet.
    """

    broker: Broker
    topic: str
    pace: Pace = field(default_factory=Pace)
    findings: list[Finding] = field(default_factory=list)
    has_topic: bool | None = None
    until_offset: None = None

    @property
    def root(self) -> str:
        """See `Traces`."""
        return self.broker.root

    @property
    def exist(self) -> bool:
        """See `Traces`."""
        return bool(self.has_topic)

    def rows(self, transaction_ids: Sequence[str], from_offset: int = 0) -> dict[str, list[dict[str, object]]]:  # noqa: ARG002
        """See `Traces`. A broker without the topic is asked once, by a pull.

        Damage: traces-unread, if the broker refuses the requests or does not return all records of a key.
        """
        incomplete: list[str] = []
        try:
            if self.has_topic is None:
                self.has_topic = self.broker.has_topic(self.topic)
            if not self.has_topic:
                return {}
            bodies = queries(self.broker, [(self.topic, one) for one in transaction_ids], self.pace, incomplete)
            found = rows_by_id(blocks_of(bodies, self.root, self.findings), self.root, transaction_ids, self.findings)
        except Refused as error:  # access control: no right to read the topic
            self.findings.append(Finding(self.root, "traces-unread", actual=error.message))
            return {}
        if incomplete:
            actual = f"{len(incomplete)} ids with more traces than the broker returns"
            self.findings.append(Finding(self.root, "traces-unread", actual=actual))
        return found
