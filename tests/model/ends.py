"""What is true of each transaction of a world that ended: what happened to it, and what its broker does next."""

from __future__ import annotations

from dataclasses import dataclass

from tests.model.rules import Commit, Discard, Disk, Half, Op, Release, Settings, State, checked, started

#: A half message without a decision has its end after this many rounds.
_ROUNDS = 6


@dataclass(frozen=True, slots=True)
class Truth:
    """One transaction.

    Shape: `states`: what it may be called. `event`: what the next rounds do first with a copy of it, and `is_asked`
           whether a later round asks. `copies`: its half copies; `deliveries`: COMMIT records; `ops`: how often op
           messages name a copy of it; `discards`: copies in the discard topic; `checks`: the highest number of checks.
    """

    states: frozenset[str]
    event: str
    is_asked: bool
    copies: int
    deliveries: int
    ops: int
    discards: int
    checks: int

    @property
    def is_decided(self) -> bool:
        """Whether a decision is recorded."""
        return bool(self.deliveries or self.ops)


def truths(disk: Disk, release: Release, settings: Settings) -> dict[int, Truth]:
    """The truth of each transaction that has a record."""
    events, asked = _future(disk, release, settings)
    found = {}
    for tx in sorted({one.tx for one in disk.log if isinstance(one, Half)}):
        copies = [(place, one) for place, one in enumerate(disk.log) if isinstance(one, Half) and one.tx == tx]
        commits = sum(isinstance(one, Commit) and one.tx == tx for one in disk.log)
        marks = sum(owner == tx for one in disk.log if isinstance(one, Op) for _, owner in one.settled)
        discards = [(place, one) for place, one in enumerate(disk.log) if isinstance(one, Discard) and one.tx == tx]
        event = events.get(tx, "none")
        found[tx] = Truth(
            states=frozenset(_states(disk, release, settings, copies, commits, marks, discards, event)),
            event=event, is_asked=tx in asked, copies=len(copies), deliveries=commits, ops=marks,
            discards=len(discards),
            checks=max([one.checks or 0 for _, one in copies] + [one.checks for _, one in discards]),
        )
    return found


def _states(
    disk: Disk, release: Release, settings: Settings, copies: list[tuple[int, Half]], commits: int, marks: int,
    discards: list[tuple[int, Discard]], event: str,
) -> set[str]:
    if commits:
        return {"COMMITTED"}
    if marks:
        return {"ROLLED_BACK"}
    place, newest = copies[-1]
    if discards and discards[-1][0] > place:
        return {"DISCARDED"}
    if event != "none":
        return {"PENDING"}
    if not release.writes_discards and (newest.checks or 0) >= settings.check_max:
        # A power loss that takes an op message and its slot leaves the store that a discard leaves.
        return {"DISCARDED"} if place in disk.dropped else {"DISCARDED", "LOST"}
    return {"DISCARDED"} if discards else {"LOST"}


def _future(disk: Disk, release: Release, settings: Settings) -> tuple[dict[int, str], set[int]]:
    """The first event of each transaction after the next start without any answer, and which ones are asked about."""
    state = started(disk, State(now=disk.now))
    events: dict[int, str] = {}
    asked: set[int] = set()
    for _ in range(_ROUNDS):
        before = state
        state, happened = checked(state, release, settings, 0)
        turn: dict[int, str] = {}
        for word, places in (
            ("put_back", happened.put_back), ("discarded", happened.discarded), ("expired", happened.expired),
            ("asked", happened.asked),
        ):
            turn |= {_tx(state, place): word for place in places}
        asked |= {_tx(state, place) for place in happened.asked}
        events = turn | events
        if (before.log, before.cursors) == (state.log, state.cursors):
            break
    return events, asked


def _tx(state: State, place: int) -> int:
    half = state.log[place]
    assert isinstance(half, Half)
    return half.tx
