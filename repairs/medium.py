"""What actions work on: a live broker set, or the files of a stopped one. The path of an action is the same."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from remoting.answers import Answer
from repairs.receipts import Receipt
from repairs.situation import NamedRecord, Situation


class Medium(Protocol):
    """Where transactions are looked at and acted on."""

    def look(self, transaction_ids: Sequence[str]) -> list[dict[str, Any]]:
        """Fresh rows of TRANSACTIONS for some ids; nothing for an id that no record bears."""

    def situations(self, rows: Sequence[dict[str, Any]], *, settled_ms: int) -> list[Situation]:
        """What is known of some rows and of what surrounds them, freshly asked.

        `settled_ms`: how long it has been waited for decisions that were under way.
        """

    def claimed(self, situations: Iterable[Situation]) -> AbstractContextManager[Mapping[str, tuple[str, ...]]]:
        """Keeps others of us away from the groups of some transactions while the block lasts.

        Gives those who were there before, by group.
        """

    def wait(self, wait_ms: int) -> None:
        """Let time pass, keeping an eye on who comes and goes meanwhile: that counts in later situations."""

    def record(self, situation: Situation, queue_offset: int) -> NamedRecord | None:
        """A half copy of a transaction by its queue offset; None where it cannot be read."""

    def fresh_copies(self, transaction_ids: Collection[str]) -> list[tuple[str, NamedRecord]]:
        """Half copies of some transactions that were appended since the wait ended, or since this was last asked.

        Order: as appended.
        """

    def decide(self, named: NamedRecord, situation: Situation, decision: int, receipt: Receipt) -> Answer:
        """Commit or roll back a half copy; the request and the response go into the receipt.

        Raises: Unreachable (nothing was done), NoAnswer (nobody knows).
        """

    def resume(self, named: NamedRecord, receipt: Receipt) -> Answer:
        """Have a copy of a record put into the half topic.

        Raises: Unreachable, NoAnswer.
        """
