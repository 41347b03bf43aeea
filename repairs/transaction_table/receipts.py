"""The receipt of changed rows of a database table: on the disk before the first one is changed, as of any act."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from readers.model.errors import RmqtxError
from remoting.protocol.codes import ResponseCode
from repairs.receipts.journal import Journal
from repairs.receipts.receipts import DELETE_ROW, INSERT_ROW, TABLE_CHANGE, Receipt, answered
from repairs.transaction_table.changes import AFTER, BEFORE, standing_of_rows
from repairs.transaction_table.plan import DELETE, TablePlan
from repairs.transaction_table.rows import Login

#: Rows that a receipt names, of each of which the journal keeps a few hundred bytes; the undo file has all.
ROWS_NAMED_MAX = 1000


class TableReceipt:
    """The receipt of a plan of rows, which is written when the first one is about to be changed."""

    def __init__(self, journal: Journal, plan: TablePlan, *, file: str, text: str, reason: str | None) -> None:
        self._journal, self._plan = journal, plan
        groups = {step.producer_group for step in plan.steps}
        self.receipt = Receipt(
            TABLE_CHANGE, None, plan.address.name, producer_group=groups.pop() if len(groups) == 1 else None,
            reason=reason, plan={"file": file, "digest": hashlib.sha256(text.encode()).hexdigest()},
        )  # fmt: skip
        self.receipt.notes.append(f"by the log of {plan.store}")
        if len(plan.steps) > ROWS_NAMED_MAX:
            more = len(plan.steps) - ROWS_NAMED_MAX
            self.receipt.notes.append(f"{more} more rows than the requests name: the undo file has them")
        self._is_begun = False

    @property
    def is_unknown(self) -> bool:
        """Whether rows may have been changed, and nobody could tell."""
        return self._is_begun and self.receipt.outcome == "unknown"

    def begin(self) -> None:
        """Write down that the rows will be changed.

        Raises: UnwritableFile: then none must be.
        """
        for step in self._plan.steps[:ROWS_NAMED_MAX]:
            request = DELETE_ROW if step.action == DELETE else INSERT_ROW
            self.receipt.asked(request, {"offset": step.half_commit_log_offset, "producerGroup": step.producer_group})
        self._journal.begin(self.receipt)
        self._is_begun = True

    @contextmanager
    def ended(self, login: Login) -> Iterator[None]:
        """Have the outcome written down after the block; where it fails the table itself is asked what became of it.

        Raises: UnwritableFile.
        """
        try:
            yield
        except RmqtxError as error:
            if self._is_begun:
                self.receipt.outcome = self._outcome(login)
                self.receipt.notes.append(f"interrupted: {error}")
                self._journal.end(self.receipt)
            raise
        for entry in self.receipt.requests:
            answered(entry, ResponseCode.SUCCESS, "changed")
        self.receipt.outcome = "proved"
        self._journal.end(self.receipt)

    def _outcome(self, login: Login) -> str:
        try:
            standing = standing_of_rows(self._plan.steps, self._plan.address, login)
        except RmqtxError:
            return "unknown"
        return {BEFORE: "not_sent", AFTER: "proved"}.get(standing, "unknown")
