"""The steps of the model on the brokers' own classes: after each step both have the same records, cursors, questions.

How many of its own copies a round finds in the queue depends on the broker's threads: each number is accepted that the
model knows, and the history goes on with what happened.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rmqtx.readers.queues.consume_queue import SLOT
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC
from rmqtx.remoting.protocol.codes import RequestCode
from tests.forge import damage
from tests.forge.records import FIRST_MS
from tests.histories.machine import Effects, Machine
from tests.histories.steps import GROUPS, TOPICS
from tests.histories.world import BEGIN_MS, Record, World, clock_of, op_numbers, zero_from
from tests.model import rules
from tests.model.forging import READ_AFTER_MS, conf, immunity_seconds, time_ms
from tests.model.judging import Judged, compare, rows_of
from tests.model.rules import Disk, Half, State, checked, started
from tests.model.worlds import Step
from tests.model.worlds import World as Bounded

_BATCH_MS = 3_000
#: So many rounds are played after the end of a history.
_ROUNDS_AFTER = 4
Seen = tuple[tuple[object, ...], ...]


@dataclass(slots=True)
class Played:
    """How many steps were compared, what differed, and what the audits of the stores gave."""

    histories: int = 0
    steps: int = 0
    differences: list[str] = field(default_factory=list)
    audits: Judged = field(default_factory=Judged)


class _Differs(Exception):
    """A step after which model and machine differ."""


class Player:
    """One history on one machine."""

    def __init__(self, machine_of: Callable[[str], Machine], bounded: Bounded, root: Path) -> None:
        shutil.rmtree(root, ignore_errors=True)
        self._bounded = bounded
        self._world = World(machine_of, bounded.version, root, conf(bounded.settings))
        self.state = State()
        self._passed_ms = 0

    def play(self, steps: Sequence[Step], result: Played) -> None:
        """Play a history, kill the broker, audit its store, and play the next rounds."""
        world = self._world
        result.histories += 1
        turn: Step | None = None
        try:
            self._set_clock()
            world.start()
            for turn in steps:
                self._play(turn)
                result.steps += 1
            world.machine.step("persist")
            world.kill(0.0)
            turn = None
            disk = rules.killed(self.state, 0, is_stored=True, has_queues=True)
            now_ms = self._now_ms() + READ_AFTER_MS
            rows = rows_of(world.root, self._bounded.release, self._bounded.settings, now_ms)
            compare(result.audits, disk, self._bounded.release, self._bounded.settings, rows)
            self._after(disk, result)
        except _Differs as error:
            result.differences.append(f"{self._bounded.version} {[tuple(one) for one in steps]} at {turn}: {error}")
        finally:
            if world.is_running:
                world.machine.step("abandon")

    def _after(self, disk: Disk, result: Played) -> None:
        """Play the next rounds without a producer's answer."""
        self.state = started(disk, self.state)
        self._world.start()
        for _ in range(_ROUNDS_AFTER):
            self._check()
            result.steps += 1

    def _play(self, step: Step) -> None:
        state, world, bounded = self.state, self._world, self._bounded
        self._passed_ms += 1
        if step.do == "check":
            self._check()
            return
        if step.do == "kill":
            self._kill(step)
            return
        if step.do == "half":
            self._set_clock()
            immune = bounded.settings.immune_rounds[state.sent]
            properties = {} if immune is None else {"CHECK_IMMUNITY_TIME_IN_SECONDS": str(immunity_seconds(immune))}
            world.play({
                "do": "half", "number": state.sent, "group": GROUPS[0], "topic": TOPICS[0], "properties": properties,
                "body_bytes": 8, "has_id": True,
            })
            self.state = rules.sent(state)
        elif step.do in ("commit", "rollback"):
            self._set_clock()
            self._decide(step)
        elif step.do == "batch":
            self._passed_ms += _BATCH_MS
            self._set_clock()
            world.play({"do": "batch"})
            self.state = rules.batched(state) if state.batch else state
        elif step.do == "pause":
            self.state = state._replace(now=state.now + rules.PAUSE)
            self._set_clock()
        self._compare()

    def _decide(self, step: Step) -> None:
        named = (step.place, step.flag)
        if named not in self.state.known:
            return  # the round before found another number of its own copies
        half = self.state.log[step.place]
        assert isinstance(half, Half)
        place = self._records()[step.place].commit_log_offset
        one = self._world.transactions[half.tx]
        self._world._decide(one, step.do, half.number, place, is_check=step.flag)
        is_commit = step.do == "commit"
        self.state = rules.decided(
            self.state, self._bounded.release, self._bounded.settings, named, is_commit=is_commit
        )

    def _check(self) -> None:
        world, bounded = self._world, self._bounded
        world.machine.step("persist")
        self._passed_ms = 0
        world.now_ms = self._now_ms(self.state.now + 1)
        world.machine.clock(world.now_ms)
        effects = world.machine.step("check")
        world.now_ms = clock_of(effects)
        world._learn()
        asked = sorted(_asked(effects))
        found: Seen = ()
        visible = most = 0
        while visible <= most:
            after, happened = checked(self.state, bounded.release, bounded.settings, visible)
            most, visible = happened.own_copies, visible + 1
            records = self._records()
            wanted = self._wanted(after)
            found = self._seen(records)
            if wanted != found or self._cursors() != tuple(one or 0 for one in after.cursors):
                continue
            halves = [(one.number, records[place].commit_log_offset) for place, one in enumerate(after.log)
                      if isinstance(one, Half) and place in happened.asked]
            if sorted(halves) == asked:
                self.state = after
                return
        after, _ = checked(self.state, bounded.release, bounded.settings, 0)
        raise _Differs(f"model {self._wanted(after)} {after.cursors}, machine {found} {self._cursors()}, asked {asked}")

    def _kill(self, step: Step) -> None:
        world = self._world
        if step.flag:
            world.machine.step("persist")
        lost = min(step.number, len(self.state.log) - self.state.kept)
        records = self._records()
        world.kill(0.0)
        if lost:
            _cut(world.root, records[-lost].commit_log_offset)
        disk = rules.killed(self.state, lost, is_stored=step.flag, has_queues=True)
        self.state = started(disk, self.state)
        self._set_clock()
        world.start()
        if world.refusal is not None:
            raise _Differs(f"no start: {world.refusal}")
        self._compare()

    def _now_ms(self, now: int | None = None) -> int:
        return BEGIN_MS + time_ms(self.state.now if now is None else now) - FIRST_MS + self._passed_ms

    def _set_clock(self) -> None:
        self._world.now_ms = self._now_ms()
        self._world.machine.clock(self._world.now_ms)

    def _records(self) -> list[Record]:
        return [one for _, one in sorted(self._world.records.items())]

    def _cursors(self) -> tuple[int, ...]:
        words = next(one for one in self._world.machine.step("cursors").lines if one.startswith("cursors")).split("\t")
        return tuple(max(int(word), 0) for word in words[1:3])

    def _compare(self) -> None:
        wanted, found = self._wanted(self.state), self._seen(self._records())
        if wanted != found:
            raise _Differs(f"model {wanted}, machine {found}")

    @staticmethod
    def _wanted(state: State) -> Seen:
        return tuple(
            ("half", one.tx, one.number, one.checks) if isinstance(one, Half)
            else ("op", *(number for number, _ in one.settled)) if isinstance(one, rules.Op)
            else ("commit", one.tx, one.named) if isinstance(one, rules.Commit)
            else ("discard", one.tx, one.checks)
            for one in state.log
        )

    @staticmethod
    def _seen(records: Sequence[Record]) -> Seen:
        places = {one.commit_log_offset: index for index, one in enumerate(records)}
        found: list[tuple[object, ...]] = []
        for one in records:
            if one.topic == HALF_TOPIC:
                found.append(("half", one.number, one.queue_offset, one.checks))
            elif one.topic == OP_TOPIC:
                found.append(("op", *op_numbers(one)))
            elif one.topic == DISCARD_TOPIC:
                found.append(("discard", one.number, one.checks))
            else:
                found.append(("commit", one.number, places.get(one.prepared_offset)))
        return tuple(found)


def _cut(root: Path, place: int) -> None:
    """Zero the log from a place on, and the slots that lead there; a queue file without slots was not there either.

    A start leaves such slots in the file, and counts the first slot of an empty file: the histories play both.
    """
    zero_from(root, place)
    for file in (root / "consumequeue").glob("*/*/*"):
        for slot, (offset, length, _) in enumerate(struct.iter_unpack(">qiq", file.read_bytes())):
            if length and offset >= place:
                damage.zero_bytes(file, slot * SLOT.size_bytes, SLOT.size_bytes)
        if not any(file.read_bytes()):
            file.unlink()


def _asked(effects: Effects) -> list[tuple[int, int]]:
    return [
        (int(frame.fields["tranStateTableOffset"]), int(frame.fields["commitLogOffset"]))
        for _, frame in effects.asked
        if frame.code == RequestCode.CHECK_TRANSACTION_STATE
    ]
