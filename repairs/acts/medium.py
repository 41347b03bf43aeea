"""What actions work on: a live broker set, or the files of a stopped one. The path of an action is the same."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from remoting.protocol.answers import Answer
from repairs.acts.situation import NamedRecord, Situation
from repairs.receipts.receipts import Receipt


@dataclass(frozen=True, slots=True)
class Tail:
    """What came to the half queues.

    Shape: `copies` are those of the transactions that were asked for, in the order in which they came;
           `put_backs_count` is how many copies the check put back, of whatever transaction.
    """

    copies: list[tuple[str, NamedRecord]]
    put_backs_count: int = 0


class Medium(Protocol):
    """Where transactions are looked at and acted on."""

    #: Whether nothing happens there but what we do: then no pass of the check has to be waited for.
    is_still: bool

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

    def tail(self, transaction_ids: Collection[str]) -> Tail:
        """What was appended to the half queues since the wait ended, or since this was last asked."""

    def check_cursors(self) -> dict[str, int]:
        """The next half queue offset that the check reads, by store; nothing for stores where it is not known."""

    def decide(self, named: NamedRecord, situation: Situation, decision: int, receipt: Receipt) -> Answer:
        """Commit or roll back a half copy; the request and the response go into the receipt.

        Raises: Unreachable (nothing was done), NoAnswer (nobody knows).
        """

    def discard(self, named: NamedRecord, situation: Situation, receipt: Receipt) -> Answer:
        """Give a half copy up for good: nothing asks for it again, and nothing is delivered.

        Raises: Unreachable, NoAnswer.
        """

    def finish(self) -> Mapping[str, str]:
        """Have everything done that was only planned so far; gives the stores that have moved by that: old → new.

        Raises: RmqtxError; then `is_untouched` says whether anything may have been done.
        """

    @property
    def is_untouched(self) -> bool:
        """Whether nothing was done yet, whatever was planned."""

    def resume(self, named: NamedRecord, receipt: Receipt) -> Answer:
        """Have a copy of a record put into the half topic.

        Raises: Unreachable, NoAnswer.
        """
