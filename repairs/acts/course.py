"""The course of acts: how many are done and refused, and whether the operator asked to stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


def _unseen(_course: Course) -> None:
    """Show nothing."""


@dataclass(slots=True)
class Course:
    """How far several acts are: the acts count, their caller shows it and may stop them.

    Shape: `total_count`: acts that are carried out, 0 until the first request can be sent; `done_count`: those whose
           request was sent; `refused_count`: those that a guard or the broker refused. `is_stopped`: no further act is
           begun, and those that were begun are proved. `changed` is called after each act.
    """

    changed: Callable[[Course], None] = field(default=_unseen)
    total_count: int = 0
    done_count: int = 0
    refused_count: int = 0
    is_stopped: bool = False

    def begin(self, total_count: int) -> None:
        """Record that requests may be sent from now on."""
        self.total_count = total_count
        self.changed(self)

    def add(self, *, is_done: bool) -> None:
        """Count one act."""
        self.done_count += is_done
        self.refused_count += not is_done
        self.changed(self)

    def must_stop(self) -> bool:
        """Whether no further act may begin; a signal can change that at any time."""
        return self.is_stopped
