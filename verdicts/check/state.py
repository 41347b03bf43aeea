"""The state at the beginning of a round of the broker's check: half queue, op queue and both cursors, in memory.

A put-back is added to `appended` of a new state; no files are used here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from rmqtx.readers.log.properties import CHECK_TIMES, PREPARED_QUEUE_OFFSET
from rmqtx.readers.log.record_layout import PROPERTIES_BYTES_MAX
from rmqtx.verdicts.check.slots import SlotRead


class HalfCopy(NamedTuple):
    """A half copy as the check reads it.

    Shape: `row`: the row in the window of the stored record that it was made from. `checks_count`, `immunity_seconds`
           and `prepared_queue_offset` are None if the property is absent and -1 if not a number, as in the broker.
    Units: `fixed_bytes`: the length of a copy without TRANSACTION_CHECK_TIMES and TRAN_PREPARED_QUEUE_OFFSET;
           `fixed_properties_bytes`: the properties in it. `immune_growth_bytes`: what the first put-back for immunity
           adds to both, because only that put-back writes the property WAIT again. `spoils`: a copy of it cannot be
           read, because the body is inflated and the flag is still that of a compressed one (before 4.6.0).
           `is_elsewhere`: the record is of another topic, and so is each copy of it: a slot that a power loss left
           leads to what was written there later.
    """

    row: int
    queue_offset: int
    born_time_ms: int
    store_time_ms: int
    checks_count: int | None
    immunity_seconds: int | None
    prepared_queue_offset: int | None
    fixed_bytes: int
    fixed_properties_bytes: int
    immune_growth_bytes: int
    spoils: int = 0
    is_spoiled: int = 0
    is_elsewhere: int = 0

    @property
    def varying_bytes(self) -> int:
        """Length of the two properties that the check changes."""
        return _property_bytes(CHECK_TIMES, self.checks_count) + _property_bytes(
            PREPARED_QUEUE_OFFSET, self.prepared_queue_offset
        )

    @property
    def copy_bytes(self) -> int:
        """Length of the record of a copy with these properties."""
        return self.fixed_bytes + self.varying_bytes

    @property
    def fits(self) -> bool:
        """Whether the store accepts a copy with these properties."""
        return self.fixed_properties_bytes + self.varying_bytes <= PROPERTIES_BYTES_MAX

    def made_immune(self, prepared_queue_offset: int) -> HalfCopy:
        """Return the copy that a put-back for immunity writes."""
        return self._replace(
            prepared_queue_offset=prepared_queue_offset,
            fixed_bytes=self.fixed_bytes + self.immune_growth_bytes,
            fixed_properties_bytes=self.fixed_properties_bytes + self.immune_growth_bytes,
            immune_growth_bytes=0,
        )


def _property_bytes(name: str, value: int | None) -> int:
    return 0 if value is None else len(name) + len(str(value)) + 2


class Op(NamedTuple):
    """An op message. `numbers` are the half queue offsets that it names, -1 for a value that is not a number."""

    queue_offset: int
    numbers: tuple[int, ...]
    is_tagged: bool
    has_body: bool
    born_time_ms: int
    length_bytes: int


class HalfWindow(Protocol):
    """The stored half copies, by queue offset."""

    def copy_at(self, queue_offset: int) -> HalfCopy | None:
        """Return the copy in a slot; None if it cannot be read."""


class OpWindow(Protocol):
    """The stored op messages, by queue offset."""

    def op_at(self, queue_offset: int) -> Op | None:
        """Return the op in a slot; None if it cannot be read."""


class Undispatched(NamedTuple):
    """New half copies that get no slot: the half queue leads behind the end of the log, and takes no record before.

    Shape: `log_end`: where the next record is written. `maximum`: the place up to which records get no slot.
           `compares_ends`: a record counts by its end, not by its begin. `begins_behind`: dispatch begins at `maximum`,
           so a record over it gets none, whatever counts (4.5.0 to 4.9.8). `copies_count`: copies without a slot until
           now; the number of the next copy is larger than that of its slot by this count.
    Source: store/ConsumeQueue.java putMessagePositionInfo, DefaultMessageStore.java start;
            docs/formats/consume_queues.md#dispatch.
    """

    log_end: int
    maximum: int
    compares_ends: bool
    begins_behind: bool = False
    copies_count: int = 0

    def written(self, length_bytes: int, *, is_half: bool) -> tuple[Undispatched, bool]:
        """Return the state after a record, and whether this gets a slot."""
        end = self.log_end + length_bytes
        has_slot = (end if self.compares_ends else self.log_end) > self.maximum
        has_slot &= not self.begins_behind or self.log_end >= self.maximum
        count = self.copies_count + (is_half and not has_slot)
        return self._replace(log_end=end, copies_count=count), has_slot


class FirstFile(NamedTuple):
    """The first file of a half queue, if the broker deletes it after the first round.

    Shape: `kept_ms`: from the begin of the next round until then. `begin`: the smallest offset of the queue after it.
    Source: store/DefaultMessageStore.java cleanFilesPeriodically.
    """

    kept_ms: int
    begin: int


@dataclass(frozen=True, slots=True)
class CheckState:
    """One half queue with its op queue. Ends are the queue offsets after the last slot; 0 for a queue without any.

    Shape: `reads`: what the store returns for stored half slots without a record at their place; `op_reads`: the same
           for op slots. `left_out`: half slots that a bundle left out: they count as settled. `undispatched`: None if
           a new copy gets a slot at once. `first_file`: the first file of the half queue, if it is deleted later.
    """

    queue_id: int
    half_cursor: int
    half_begin: int
    half_end: int
    op_cursor: int
    op_begin: int
    op_end: int
    halves: HalfWindow
    ops: OpWindow
    appended: Mapping[int, HalfCopy] = field(default_factory=dict)
    reads: Mapping[int, SlotRead] = field(default_factory=dict)
    op_reads: Mapping[int, SlotRead] = field(default_factory=dict)
    left_out: frozenset[int] = frozenset()
    undispatched: Undispatched | None = None
    first_file: FirstFile | None = None

    @property
    def is_op_cursor_inside(self) -> bool:
        """Whether the op cursor is in its queue; a pull elsewhere corrects the cursor and gives no op."""
        return self.op_begin <= self.op_cursor <= self.op_end

    def later(self, passed_ms: int) -> CheckState:
        """Return the state when some time has passed, in which no round was played."""
        file = self.first_file
        if file is None:
            return self
        if file.kept_ms > passed_ms:
            return replace(self, first_file=file._replace(kept_ms=file.kept_ms - passed_ms))
        return replace(self, first_file=None, half_begin=file.begin)

    def copy_at(self, queue_offset: int) -> HalfCopy | None:
        """The half copy in a slot, stored or put back by a simulated round; None if it cannot be read."""
        found = self.appended.get(queue_offset)
        if found is None:
            return self.halves.copy_at(queue_offset)
        return None if found.is_spoiled else found


def half_lag(next_offset: int | None, end_offset: int | None) -> int | None:
    """Return the half copies between the check's cursor and the end of the half queue; None if unknown.

    `end_offset`: None or 0 without a queue. Then nothing is behind if the cursor is at the begin too; a cursor further
    on proves that the queue's files are missing.
    """
    if not end_offset:
        return None if next_offset else 0
    return None if next_offset is None else max(0, end_offset - next_offset)


def first_read(half_cursor: int | None, half_end: int, half_begin: int = 0) -> int:
    """Return the first half queue offset that a check reads; without a cursor in its queue it begins again.

    A broker of 5.x that was killed before it wrote one has no cursor.
    """
    return half_begin if half_cursor is None or not half_begin <= half_cursor <= half_end else half_cursor
