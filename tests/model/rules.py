"""What a broker does in one step, for transactions in the half and op topics; plain values, no files and no clock.

Time is the number of rounds of the check that have begun: rounds are 100 s apart, and the other steps take no time.

Source: TransactionalMessageServiceImpl.check, fillOpRemoveMap, checkPrepareQueueOffset, calculateOpOffset;
EndTransactionProcessor; TransactionalMessageBridge.fetchConsumeOffset; DefaultMessageStore.getMessage, recover.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

#: The expiry of a half message needs days between two rounds: this many rounds are one such pause.
PAUSE = 1_000


@dataclass(frozen=True, slots=True)
class Release:
    """The rules of a release.

    Shape: `has_batches`: op messages name several numbers and wait in memory (5.1.0+). `is_done_at_once`: an op message
           is done in the round that passes its half copy (4.6.0+). `writes_discards`: a discard leaves a record
           (4.5.2+). `end_is_illegal`: a read at the end of the op queue moves the op cursor there (before 4.6.0).
           `overflow_to_begin`: a cursor beyond the end of a queue goes to its begin (before 4.9.4), else to the end.
    """

    version: str
    has_batches: bool
    is_done_at_once: bool
    writes_discards: bool
    end_is_illegal: bool
    overflow_to_begin: bool


RELEASES = {
    one.version: one
    for one in (
        Release("4.4.0", False, False, False, True, True),
        Release("4.9.7", False, True, True, False, False),
        Release("5.3.3", True, True, True, False, False),
    )
}


class Half(NamedTuple):
    """A half copy. `prepared`: the number of the copy that was put back during its immunity."""

    tx: int
    number: int
    checks: int | None
    prepared: int | None
    when: int


class Op(NamedTuple):
    """An op message. Shape: `settled`: each number, and the transaction that was decided."""

    settled: tuple[tuple[int, int], ...]
    when: int


class Commit(NamedTuple):
    """A COMMIT record. `named`: the place of the half copy that the decision named."""

    tx: int
    named: int
    when: int


class Discard(NamedTuple):
    """A copy in the discard topic."""

    tx: int
    number: int
    checks: int
    when: int


Record = Half | Op | Commit | Discard
#: Half and op cursor; None before the check stored one.
Cursors = tuple[int | None, int | None]


class State(NamedTuple):
    """A running broker, and what the producer knows. Places are indexes of `log`.

    Shape: `stored`: the cursors as they were before the last round, which a kill can bring back. `batch`: settled
           numbers that are only in memory, with their transactions. `known`: the places of half copies that the
           producer can name, and whether it was asked about them. `dropped`: the places of the half copies that a check
           discarded. `kept`: the records that a power loss cannot take.
    """

    log: tuple[Record, ...] = ()
    cursors: Cursors = (None, None)
    stored: Cursors = (None, None)
    batch: tuple[tuple[int, int], ...] = ()
    known: tuple[tuple[int, bool], ...] = ()
    dropped: frozenset[int] = frozenset()
    kept: int = 0
    now: int = 0
    sent: int = 0
    decided: int = 0
    rounds: int = 0
    kills: int = 0


class Disk(NamedTuple):
    """The files of a broker that does not run.

    Shape: `lost`: the records behind the end of the log that have slots. `slots`: the number of slots in the half and
           in the op queue, `lost` included. `cursors`: None without a file. `is_killed`: the file `abort` is there.
    """

    log: tuple[Record, ...]
    lost: tuple[Record, ...]
    slots: tuple[int, int]
    cursors: Cursors | None
    dropped: frozenset[int]
    now: int
    is_killed: bool


@dataclass(frozen=True, slots=True)
class Settings:
    """A broker's settings, and what producers send. `immune_rounds`: by transaction, in how many rounds it is immune;
    None without the property.
    """

    check_max: int = 2
    immune_rounds: tuple[int | None, ...] = (None, None, None)


def halves(log: tuple[Record, ...]) -> list[tuple[int, Half]]:
    """The half copies, which the half queue has in this order, with their places."""
    return [(place, one) for place, one in enumerate(log) if isinstance(one, Half)]


def ops(log: tuple[Record, ...]) -> list[Op]:
    """The op messages in the order of their queue."""
    return [one for one in log if isinstance(one, Op)]


def sent(state: State) -> State:
    """The state after a producer sent the next half message."""
    place = len(state.log)
    half = Half(state.sent, len(halves(state.log)), None, None, state.now)
    return state._replace(log=(*state.log, half), known=(*state.known, (place, False)), sent=state.sent + 1)


def decided(state: State, release: Release, settings: Settings, named: tuple[int, bool], *, is_commit: bool) -> State:
    """The state after a decision that names a half copy."""
    place, was_asked = named
    half = state.log[place]
    assert isinstance(half, Half)
    state = state._replace(decided=state.decided + 1)
    immune = settings.immune_rounds[half.tx]
    if release.has_batches and immune is not None and not was_asked and state.now - born(state.log, half.tx) > immune:
        return state  # 604: too late for a decision without a question
    log = (*state.log, Commit(half.tx, place, state.now)) if is_commit else state.log
    if not release.has_batches:
        return state._replace(log=(*log, Op(((half.number, half.tx),), state.now)))
    return state._replace(log=log, batch=(*state.batch, (half.number, half.tx)))


def batched(state: State) -> State:
    """The state after the numbers in memory were written."""
    return state._replace(log=(*state.log, Op(state.batch, state.now)), batch=())


def born(log: tuple[Record, ...], tx: int) -> int:
    """When the first half copy of a transaction was written."""
    return next(one.when for one in log if isinstance(one, Half) and one.tx == tx)


class Happened(NamedTuple):
    """What a round did.

    Shape: places of the half copies that were written: `asked`, `put_back`; `discarded`: the places of the copies that
           it discarded, and `expired` those of them that were too old. `own_copies`: how many copies it wrote.
    """

    asked: tuple[int, ...]
    put_back: tuple[int, ...]
    discarded: tuple[int, ...]
    expired: tuple[int, ...]
    own_copies: int


def checked(state: State, release: Release, settings: Settings, visible: int) -> tuple[State, Happened]:
    """The state after one round. `visible`: how many of its own copies the round finds in the queue."""
    state = state._replace(now=state.now + 1, rounds=state.rounds + 1, stored=state.cursors)
    turn = _Round(state, release, settings, visible)
    return turn.play()


class _Round:
    """One round while it is played."""

    def __init__(self, state: State, release: Release, settings: Settings, visible: int) -> None:
        self.state, self.release, self.settings = state, release, settings
        self.visible = visible
        self.log = list(state.log)
        self.queue = halves(state.log)
        self.ends = (len(self.queue), len(ops(state.log)))
        self.begin, self.op_begin = (cursor or 0 for cursor in state.cursors)
        self.op_cursor = state.cursors[1]
        self.removed: dict[int, int] = {}
        self.open_numbers: dict[int, set[int]] = {}
        self.done: list[int] = []
        self.asked: list[int] = []
        self.put_back: list[int] = []
        self.discarded: list[int] = []
        self.expired: list[int] = []
        self.has_more_ops = False

    def play(self) -> tuple[State, Happened]:
        self._read_ops()
        half_cursor = self._walk()
        op_cursor = self.op_begin
        for number in sorted(self.done):
            if number != op_cursor:
                break
            op_cursor += 1
        if op_cursor != self.op_begin:
            self.op_cursor = op_cursor
        before = self.state.cursors[0]
        known = (*self.state.known, *((place, True) for place in self.asked))
        state = self.state._replace(
            log=tuple(self.log), known=known, dropped=self.state.dropped | frozenset(self.discarded),
            cursors=(before if half_cursor == self.begin else half_cursor, self.op_cursor),
        )
        own = len(self.asked) + len(self.put_back)
        return state, Happened(
            tuple(self.asked), tuple(self.put_back), tuple(self.discarded), tuple(self.expired), own
        )

    def _read_ops(self) -> None:
        """Read all op messages from the cursor on: there are never more than 32."""
        end = self.ends[1]
        if self.op_begin >= end:
            self._correct_op_cursor(self.op_begin)
            return
        self.has_more_ops = True
        for place, op in enumerate(ops(self.state.log)):
            if place < self.op_begin:
                continue
            numbers = {number for number, _ in op.settled if number >= self.begin}
            for number in numbers:
                self.removed[number] = place
            if self.release.has_batches:
                self.open_numbers[place] = numbers
            if not numbers:
                self.done.append(place)

    def _correct_op_cursor(self, at: int) -> None:
        """A read at the end of the op queue, or behind it."""
        end = self.ends[1]
        if end and at > end:
            self.op_cursor = 0 if self.release.overflow_to_begin else end
        elif end and self.release.end_is_illegal:
            self.op_cursor = end

    def _walk(self) -> int:
        """Visit half copies until the round ends; where it ended."""
        at = self.begin
        if at > self.ends[0]:  # the store corrects the cursor once
            at = 0 if self.release.overflow_to_begin or not self.ends[0] else self.ends[0]
        while True:
            op = self.removed.pop(at, None)
            if op is not None:
                self._settle(at, op)
            elif at >= min(len(self.queue), self.ends[0] + self.visible) or not self._visit(at):
                return at
            at += 1

    def _settle(self, number: int, op: int) -> None:
        if self.release.has_batches:
            self.open_numbers[op].discard(number)
            if not self.open_numbers[op]:
                self.done.append(op)
        elif self.release.is_done_at_once:
            self.done.append(op)

    def _visit(self, at: int) -> bool:
        """Visit an open half copy; whether the round goes on behind it."""
        place, half = self.queue[at]
        checks, birth = half.checks or 0, born(tuple(self.log), half.tx)
        is_old = self.state.now - birth >= PAUSE
        if is_old or (half.checks is not None and checks >= self.settings.check_max):
            self._discard(place, half, checks if checks >= self.settings.check_max else checks + 1)
            self.expired += [place] if checks < self.settings.check_max else []
            return True
        if at >= self.ends[0]:
            return False  # it was stored after the round began
        immune = self.settings.immune_rounds[half.tx]
        if immune is not None and self.state.now - birth <= immune:
            return self._put_back(half, checks + 1)
        if self.has_more_ops:  # before it asks it reads on, and finds no further op message
            self.has_more_ops = False
            self._correct_op_cursor(self.ends[1])
        self.asked.append(len(self.log))
        self._append(half._replace(checks=checks + 1))
        return True

    def _put_back(self, half: Half, checks: int) -> bool:
        if half.prepared is not None and half.prepared in self.removed:
            self.done.append(self.removed.pop(half.prepared))
            return True
        self.put_back.append(len(self.log))
        self._append(half._replace(checks=checks, prepared=half.number if half.prepared is None else half.prepared))
        return True

    def _append(self, copy: Half) -> None:
        copy = copy._replace(number=len(self.queue), when=self.state.now)
        self.queue.append((len(self.log), copy))
        self.log.append(copy)

    def _discard(self, place: int, half: Half, checks: int) -> None:
        self.discarded.append(place)
        if self.release.writes_discards:
            self.log.append(Discard(half.tx, half.number, checks, self.state.now))


def stopped(state: State) -> Disk:
    """The files after an orderly stop; numbers in memory are lost."""
    slots = (len(halves(state.log)), len(ops(state.log)))
    return Disk(state.log, (), slots, state.cursors, state.dropped, state.now, False)


def killed(state: State, lost: int, *, is_stored: bool, has_queues: bool) -> Disk:
    """The files after a kill.

    `lost`: how many records at the end of the log are lost; the queues keep their slots. `is_stored`: the cursors were
    written after the last round. `has_queues`: else the queues have none of the slots since the start.
    """
    whole = state.log if has_queues else state.log[: state.kept]
    slots = (len(halves(whole)), len(ops(whole)))
    log = state.log[: len(state.log) - lost]
    gone = state.log[len(log) :] if has_queues else ()
    cursors = state.cursors if is_stored else state.stored
    dropped = frozenset(place for place in state.dropped if place < len(log))
    has_file = is_stored or cursors != (None, None)
    return Disk(log, gone, slots, cursors if has_file else None, dropped, state.now, True)


def started(disk: Disk, before: State | None = None) -> State:
    """The state after a start: the queues are made to agree with the log. `before`: the state that ended."""
    before = before or State()
    cursors = disk.cursors or (None, None)
    known = tuple(one for one in before.known if one[0] < len(disk.log))
    return before._replace(
        log=disk.log, cursors=cursors, stored=cursors, batch=(), known=known, dropped=disk.dropped,
        kept=len(disk.log), now=disk.now,
    )
