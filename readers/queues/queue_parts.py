"""The result of one split of a log for one consume queue: which of the queue's slots agree with a record."""

from __future__ import annotations

from dataclasses import dataclass

from rmqtx.readers.model.columns import Int64s


@dataclass(slots=True)
class QueuePart:
    """The result of one split for one queue.

    Shape: `runs` are numbers of slots [from, to) that agree with a record. The other arrays go together and hold the
           records whose slot does not agree: the slot number in the record, its place and length, its tags code, and
           the values in the slot with that number (place −1: no slot).
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
