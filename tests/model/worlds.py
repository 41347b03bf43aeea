"""All states of a bounded world, breadth first, each with the shortest list of steps that leads to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.model.rules import (
    PAUSE,
    RELEASES,
    Disk,
    Half,
    Release,
    Settings,
    State,
    batched,
    checked,
    decided,
    killed,
    sent,
    started,
    stopped,
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large a world is. `decisions`: of all transactions together. `lost`: how many records a power loss takes."""

    transactions: int = 3
    copies: int = 3
    decisions: int = 2
    rounds: int = 2
    kills: int = 2
    lost: int = 2
    pauses: int = 0


class Step(NamedTuple):
    """One step. Shape: `place`: of the half copy that a decision names; `number`: of a round how many of its own copies
    it finds, of a kill how many records it loses.
    """

    do: str
    place: int = -1
    number: int = 0
    flag: bool = False


@dataclass(frozen=True)
class World:
    """A release with its settings, and the bounds."""

    version: str
    settings: Settings = field(default_factory=Settings)
    bounds: Bounds = field(default_factory=Bounds)

    @property
    def release(self) -> Release:
        """The rules of the release."""
        return RELEASES[self.version]


def following(world: World, state: State) -> Iterator[tuple[Step, State]]:
    """Every step from a state."""
    release, settings, bounds = world.release, world.settings, world.bounds
    if state.sent < bounds.transactions:
        yield Step("half"), sent(state)
    if state.decided < bounds.decisions:
        for named in state.known:
            for is_commit in (True, False):
                step = Step("commit" if is_commit else "rollback", named[0], flag=named[1])
                yield step, decided(state, release, settings, named, is_commit=is_commit)
    if state.batch:
        yield Step("batch"), batched(state)
    if state.rounds < bounds.rounds and state.sent:
        yield from _rounds(world, state)
    if state.now < PAUSE * bounds.pauses and state.sent:
        yield Step("pause"), state._replace(now=state.now + PAUSE)
    if state.kills < bounds.kills and state.log:
        for lost in range(min(bounds.lost, len(state.log) - state.kept) + 1):
            for is_stored in (True, False) if state.stored != state.cursors else (True,):
                after = started(killed(state, lost, is_stored=is_stored, has_queues=True), state)
                yield Step("kill", number=lost, flag=is_stored), after._replace(kills=state.kills + 1)


def _rounds(world: World, state: State) -> Iterator[tuple[Step, State]]:
    """A round, for each number of its own copies that change what it does."""
    seen: set[State] = set()
    visible = most = 0
    while visible <= most:
        after, happened = checked(state, world.release, world.settings, visible)
        most = happened.own_copies
        if after not in seen and _is_within(world.bounds, after):
            seen.add(after)
            yield Step("check", number=visible), after
        visible += 1


def _is_within(bounds: Bounds, state: State) -> bool:
    counts = [0] * bounds.transactions
    for one in state.log:
        if isinstance(one, Half):
            counts[one.tx] += 1
    return max(counts, default=0) <= bounds.copies


class Reached(NamedTuple):
    """The states of a world. Shape: `before`: of each state the one before it, and the step between them."""

    before: dict[State, tuple[State, Step] | None]

    def steps(self, state: State) -> list[Step]:
        """The steps that lead to a state."""
        found: list[Step] = []
        while (one := self.before[state]) is not None:
            state, step = one
            found.append(step)
        return found[::-1]


def reached(world: World) -> Reached:
    """Every state of a world."""
    begin = State()
    before: dict[State, tuple[State, Step] | None] = {begin: None}
    left = deque([begin])
    while left:
        state = left.popleft()
        for step, after in following(world, state):
            if after not in before:
                before[after] = state, step
                left.append(after)
    return Reached(before)


class End(NamedTuple):
    """One store: the state that ended, and how."""

    state: State
    how: str
    disk: Disk


def endings(world: World, state: State) -> Iterator[End]:
    """Every way in which a state ends: a stop, a kill, a power loss, and a lost file of cursors."""
    if not state.log:
        return
    disk = stopped(state)
    yield End(state, "stop", disk)
    if disk.cursors != (None, None):
        yield End(state, "stop, cursors lost", disk._replace(cursors=None))
    for lost in range(min(world.bounds.lost, len(state.log) - state.kept) + 1):
        for is_stored in (True, False) if state.stored != state.cursors else (True,):
            for has_queues in (True, False):
                word = f"kill, {lost} lost" + ("" if is_stored else ", old cursors")
                disk = killed(state, lost, is_stored=is_stored, has_queues=has_queues)
                yield End(state, word if has_queues else word + ", no new slots", disk)


def ends(world: World, found: Reached) -> dict[Disk, End]:
    """Every store in which a world can end, once, with an end that leads to it."""
    stores: dict[Disk, End] = {}
    for state in found.before:
        for end in endings(world, state):
            if end.disk.log:
                stores.setdefault(end.disk, end)
    return stores

