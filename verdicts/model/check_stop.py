"""The place at which the check of a half queue is stopped, as a value: `check_stops.py` finds it."""

from __future__ import annotations

from dataclasses import dataclass

from rmqtx.readers.model.releases import Version


@dataclass(frozen=True, slots=True)
class CheckStop:
    """A message at which every round of the check of one half queue ends.

    Shape: `place` is the place as text: "half 140". The check reaches only half copies with a queue offset below
           `reach_end`. `why` names the broker and the cause: "broker 4.5.0 cannot read it". `since_ms` is the store
           time of the message: no round has passed it since; None if unknown. `transaction_id` and `commit_log_offset`
           are those of the message, if known; `queue_offset` its place in the half queue, or in the op queue (`is_op`).
           `is_readable`: the message can be read, but the check does not run. `lacks_room`: it can be read, but its
           properties leave no room for those that the check adds. `version`: the broker's version by whose
           rules the message ends the round; None if it is not known, or makes no difference. `is_lost`: the log has no
           file with its record, although it would be in the log.
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
    lacks_room: bool = False
    version: Version | None = None
    is_lost: bool = False

    @property
    def place(self) -> str:
        """Return the place as text."""
        return f"{'op' if self.is_op else 'half'} {self.queue_offset}"
