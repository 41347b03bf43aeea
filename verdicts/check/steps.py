"""What rounds of the broker's check are made of: what is done with a half copy, and what a round stops at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from verdicts.check.state import CheckState, HalfCopy


class Action(StrEnum):
    """What a round does with a half copy."""

    CHECKED = "checked"
    IMMUNE = "put back immune"
    DISCARDED = "discarded"
    EXPIRED = "expired"
    ENDED = "ended"
    UNREADABLE = "unreadable"


class Stop(StrEnum):
    """What a round stops at."""

    END = "the end of the queue"
    OWN_COPY = "its own copies"
    YOUNG = "a half that is too young"
    UNREADABLE = "a second unreadable half"
    ABORTED = "an exception: no cursor moves"
    TIME = "60 seconds"
    REFUSED = "a copy that the store refuses"


class CheckStep(NamedTuple):
    """One thing that a round does.

    Shape: `queue_offset` is the slot that the loop stood at; `half` is None where it cannot be read. `written` is the
           new copy, if any. `is_own_copy`: the copy was put back in the same round, so that the broker may also come
           to it only in the next one, where its queue lags behind (a millisecond decides).
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
