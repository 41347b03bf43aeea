"""Facts for a timeline from a live broker: message ids, cursors of consumers and of the check."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rmqtx.readers.cursors.cursors import CheckCursors
from rmqtx.readers.store.store import TRACE_TOPIC
from rmqtx.remoting.connections.batched_reads import Pace, queries, views
from rmqtx.remoting.connections.connection import Request
from rmqtx.remoting.live.store_facts import LiveStore
from rmqtx.remoting.protocol.codes import RequestCode
from rmqtx.remoting.protocol.errors import BadFrame, Refused
from rmqtx.remoting.protocol.frames import parsed_json
from rmqtx.remoting.protocol.record_bytes import blocks_of
from rmqtx.verdicts.audit.timeline import RecordName, record_names
from rmqtx.verdicts.model.trace_evidence import rows_by_id


@dataclass(frozen=True, slots=True)
class LiveSurroundings:
    """A live broker as a `rmqtx.verdicts.audit.timeline.TimelineSource`."""

    facts: LiveStore

    @property
    def root(self) -> str:
        """The broker's name and address."""
        return self.facts.root

    def records(self, offsets: Iterable[int]) -> dict[int, RecordName]:
        """From the records themselves, which contain the broker's address at that time."""
        bodies = (body for _, body in views(self.facts.broker, dict.fromkeys(offsets), Pace()) if body is not None)
        return {
            offset: name
            for block in blocks_of(bodies, self.root, [])
            for offset, name in record_names(block, self.facts.settings).items()
        }

    def cursors(self) -> list[dict[str, Any]]:
        """The cursors of all groups; empty if the broker refuses the request."""
        broker = self.facts.broker
        try:
            frame = broker.client.call(broker.address, Request(RequestCode.GET_ALL_CONSUMER_OFFSET))
        except Refused:  # access control: this requires an administrator's account
            return []
        table = parsed_json(frame.body).get("offsetTable") or {}
        try:
            return [
                {"topic": topic, "group": group, "queue_id": int(queue_id), "next_queue_offset": int(offset)}
                for name, queues in table.items()
                for topic, _, group in [str(name).partition("@")]
                for queue_id, offset in queues.items()
            ]
        except (AttributeError, TypeError, ValueError) as error:
            raise BadFrame(f"cannot parse the cursors from {broker.address}: {error}") from error

    def check_cursors(self) -> CheckCursors:
        """The cursors at the start of the reading."""
        return CheckCursors({0: self.facts.half_cursor}, {0: self.facts.op_cursor})

    def traces(self, transaction_id: str) -> list[dict[str, Any]]:
        """By one query of the broker's index; none if the broker refuses it."""
        bodies = queries(self.facts.broker, [(TRACE_TOPIC, transaction_id)], Pace())
        try:
            found = rows_by_id(blocks_of(bodies, self.root, []), self.root, [transaction_id])
            return found.get(transaction_id, [])
        except Refused:  # access control: no right to read the trace topic
            return []

    def stopped_time_ms(self) -> int | None:
        """None: the broker runs."""
        return None
