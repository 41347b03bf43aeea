"""The events that a run reports, sorted by transaction, and waiting for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rmqtx.readers.model import clock
from tests.brokers.rig import DISCARD_TOPIC, Event
from tests.brokers.transaction import Transaction


class Events:
    """The truth of a run: a list of events, which grows while clients and brokers report."""

    def __init__(self) -> None:
        self.truth: list[Event] = []
        self.cases: dict[str, Transaction] = {}
        self.ids: dict[str, Transaction] = {}
        self._changed = threading.Condition(threading.RLock())

    def record(self, event: str, **fields: object) -> Event:
        """Add a line to the truth."""
        line: Event = {"event": event, **fields, "time_ms": clock.now_ms()}
        self.take(line)
        return line

    def take(self, event: Event) -> None:
        """Add an event to the truth and to its transaction."""
        with self._changed:
            self.truth.append(event)
            transaction = self.cases.get(event.get("case") or "") or self.ids.get(event.get("transaction_id") or "")
            kind = event["event"]
            if transaction is not None:
                if kind == "sent":
                    transaction.sent = event
                    if event["transaction_id"]:
                        self.ids[event["transaction_id"]] = transaction
                elif kind == "decision":
                    transaction.decisions.append(event)
                elif kind == "check":
                    transaction.checks.append(event)
                elif kind == "discard_logged" or (kind == "delivered" and event["topic"] == DISCARD_TOPIC):
                    transaction.discards.append(event)
                elif kind == "delivered":
                    transaction.deliveries.append(event)
            self._changed.notify_all()

    def until(self, what: str, true: Callable[[], bool], seconds: float = 60) -> None:
        """Wait until something is true, or fail."""
        end = time.monotonic() + seconds
        with self._changed:
            while not true():
                left = end - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"waited {seconds} s for: {what}")
                self._changed.wait(min(left, 0.5))

    def holds(self, true: Callable[[], bool], seconds: float) -> bool:
        """Wait until something is true; return false if it was not in time."""
        try:
            self.until("", true, seconds)
        except TimeoutError:
            return False
        return True

    def settle(self, quiet: float = 1.5, seconds: float = 20) -> None:
        """Wait until deliveries stop coming."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with self._changed:
                last = max(
                    (event["time_ms"] for event in self.truth if event["event"] in ("delivered", "decision")), default=0
                )
            if clock.now_ms() - last > quiet * 1000:
                return
            time.sleep(0.1)
