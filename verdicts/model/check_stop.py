"""Why the check of a half queue comes no further, as a value: `check_stops.py` finds it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckStop:
    """Why the check of one half queue comes no further, however often it runs.

    Shape: `place` is where, in words: "half 140". A half copy is asked for only if its queue offset is less than
           `reach_end`. `why` says who stops there: "broker 4.5.0 cannot read it". `since_ms` is when the message there
           was stored: no round has come past it since; None where that is not known. `transaction_id` and
           `commit_log_offset` are those of that message, as far as they are known; `queue_offset` its place in the half
           queue, or in the op queue (`is_op`). `is_readable`: the message is no hindrance, the check does not run.
    Units: queue offsets; epoch milliseconds.
    """

    store: str
    queue_id: int
    queue_offset: int
    is_op: bool
    reach_end: int
    why: str
    since_ms: int | None = None
    transaction_id: str | None = None
    commit_log_offset: int | None = None
    is_readable: bool = False

    @property
    def place(self) -> str:
        """Where it is."""
        return f"{'op' if self.is_op else 'half'} {self.queue_offset}"
