"""The request for an act."""

from __future__ import annotations

from dataclasses import dataclass

from rmqtx.repairs.receipts.act_words import ActKind


@dataclass(frozen=True, slots=True)
class ActRequest:
    """An action and its limits.

    `group`: refuse a transaction of another producer group. `queue_offset`: name this half copy, not the newest.
    """

    action: ActKind
    group: str | None = None
    queue_offset: int | None = None

    @property
    def decides(self) -> bool:
        """Whether the action sends a decision on a half copy first."""
        return self.action != ActKind.RESUME
