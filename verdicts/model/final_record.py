"""A COMMIT record as a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FinalRecord:
    """A COMMIT record.

    Units: `prepared_transaction_offset`: commit-log offset of the copy that the decision names; None if not known.
    """

    store: str
    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    store_time_ms: int
    prepared_transaction_offset: int | None = None
