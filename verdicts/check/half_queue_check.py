"""The broker's check of half messages as a pure function: the actions of one round on a state, and the state after it.

The steps are those of TransactionalMessageServiceImpl.check on a master while no other messages are written: no
producer answers, no half is sent. New copies are added to the state in memory.

Source: broker/transaction/queue/TransactionalMessageServiceImpl.java check, fillOpRemoveMap, checkPrepareQueueOffset;
store/DefaultMessageStore.java getMessage; docs/formats/half_and_op.md#check, docs/formats/half_and_op.md#discard.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC
from rmqtx.verdicts.check.check_rules import (
    Action,
    CheckRules,
    CheckSettings,
    CheckStep,
    Round,
    Stop,
    is_expired,
    is_spent,
    is_stored_since,
    is_waited_for,
    is_younger,
    wait_for_ops_ms,
)
from rmqtx.verdicts.check.slots import SlotRead
from rmqtx.verdicts.check.state import CheckState, HalfCopy, Op, Undispatched

ROUND_LIMIT_MS = 60_000
OPS_PER_PULL = 32
#: maxTransferBytesOnMessageInMemory: no pull of several messages is larger.
PULL_BYTES_MAX = 262_144
_LONGER_TOPIC_BYTES = len(DISCARD_TOPIC) - len(HALF_TOPIC)


class _Aborted(Exception):
    """The exception of the broker's loop: the round ends, its cursors are not stored."""


class _Pull(NamedTuple):
    """An answer of the op queue. `found` is None if the broker gets no list."""

    found: list[Op] | None
    next_offset: int


def play_round(
    state: CheckState, rules: CheckRules, settings: CheckSettings, begin_ms: int, visible_own_copies: int | None = None
) -> Round:
    """Play one round of the check that begins at a time.

    `visible_own_copies`: how many of its own copies the loop finds in the queue before the round ends; all, unless the
    queue lags behind the log.
    Order: that of the broker.
    """
    return _Pass(state, rules, settings, begin_ms, visible_own_copies).play()


def play_rounds(state: CheckState, rules: CheckRules, settings: CheckSettings, begin_ms: int) -> Iterator[Round]:
    """Play rounds without end: each one begins one interval after the end of the one before."""
    while True:
        played = play_round(state, rules, settings, begin_ms)
        yield played
        state, begin_ms = played.state, played.end_ms + settings.interval_ms


@dataclass(slots=True)
class _Pass:
    """A round while it is played; fields have the names of the variables in the broker's loop."""

    state: CheckState
    rules: CheckRules
    settings: CheckSettings
    begin_ms: int
    visible_own_copies: int | None = None
    elapsed_ms: int = 0
    removed: dict[int, int] = field(default_factory=dict)
    op_numbers: dict[int, set[int]] = field(default_factory=dict)
    done: list[int] = field(default_factory=list)
    op_cursor: int = 0
    pulled: _Pull = field(default_factory=lambda: _Pull(None, 0))
    nulls_count: int = 0
    steps: list[CheckStep] = field(default_factory=list)
    appended: dict[int, HalfCopy] = field(default_factory=dict)
    queue_end: int = 0
    undispatched: Undispatched | None = None

    @property
    def now_ms(self) -> int:
        return self.begin_ms + self.elapsed_ms

    @property
    def visible_end(self) -> int:
        """The end of the half queue for the loop."""
        in_sight = self.visible_own_copies
        return self.queue_end if in_sight is None else min(self.queue_end, self.state.half_end + in_sight)

    def play(self) -> Round:
        """Play the round."""
        state = self.state
        self.op_cursor, self.queue_end, self.undispatched = state.op_cursor, state.half_end, state.undispatched
        half_cursor = state.half_cursor
        try:
            self._pull_ops(state.op_cursor)
            half_cursor, stop = self._walk()
            op_cursor = _advanced(self.done, state.op_cursor)
            if op_cursor != state.op_cursor:
                self.op_cursor = op_cursor
        except _Aborted:
            stop = Stop.ABORTED
        kept = {place: copy for place, copy in state.appended.items() if place >= half_cursor}
        after = replace(
            state, half_cursor=half_cursor, half_end=self.queue_end, op_cursor=self.op_cursor,
            undispatched=self.undispatched,
            appended=kept | {place: copy for place, copy in self.appended.items() if place >= half_cursor},
        )
        after = after.later(self.elapsed_ms + self.settings.interval_ms)
        return Round(self.begin_ms, self.now_ms, tuple(self.steps), stop, state, after)

    def _walk(self) -> tuple[int, Stop]:
        """Run the loop over the half queue; return the half cursor, and why it ended."""
        place = self.state.half_cursor
        while True:
            if self.elapsed_ms > ROUND_LIMIT_MS:
                return place, Stop.TIME
            op = self.removed.pop(place, None)
            if op is not None:
                self._pass_settled(place, op)
                place += 1
                continue
            if place in self.state.left_out:
                place += 1
                continue
            half = self._half_at(place)
            if half is None:
                following, stop = self._without_half(place)
                if stop is not None:
                    return place, stop
                place = following
                continue
            moved, stop = self._visit(place, half)
            if stop is not None:
                return place, stop
            place += moved

    def _half_at(self, place: int) -> HalfCopy | None:
        if not self.state.half_begin <= place < self.visible_end:
            return None
        read = self._read_of(place)
        if read is not None:
            slot, place = place, self._returned_instead(read)
            if place < 0 and read.is_found and self.rules.unreadable_ends_round:
                self.steps.append(CheckStep(Action.UNREADABLE, slot, None, self.now_ms))
                raise _Aborted
            if place < 0:
                return None
        own = self.appended.get(place)
        half = self.state.copy_at(place) if own is None else None if own.is_spoiled else own
        if half is None and self.rules.unreadable_ends_round:
            self.steps.append(CheckStep(Action.UNREADABLE, place, None, self.now_ms))
            raise _Aborted
        return half

    def _read_of(self, place: int) -> SlotRead | None:
        """Return the read of a slot without a record at its place; None if it has one.

        The copies of this round can move the end of the log over the place.
        """
        read = self.state.reads.get(place)
        if read is None or self.undispatched is None or read.readable_from > self.undispatched.log_end:
            return read
        return None

    def _returned_instead(self, read: SlotRead) -> int:
        """Return the slot whose record the store returns for a slot without one at its place; -1 for none."""
        if read.returned is not None:
            return read.returned
        return read.end if read.sees_copies and read.end < min(read.limit, self.visible_end) else -1

    def _pass_without_half(self, place: int) -> int:
        """Pass a slot without a readable half; return where the read of the store ended.

        Also a slot that leads to a half copy is passed, if it names more bytes than the log has.
        """
        self.steps.append(CheckStep(Action.UNREADABLE, place, None, self.now_ms))
        read = self._read_of(place)
        if read is None:
            return place + 1
        following = min(read.limit, self.visible_end)
        for skipped in range(place, following):
            half = self.appended.get(skipped) or self.state.copy_at(skipped)
            if half is not None and skipped not in self.removed:
                self.steps.append(CheckStep(Action.SKIPPED, skipped, half, self.now_ms))
        return following

    def _without_half(self, place: int) -> tuple[int, Stop | None]:
        """Handle a slot without a readable half: a round passes the first one and ends at the second.

        Return where to continue, or why the round ends.
        """
        end = self.visible_end
        at_end = place == end or not end
        self.nulls_count += 1
        if self.nulls_count > 1 or at_end:
            return place, Stop.END if at_end else Stop.UNREADABLE
        if self.state.half_begin <= place < end:
            return self._pass_without_half(place), None
        return self._corrected(place, self.state.half_begin, end), None

    def _corrected(self, place: int, begin: int, end: int) -> int:
        """Return where the store continues from an offset outside of a queue."""
        if not end:
            return 0
        if place < begin:
            return begin
        if place > end:
            return 0 if begin == 0 and self.rules.overflow_to_begin else end
        return place

    def _visit(self, place: int, half: HalfCopy) -> tuple[int, Stop | None]:
        """Handle a half that no op settles: return how many slots to move on (0: repeat), or why the round ends."""
        checks = half.checks_count
        if checks is not None and is_spent(checks, self.settings):
            return self._discard(Action.DISCARDED, place, half, half)
        counted = half._replace(checks_count=1 if checks is None else checks + 1)
        age_ms = self.now_ms - half.born_time_ms
        if is_expired(age_ms, self.settings.reserved_ms):
            return self._discard(Action.EXPIRED, place, half, counted)
        if is_stored_since(half.store_time_ms, self.begin_ms):
            return 0, Stop.OWN_COPY if place in self.appended else Stop.YOUNG
        immunity_ms = self.settings.time_out_ms
        if half.immunity_seconds is not None:
            if half.immunity_seconds != -1:
                immunity_ms = half.immunity_seconds * 1_000
            is_immune = is_younger(age_ms, immunity_ms, self.rules.age_may_equal)
            if is_immune and self._put_back_immune(place, half, counted):
                return 1, None
        elif is_waited_for(age_ms, self.settings, self.rules):
            return 0, Stop.YOUNG
        if self._is_due(age_ms, immunity_ms):
            return self._check(place, half, counted)
        self._pull_ops(self.pulled.next_offset)
        if self.pulled.found is None:
            self.elapsed_ms += wait_for_ops_ms(self.rules)
        return 0, None

    def _is_due(self, age_ms: int, immunity_ms: int) -> bool:
        """Whether to check now, instead of reading more ops first."""
        found = self.pulled.found
        if found is None:
            return age_ms > immunity_ms or age_ms <= -1
        if not found:  # all are unreadable: the broker takes the last of an empty list
            raise _Aborted
        return found[-1].born_time_ms - self.begin_ms > self.settings.time_out_ms or age_ms <= -1

    def _check(self, place: int, half: HalfCopy, counted: HalfCopy) -> tuple[int, Stop | None]:
        if not counted.fits:  # repeated until the time is over
            self.elapsed_ms = ROUND_LIMIT_MS + 1
            return 0, Stop.REFUSED
        self._append(Action.CHECKED, place, half, counted)
        return 1, None

    def _put_back_immune(self, place: int, half: HalfCopy, counted: HalfCopy) -> bool:
        if half.prepared_queue_offset == -1:
            return False
        if half.prepared_queue_offset is not None:
            op = self.removed.pop(half.prepared_queue_offset, None)
            if op is not None:
                self.done.append(op)  # the whole op, with everything else that it names
                self.steps.append(CheckStep(Action.ENDED, place, half, self.now_ms))
                return True
        prepared = half.prepared_queue_offset
        counted = counted.made_immune(half.queue_offset if prepared is None else prepared)
        if not counted.fits:
            return False
        self._append(Action.IMMUNE, place, half, counted)
        return True

    def _append(self, action: Action, place: int, half: HalfCopy, counted: HalfCopy) -> None:
        number, has_slot = self.queue_end, not half.is_elsewhere
        written_at = -1
        if self.undispatched is not None:
            number += self.undispatched.copies_count
            written_at = self.undispatched.log_end
            self.undispatched, is_counted = self.undispatched.written(counted.copy_bytes, is_half=has_slot)
            has_slot &= is_counted
        copy = counted._replace(queue_offset=number, store_time_ms=self.now_ms, is_spoiled=counted.spoils)
        self._fill_slot(written_at, copy)
        if has_slot:
            self.appended[self.queue_end] = copy
            self.queue_end += 1
        self.steps.append(CheckStep(action, place, half, self.now_ms, copy, copy.copy_bytes))

    def _fill_slot(self, written_at: int, copy: HalfCopy) -> None:
        """Let a slot that led to the end of the log lead to the copy that is written there (4.3.0 and 4.3.1 keep it).

        A slot with a smaller length than the copy gives a part of it, which cannot be decoded.
        """
        for place, read in self.state.reads.items():
            if read.own_place == written_at >= 0:
                is_short = read.readable_from - written_at < copy.copy_bytes
                self.appended[place] = copy._replace(is_spoiled=int(copy.is_spoiled or is_short))

    def _discard(
        self, action: Action, place: int, half: HalfCopy, counted: HalfCopy
    ) -> tuple[int, Stop | None]:
        """Discard a half; the loop continues even if the copy could not be written."""
        written = counted.copy_bytes + _LONGER_TOPIC_BYTES if self.rules.writes_discard_copy and counted.fits else 0
        if self.undispatched is not None:
            self.undispatched, _ = self.undispatched.written(written, is_half=False)
        self.steps.append(
            CheckStep(action, place, half, self.now_ms, written_bytes=written, is_own_copy=place in self.appended)
        )
        return 1, None

    def _pass_settled(self, place: int, op: int) -> None:
        """Pass a half that an op message settles."""
        self.steps.append(CheckStep(Action.ENDED, place, self.appended.get(place), self.now_ms))
        if self.rules.reads_lists:
            numbers = self.op_numbers[op]
            numbers.discard(place)
            if not numbers:
                del self.op_numbers[op]
                self.done.append(op)
        elif self.rules.marks_done_at_once:
            self.done.append(op)

    def _pull_ops(self, offset: int) -> None:
        """Read the next ops and keep the offsets that they name."""
        begin, end = self.state.op_begin, self.state.op_end
        if not begin <= offset < end:
            self.pulled = _Pull(None, self._corrected(offset, begin, end))
            if end and (offset != end or self.rules.end_is_illegal):
                self.op_cursor = self.pulled.next_offset  # stored at once, whatever was read before
            return
        found: list[Op] = []
        size_bytes = taken_count = 0
        place = offset
        read: SlotRead | None = None
        while place < end and taken_count < OPS_PER_PULL:
            read = self.state.op_reads.get(place)
            if read is not None:  # the store continues in a later file of the log, or ends the read
                place = offset = read.end if read.returned is None else read.returned
                if read.returned is None:
                    break
                continue
            op = self.state.ops.op_at(place)
            place += 1
            taken_count += 1
            if op is None:
                if self.rules.end_is_illegal:  # before 4.6.0 the list contains a null
                    raise _Aborted
                offset = place
                continue
            if found and size_bytes + op.length_bytes > PULL_BYTES_MAX:
                break
            found.append(op)
            size_bytes += op.length_bytes
            offset = place
        if not found and read is not None and read.is_found and self.rules.unreadable_ends_round:
            raise _Aborted
        if not found and read is not None and not read.is_found:  # an illegal offset for the broker, as at the end
            self.pulled = _Pull(None, offset)
            self.op_cursor = offset
            return
        self.pulled = _Pull(found, offset)
        for op in found:
            self._note(op)

    def _note(self, op: Op) -> None:
        least = self.state.half_cursor
        if not self.rules.reads_lists:
            if not op.has_body:
                raise _Aborted
            if op.is_tagged:
                number = op.numbers[0] if len(op.numbers) == 1 else -1
                if number < least:
                    self.done.append(op.queue_offset)
                else:
                    self.removed[number] = op.queue_offset
            return
        numbers = {number for number in op.numbers if number >= least} if op.is_tagged and op.has_body else set()
        for number in numbers:
            self.removed[number] = op.queue_offset
        if numbers:
            self.op_numbers[op.queue_offset] = numbers
        else:
            self.done.append(op.queue_offset)


def _advanced(done: list[int], cursor: int) -> int:
    """Return the op cursor after all consecutive done ops; an op that is done twice stops it."""
    for place in sorted(done):
        if place != cursor:
            break
        cursor += 1
    return cursor
