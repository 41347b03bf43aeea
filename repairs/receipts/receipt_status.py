"""The exit status of acts by their outcomes."""

from __future__ import annotations

from collections.abc import Iterable

from rmqtx.readers.model import exit_status
from rmqtx.repairs.receipts.act_kind import ActKind
from rmqtx.repairs.receipts.act_outcome import ActOutcome
from rmqtx.repairs.receipts.receipts import Receipt

#: Exit status by outcome. A resume is only accepted; other effects must be seen.
STATUS_OF_OUTCOME = {
    ActOutcome.PROVED: exit_status.DONE, ActOutcome.REFUSED_BY_GUARD: exit_status.REFUSED_BY_GUARD,
    ActOutcome.REFUSED_BY_BROKER: exit_status.REFUSED_BY_BROKER, ActOutcome.NOT_SENT: exit_status.UNREACHABLE,
    ActOutcome.ACCEPTED: exit_status.UNKNOWN_OUTCOME, ActOutcome.UNKNOWN: exit_status.UNKNOWN_OUTCOME,
    ActOutcome.CONTRADICTED: exit_status.UNKNOWN_OUTCOME,
}  # fmt: skip


def status_of(receipts: Iterable[Receipt], *, is_proof_wanted: bool) -> int:
    """Return the exit status for some receipts."""
    return exit_status.combined(
        exit_status.DONE if receipt.outcome == ActOutcome.ACCEPTED and (
            not is_proof_wanted or (receipt.action == ActKind.RESUME and receipt.witnesses_after)
        ) else STATUS_OF_OUTCOME[receipt.outcome]
        for receipt in receipts
    )  # fmt: skip
