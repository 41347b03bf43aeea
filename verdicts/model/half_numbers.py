"""Half queue offsets that do not identify one half message, as a value: `ends/taken_numbers.py` finds them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np

from rmqtx.readers.model.columns import Int64s

#: No slot of the half queue leads to a half message, and none will: the check never reads it. The slot with its number
#: belongs, or will belong, to another half message.
NO_SLOT = -1
#: No slot leads to it either, and the slot with its number is a filler, or before the begin of the queue.
FILLER_SLOT = -3
#: Which of several half messages with one queue offset has the slot is unknown: no half queue was read.
UNKNOWN_SLOT = -2
#: No COMMIT record names a half message; no op message settles its slot.
NOWHERE = -1


def _none() -> Int64s:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class HalfNumbers:
    """The half messages of queue 0 of a store whose queue offset does not identify them; empty for nearly all stores.

    Shape: two tables, by column. Half messages that are not in the slot of their queue offset: `offsets` (of the
           commit log), `slots` (the slot that leads to each; NO_SLOT, FILLER_SLOT, UNKNOWN_SLOT), `settling_offsets`
           (the op message that the check reads and that names that slot; NOWHERE). Half messages that share their queue
           offset with another: `numbers`, `places` (commit-log offsets), `final_offsets` and `final_times_ms` (the
           first COMMIT record that names each; NOWHERE).
    Order: `offsets`; `numbers`, then `places`.
    Units: commit-log offsets in bytes; epoch milliseconds.
    """

    offsets: Int64s = field(default_factory=_none)
    slots: Int64s = field(default_factory=_none)
    settling_offsets: Int64s = field(default_factory=_none)
    numbers: Int64s = field(default_factory=_none)
    places: Int64s = field(default_factory=_none)
    final_offsets: Int64s = field(default_factory=_none)
    final_times_ms: Int64s = field(default_factory=_none)

    def __bool__(self) -> bool:
        return bool(len(self.offsets) or len(self.numbers))

    def digest(self) -> str:
        """Return a text that changes with any of the values; empty without values."""
        if not self:
            return ""
        parts = [getattr(self, name) for name in self.__dataclass_fields__]
        whole = b"".join(len(part).to_bytes(8, "big") + part.tobytes() for part in parts)
        return hashlib.blake2b(whole, digest_size=16).hexdigest()
