"""Play histories on a release's classes, and compare; a history that differs is made as short as it can be."""

from __future__ import annotations

import json
import shutil
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.histories import living
from tests.histories.comparing import Compared, compare, first_event
from tests.histories.forcing import ACTS_OF_A_STORE, ACTS_TO_SHRINK, force
from tests.histories.futures import Fork
from tests.histories.machine import Machine, MachineFailed
from tests.histories.steps import Step
from tests.histories.truth import Truth
from tests.histories.world import World, copied

#: A JVM keeps some threads of every broker that ran in it.
_HISTORIES_OF_A_JVM = 60
_PLAYS_TO_SHRINK_MAX = 120
#: How long after its last step a store is read.
_LATER_MS = 60_000


@dataclass(slots=True)
class Result:
    """Histories of one release. Shape: `differing`: by seed, the sentences."""

    version: str
    histories: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    differing: dict[int, list[str]] = field(default_factory=dict)


class Stage:
    """The machines of releases, a new JVM now and then. `version`: the release that histories begin with."""

    def __init__(self, version: str, home: Path) -> None:
        self.version = version
        self.home = home
        self._machines: dict[str, Machine] = {}
        self._played = 0
        home.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        """End the JVMs."""
        for machine in self._machines.values():
            machine.close()
        self._machines = {}

    def machine(self, version: str) -> Machine:
        """The machine of a release."""
        if version not in self._machines:
            self._machines[version] = Machine(version, self.home)
        return self._machines[version]

    def play(
        self, history: Step, *, keep: Path | None = None, acts_count: int = ACTS_OF_A_STORE
    ) -> Compared:
        """Play a history on a new store, and compare.

        `keep`: where its store is to be kept. `acts_count`: how many acts are tried on its store.
        """
        if self._played and self._played % _HISTORIES_OF_A_JVM == 0:
            self.close()
        self._played += 1
        root, fork = self.home / "store", self.home / "fork"
        for place in (root, fork):
            shutil.rmtree(place, ignore_errors=True)
        world = World(self.machine, self.version, root, history["conf"])
        try:
            world.start()
            for step in history["steps"]:
                world.play(step)
            if world.is_running:
                world.stop()
            found, truth = self._compare(world, fork)
            force(found, world, truth, fork, Random(history["seed"]), acts_count)
        except MachineFailed as error:
            self.close()
            return Compared(differences=[f"machine: {error}"])
        except Exception:  # a crash of rmqtx is a difference, and the next histories are played all the same
            self.close()
            return Compared(differences=[f"crash: {traceback.format_exc()}"])
        if keep is not None:
            shutil.rmtree(keep, ignore_errors=True)
            keep.mkdir(parents=True)
            copied(root, keep / "store")
            texts = {
                "history.json": json.dumps(history, indent=1),
                "truth.json": json.dumps(truth.as_json()),
                "broker.conf": "\n".join(f"{name}={value}" for name, value in world.conf.items()),
                "differences.txt": "\n".join(found.differences),
            }
            for name, text in texts.items():
                (keep / name).write_text(text + "\n")
        return found

    @staticmethod
    def _compare(world: World, to: Path) -> tuple[Compared, Truth]:
        """Compare what is said of a world's store with what its machine does on a copy of it."""
        truth = world.truth(world.now_ms + _LATER_MS)
        future = Fork(world.machine, copied(world.root, to), world.conf, truth.now_ms)
        quiet = living.quiet(world.machine, truth) if future.refusal is None else set()
        found = compare(world.root, truth, future)
        for one in truth.transactions:
            if quiet.intersection(place for _, place in one.copies):
                found.take("live event", f"tx-{one.number}", "none", first_event(one, truth.rounds))
        if truth.refusal is None and living.is_comparable(truth):
            for what, live, files in living.answers(world.machine, to, world.conf):
                found.take(what, "", live, files)
        future.end()
        shutil.rmtree(to)
        return found, truth


def kinds(compared: Compared) -> set[str]:
    """The kinds of the differences."""
    return {line.split(" ", 1)[0] for line in compared.differences}


def _kinds_played(stage: Stage, history: Step) -> set[str]:
    return kinds(stage.play(history, acts_count=ACTS_TO_SHRINK))


def shrunk(history: Step, is_same: Callable[[Step], bool]) -> Step:
    """The history without the steps that a difference does not need."""
    steps = list(history["steps"])
    left, size = _PLAYS_TO_SHRINK_MAX, max(1, len(steps) // 2)
    while size and left:
        begin = 0
        while begin < len(steps) and left:
            fewer = steps[:begin] + steps[begin + size :]
            left -= 1
            if fewer and is_same({**history, "steps": fewer}):
                steps = fewer
            else:
                begin += size
        size //= 2
    return {**history, "steps": steps}


def played(stage: Stage, histories: Iterable[Step], kept: Path | None) -> Iterator[tuple[Step, Compared]]:
    """Play histories; each that differs is shrunk, and kept with its store."""
    for history in histories:
        found = stage.play(history)
        if found.differences and kept is not None and kinds(found) != {"machine:"}:  # each of its plays would wait too
            wanted = kinds(found)
            short = shrunk(history, lambda one, wanted=wanted: bool(wanted & _kinds_played(stage, one)))  # type: ignore[misc]
            folder = kept / f"{stage.version}-{history['seed']}"
            stage.play(short, keep=folder, acts_count=ACTS_TO_SHRINK)
        yield history, found
