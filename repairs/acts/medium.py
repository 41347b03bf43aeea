"""The interface of what actions work on: live brokers, or the files of a stopped broker."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from rmqtx.remoting.protocol.answers import Answer
from rmqtx.repairs.acts.situation import NamedRecord, Situation
from rmqtx.repairs.receipts.receipts import Receipt
from rmqtx.verdicts.model.final_record import FinalRecord
from rmqtx.verdicts.model.transaction import OpMark, Transaction


@dataclass(frozen=True, slots=True)
class Tail:
    """Records that were appended to the half queues.

    Shape: `copies` are those of the requested transactions, in the order of their queues; `put_backs_count`: copies
           that the check put back, of any transaction.
    """

    copies: list[tuple[str, NamedRecord]]
    put_backs_count: int = 0


class Medium(Protocol):
    """Where transactions are looked up and acted on."""

    #: Whether no other process changes the store: then there is no check to wait for.
    is_exclusive: bool

    def look(self, transaction_ids: Sequence[str]) -> list[Transaction]:
        """Return some transactions as they are now, by their ids; none for an id that no record has."""

    def situations(self, rows: Sequence[Transaction], *, settled_ms: int) -> list[Situation]:
        """Return the present situations of some rows.

        `settled_ms`: how long the command has waited for decisions that were under way.
        """

    def claimed(self, situations: Iterable[Situation]) -> AbstractContextManager[Mapping[str, tuple[str, ...]]]:
        """Keep other rmqtx processes from acting on the groups of some transactions while the block lasts.

        The value: processes that acted on a group before, by group.
        """

    def wait(self, wait_ms: int) -> None:
        """Wait, and note producers that connect meanwhile: later situations include them."""

    def record(self, situation: Situation, queue_offset: int) -> NamedRecord | None:
        """A half copy of a transaction by its queue offset; None where it cannot be read."""

    def tail(self, transaction_ids: Collection[str]) -> Tail:
        """Return what was appended to the half queues since the wait ended, or since the last call."""

    def check_cursors(self) -> dict[str, int]:
        """Return the next half queue offset that the check reads, by store; no entry where it is unknown."""

    def open_copies(self, situation: Situation) -> list[int]:
        """Return the half queue offsets of the copies that no op message settles, as far as is known, ascending."""

    def decide(self, named: NamedRecord, situation: Situation, decision: int, receipt: Receipt) -> Answer:
        """Commit or roll back a half copy; the request and the response are recorded in the receipt.

        Raises: Unreachable (nothing was done), NoAnswer (unknown whether anything was done).
        """

    def redeliver(self, named: NamedRecord, situation: Situation, receipt: Receipt) -> Answer:
        """Have the message of a transaction delivered that is over; once.

        Raises: Unreachable (nothing was done), NoAnswer (unknown whether anything was done).
        """

    def discard(self, named: NamedRecord, situation: Situation, receipt: Receipt) -> Answer:
        """Discard a half copy: it is not checked again, and nothing is delivered. Raises: Unreachable, NoAnswer."""

    def not_in_queue(self, record: FinalRecord | OpMark) -> str | None:
        """Return why consumers do not reach a COMMIT record by its queue, or the check an op message; else None."""

    def finish(self) -> Mapping[str, str]:
        """Do everything that was only planned so far, and return the stores whose place changed: old → new.

        Raises: RmqtxError; then `is_untouched` shows whether anything may have been done.
        """

    @property
    def is_untouched(self) -> bool:
        """Whether nothing was done yet, even if acts are planned."""

    def resume(self, named: NamedRecord, receipt: Receipt) -> Answer:
        """Have the broker append a copy of a record to the half topic. Raises: Unreachable, NoAnswer."""
