"""What is asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for.

    `group`: refuse if the transaction is of another one. `queue_offset`: name this half copy, not the newest.
    """

    action: str
    group: str | None = None
    queue_offset: int | None = None

    @property
    def decides(self) -> bool:
        """Whether it is carried out by a decision on a half copy, at least at first."""
        return self.action != "resume"
