"""The steps of a round of the broker's check: the action on a half copy, and why a round ends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from rmqtx.verdicts.check.state import CheckState, HalfCopy


class Action(StrEnum):
    """The action of a round on a half copy."""

    CHECKED = "checked"
    UNASKED = "put back unasked"
    IMMUNE = "put back immune"
    DISCARDED = "discarded"
    EXPIRED = "expired"
    ENDED = "ended"
    UNREADABLE = "unreadable"
    SKIPPED = "skipped"


class Stop(StrEnum):
    """Why a round ends."""

    END = "the end of the queue"
    OWN_COPY = "its own copies"
    YOUNG = "a half that is too young"
    UNREADABLE = "a second unreadable half"
    ABORTED = "an exception: no cursor moves"
    TIME = "60 seconds"
    REFUSED = "a copy that the store refuses"


class CheckStep(NamedTuple):
    """One action of a round.

    Shape: `queue_offset`: the slot of the loop; `half` is None if it cannot be read. `written`: the new copy, if any.
           `is_own_copy`: the copy was put back in the same round; if the queue lags behind, the broker may reach it
           only in the next round (a millisecond decides).
    """

    action: Action
    queue_offset: int
    half: HalfCopy | None
    time_ms: int
    written: HalfCopy | None = None
    written_bytes: int = 0
    is_own_copy: bool = False


@dataclass(frozen=True, slots=True)
class Round:
    """One round: what it did, how it ended, the state after it. Units: epoch milliseconds."""

    begin_ms: int
    end_ms: int
    steps: tuple[CheckStep, ...]
    stop: Stop
    before: CheckState
    state: CheckState

    @property
    def repeats_itself(self) -> bool:
        """Whether it met no half copy and moved nothing: each later round does the same, at any time."""
        met_none = self.stop in (Stop.END, Stop.UNREADABLE) and all(step.half is None for step in self.steps)
        return met_none and _moved(self.before) == _moved(self.state)


def _moved(state: CheckState) -> tuple[object, ...]:
    """What a round can move."""
    return (
        state.half_cursor, state.half_begin, state.half_end, state.op_cursor, state.undispatched, state.first_file,
        state.appended,
    )
