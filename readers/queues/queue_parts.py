"""What one split of a log knows of one consume queue: which of its slots agree with a record."""

from __future__ import annotations

from dataclasses import dataclass

from readers.model.columns import Int64s


@dataclass(slots=True)
class QueuePart:
    """What one split knows of one queue.

    Shape: `runs` are numbers of slots [from, to) that agree with a record. The other arrays go together and hold the
           records whose slot does not: the number they claim, their place and length, their tags code, and what the
           slot of that number holds (place −1: no slot).
    Units: bytes of the commit log.
    """

    runs: Int64s
    numbers: Int64s
    offsets: Int64s
    lengths: Int64s
    tags_codes: Int64s
    slot_offsets: Int64s
    slot_lengths: Int64s
    slot_tags: Int64s


#: The columns of a QueuePart about records whose slot does not agree.
RECORD_COLUMNS = (
    "numbers", "offsets", "lengths", "tags_codes", "slot_offsets", "slot_lengths", "slot_tags",
)
