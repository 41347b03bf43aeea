"""What the store returns for a slot of a queue if no record can be read at the place that the slot names.

The store then skips each following slot whose record is in the same file of the log, and returns the first record of a
later file instead. It reads to the end of the slot's file or 800 slots, whichever comes first; the check continues
where the read ended. So slots that are only skipped are never checked, and a record that is returned for several slots
is checked once for each of them. The same is so for a slot without a length, which a start can leave behind the last
record of a queue: the store reads no bytes for it, and returns the record of the next slot. A record at its place that
cannot be decoded is another case: `half_queue_check.py`.

Source: store/DefaultMessageStore.java getMessage, CommitLog.java getMessage, rollNextFile (4.3.0 to 5.5.0);
docs/formats/half_and_op.md#skipped-slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from rmqtx.readers.log.commit_log import written_end_offset
from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.store.store import Store

#: maxFilterMessageSize of 16,000 bytes: the slots that one read examines.
READ_SLOTS_MAX = 800
#: The own place of a slot is in no file that a new record can end in.
NEVER_READABLE = 1 << 62


class SlotRead(NamedTuple):
    """The answer of the store for a slot without a record at its place.

    Shape: `returned`: the slot whose record is returned instead; None if no stored slot has one. `end`: where the read
           ends without a record. `limit`: where it ends at the latest; copies that the check appends can lie between.
           `sees_copies`: whether those copies are returned: they are in a later file of the log.
           `readable_from`: the place that the end of the log must reach before the slot's own place can be read, which
           then has a record that is written there; `own_place`: that place, -1 if it can never be read.
           `is_found`: the store returns no bytes for the slot, but counts it as found: the broker gets an empty list,
           before 4.9.5 and on 5.0.0 with an exception.
    """

    returned: int | None
    end: int
    limit: int
    sees_copies: bool
    readable_from: int = NEVER_READABLE
    is_found: bool = False
    own_place: int = -1

    def hides(self, number: int) -> bool:
        """Whether the store passes the record that gets the slot of a number, the first after the stored ones."""
        return self.returned is None and number < self.limit and not self.sees_copies


class LogPlaces(NamedTuple):
    """The places of a log that a broker can read. Units: bytes; `end`: past the last record."""

    begin: int
    file_bytes: int
    end: int

    @classmethod
    def of(cls, store: Store, known_end: int = 0) -> LogPlaces:
        """Return the places of a store's log; its end is known to be at or after a place."""
        segments = store.commit_log
        size = segments[0].size_bytes if segments else 0
        return cls(store.log_begin_offset, size, max(known_end, written_end_offset(segments)))

    def are_readable(self, offsets: Int64s, lengths: Int64s) -> Bools:
        """Return at which places the broker gets bytes. A length that is not positive is a matter of content.

        For place 0 it gets those at the begin of the log (CommitLog.java getMessage, findMappedFileByOffset).
        """
        if not self.file_bytes:
            return np.zeros(len(offsets), np.bool_)
        places = np.where(offsets == 0, self.begin, offsets)
        file_begins = places - places % self.file_bytes
        room = np.minimum(file_begins + self.file_bytes, self.end) - places
        found: Bools = (places >= self.begin) & (np.maximum(lengths, 0) <= room)
        return found

    def next_file(self, offset: int) -> int:
        """Return where the file after that of a place begins."""
        return offset - offset % self.file_bytes + self.file_bytes if self.file_bytes else offset


def passed_slots(reads: Mapping[int, SlotRead], cursor: int, end: int) -> Int64s:
    """Return the numbers of the slots from a cursor on that a round passes without reading them. Order: ascending."""
    passed: list[int] = []
    while cursor < end:
        read = reads.get(cursor)
        after = cursor + 1 if read is None or read.returned is not None else max(read.end, cursor + 1)
        passed += range(cursor + 1, after)
        cursor = after
    return np.array(passed, np.int64)


def slot_reads(
    log: LogPlaces, begin: int, offsets: Int64s, lengths: Int64s, file_ends: Int64s, are_known: Bools
) -> dict[int, SlotRead]:
    """Return what the store returns for each slot without a record at its place.

    `offsets`, `lengths`: of the slots from `begin` on. `file_ends`: where the files of the queue end. `are_known`:
    which slots have a known value; the others have no answer.
    """
    are_at_places = log.are_readable(offsets, lengths)
    are_readable = are_at_places & (lengths != 0)
    found: dict[int, SlotRead] = {}
    stored_end = begin + len(offsets)
    for row in np.flatnonzero(~are_readable & are_known).tolist():
        number = begin + row
        after = file_ends[file_ends > number]
        limit = number + READ_SLOTS_MAX if not len(after) else min(number + READ_SLOTS_MAX, int(after[0]))
        next_file = 0 if are_at_places[row] else log.next_file(max(0, int(offsets[row])))
        returned = None
        for later in range(row + 1, min(limit, stored_end) - begin):
            if offsets[later] < next_file:
                continue
            if are_readable[later]:
                returned = begin + later
                break
            if not are_at_places[later]:
                next_file = log.next_file(int(offsets[later]))
        place = int(offsets[row])
        own_end = place + max(0, int(lengths[row]))
        is_ahead = not are_at_places[row] and place >= log.begin and own_end <= log.next_file(place)
        found[number] = SlotRead(
            returned, min(limit, stored_end), limit, log.end >= next_file, own_end if is_ahead else NEVER_READABLE,
            is_found=bool(are_at_places[row]), own_place=place if is_ahead else -1,
        )
    return found
