"""One planned transaction of a run: what the client, the consumers and the broker reported about it."""

from __future__ import annotations

import json
from random import Random

from tests.brokers.rig import Event


class Transaction:
    """The events of one planned transaction, as reported until now."""

    def __init__(self, case: str, plan: str) -> None:
        self.case = case
        self.plan = plan
        self.sent: Event | None = None
        self.decisions: list[Event] = []
        self.checks: list[Event] = []
        self.deliveries: list[Event] = []
        self.discards: list[Event] = []

    @property
    def id(self) -> str:
        """The transaction id."""
        return str(self.known["transaction_id"])

    @property
    def known(self) -> Event:
        """The `sent` event."""
        assert self.sent is not None, self.case
        return self.sent

    @property
    def original(self) -> tuple[int, int]:
        """Queue offset and commit-log offset of the first half copy."""
        return self.known["queue_offset"], self.known["commit_log_offset"]

    @property
    def newest(self) -> tuple[int, int]:
        """Queue offset and commit-log offset of the newest half copy that the client was asked about."""
        found = [self.original, *((check["queue_offset"], check["commit_log_offset"]) for check in self.checks)]
        return max(found)


def same(record: Event, transaction: Transaction) -> bool:
    """Whether a record that the broker returned belongs to a transaction."""
    if transaction.known["transaction_id"] is not None:
        return bool(record["transaction_id"] == transaction.known["transaction_id"])
    return bool(record["case"] == transaction.case)


def order(rng: Random, case: str, length: int | None = None) -> bytes:
    """A body that looks like an order of a shop."""
    items = [
        {
            "sku": f"{rng.choice('ABCDEFG')}{rng.randrange(1000, 9999)}",
            "count": rng.randrange(1, 9),
            "cents": rng.randrange(99, 49999),
        }
        for _ in range(rng.randrange(1, 4))
    ]
    text = json.dumps({"order": case, "customer": rng.randrange(10**6), "items": items}, separators=(",", ":"))
    if length is not None:
        text = (text * (length // len(text) + 1))[:length]
    return text.encode()
