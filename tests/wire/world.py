"""Virtual time, and processes of which one thread runs at a time: the same seed gives the same course.

A thread that waits runs the events that are due before, and passes the baton to the thread that is due next.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

from rmqtx.remoting.connections import client, connection
from rmqtx.remoting.producer import producer
from rmqtx.repairs.acts import claims
from rmqtx.repairs.receipts import receipts
from rmqtx.repairs.stand_in import stand_in

#: When each course begins. Units: epoch nanoseconds.
START_NS = 1_790_000_000_000_000_000
_SECOND_NS = 1_000_000_000
_DAY_SECONDS = 86_400.0


class Killed(BaseException):
    """The process was ended as by SIGKILL: nothing that it still does has an effect."""


class Process:
    """One simulated process; `kill_at`: the seam at which it is killed, if any."""

    def __init__(self, world: World, name: str, is_ours: bool, kill_at: Callable[[str, int], bool] | None) -> None:
        self.world, self.name, self.is_ours, self.kill_at = world, name, is_ours, kill_at
        self.is_dead = False
        self.tasks: list[Task] = []
        self.on_death: list[Callable[[], None]] = []
        self.counts: dict[str, int] = {}

    def kill(self) -> None:
        """End the process now; its threads end when they next wait, or reach a seam."""
        if self.is_dead:
            return
        self.is_dead = True
        self.world.note(f"{self.name} is killed")
        for task in self.tasks:
            self.world.wake(task, task.token)
        for function in self.on_death:
            function()

    def seam(self, kind: str) -> None:
        """Pass a seam: it may be the one at which the process is killed.

        Raises: Killed.
        """
        if not self.is_dead:
            number = self.counts[kind] = self.counts.get(kind, 0) + 1
            if self.kill_at is None or not self.kill_at(kind, number):
                return
            self.world.note(f"{self.name} at {kind} {number}:")
            self.kill()
        raise Killed


class Task:
    """A thread of a process."""

    def __init__(self, process: Process | None, function: Callable[[], None]) -> None:
        self.process, self.function = process, function
        self.baton = threading.Lock()
        self.baton.acquire()
        self.token = 0
        self.was_notified = False
        self.is_done = False
        self.error: BaseException | None = None
        self.joiners: list[tuple[Task, int]] = []


class World:
    """The clock, the events, and the threads."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ns = START_NS
        self.steps: list[str] = []
        self._events: list[tuple[int, int, Any]] = []
        self._numbers = itertools.count()
        self.main = Task(None, lambda: None)
        self.current = self.main
        self._processes: list[Process] = []
        self._is_in_event = False

    # -- time -------------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """The time. Units: epoch milliseconds."""
        return self.now_ns // 1_000_000

    @property
    def seconds(self) -> float:
        """The time since the begin."""
        return (self.now_ns - START_NS) / _SECOND_NS

    def note(self, what: str) -> None:
        """Note a step, for the story of a failure."""
        self.steps.append(f"{self.seconds:9.3f} {what}")

    def at(self, delay_seconds: float, function: Callable[[], None]) -> None:
        """Call a function after a time; it must not wait."""
        due = self.now_ns + int(delay_seconds * _SECOND_NS)
        heapq.heappush(self._events, (due, next(self._numbers), function))

    # -- waiting ----------------------------------------------------------------------------------------------------

    def wake(self, task: Task, token: int) -> None:
        """Let a task that waits continue."""
        heapq.heappush(self._events, (self.now_ns, next(self._numbers), (task, token, True)))

    def notify(self, waiters: list[tuple[Task, int]]) -> None:
        """Let all waiting tasks of a list continue."""
        for task, token in waiters:
            self.wake(task, token)
        waiters.clear()

    def wait(self, seconds: float | None, waiters: list[tuple[Task, int]] | None = None) -> bool:
        """Wait for a time or a notification; True for the latter.

        Raises: Killed.
        """
        assert not self._is_in_event, "an event must not wait"
        task = self.current
        process = task.process
        if process is not None and process.is_dead:
            raise Killed
        task.token += 1
        task.was_notified = False
        if seconds is not None:
            due = self.now_ns + max(0, int(min(seconds, _DAY_SECONDS) * _SECOND_NS))
            heapq.heappush(self._events, (due, next(self._numbers), (task, task.token, False)))
        if waiters is not None:
            waiters.append((task, task.token))
        self._run(task)
        if process is not None and process.is_dead:
            raise Killed
        return task.was_notified

    def sleep(self, seconds: float) -> None:
        """Wait for a time."""
        self.wait(max(0.0, seconds))

    def _run(self, task: Task | None) -> None:
        """Run what is due until a task continues; `task`: the one that calls this, None if it has ended."""
        while True:
            assert self._events, "nothing is left to happen"
            due, _, what = heapq.heappop(self._events)
            self.now_ns = max(self.now_ns, due)
            if callable(what):
                self._is_in_event = True
                try:
                    what()
                except BaseException as error:
                    self.main.error = error
                    self._events.clear()
                    self.wake(self.main, self.main.token)
                finally:
                    self._is_in_event = False
                continue
            found, token, was_notified = what
            if found.is_done or found.token != token:
                continue
            found.token += 1
            found.was_notified = was_notified
            self.current = found
            if found is not task:
                found.baton.release()
                if task is not None:
                    task.baton.acquire()
            if task is self.main and self.main.error is not None:
                raise self.main.error
            return

    # -- processes --------------------------------------------------------------------------------------------------

    def process(
        self, name: str, *, is_ours: bool = False, kill_at: Callable[[str, int], bool] | None = None
    ) -> Process:
        """Return a new process without threads."""
        found = Process(self, name, is_ours, kill_at)
        self._processes.append(found)
        return found

    def end(self) -> None:
        """End all processes."""
        for process in self._processes:
            if not all(task.is_done for task in process.tasks):
                process.kill()
        self.sleep(0.1)

    def start(self, process: Process, function: Callable[[], None], delay_seconds: float = 0.0) -> Task:
        """Start a thread of a process."""
        task = Task(process, function)
        process.tasks.append(task)

        def body() -> None:
            task.baton.acquire()
            try:
                if not process.is_dead:
                    task.function()
            except Killed:
                pass
            except BaseException as error:
                task.error = error
            task.is_done = True
            self.notify(task.joiners)
            self._run(None)

        threading.Thread(target=body, daemon=True).start()
        due = self.now_ns + int(delay_seconds * _SECOND_NS)
        heapq.heappush(self._events, (due, next(self._numbers), (task, task.token, True)))
        return task

    def join(self, task: Task, seconds: float | None = None) -> bool:
        """Wait for the end of a thread; whether it has ended."""
        end = None if seconds is None else self.now_ns + int(seconds * _SECOND_NS)
        while not task.is_done and (end is None or self.now_ns < end):
            self.wait(None if end is None else (end - self.now_ns) / _SECOND_NS, task.joiners)
        return task.is_done

    def seam(self, kind: str) -> None:
        """Pass a seam in the process that runs now."""
        if not self._is_in_event and self.current.process is not None:
            self.current.process.seam(kind)

    # -- what the product imports -----------------------------------------------------------------------------------

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Have the product wait, measure and draw in this world."""
        names = random.Random(self.random.random())
        tokens = SimpleNamespace(token_hex=lambda count=8: names.randbytes(count).hex())
        threads, queues = self._threading(), self._queue()
        with (
            mock.patch.multiple(
                time, sleep=self.sleep, time_ns=lambda: self.now_ns, time=lambda: self.now_ns / _SECOND_NS,
                monotonic=lambda: self.now_ns / _SECOND_NS, monotonic_ns=lambda: self.now_ns,
            ),
            mock.patch.object(connection, "threading", threads), mock.patch.object(connection, "queue", queues),
            mock.patch.object(client, "threading", threads), mock.patch.object(claims, "threading", threads),
            mock.patch.object(producer, "threading", threads), mock.patch.object(stand_in, "queue", queues),
            mock.patch.object(claims, "random", self.random), mock.patch.object(producer, "secrets", tokens),
            mock.patch.object(receipts, "secrets", tokens), mock.patch.object(receipts, "_last_ns", 0),
        ):
            yield

    def event(self) -> Any:
        """An event for which tasks of this world wait."""
        return self._threading().Event()

    def _threading(self) -> SimpleNamespace:
        world = self

        class Event:
            def __init__(self) -> None:
                self._is_set, self._waiters = False, list[tuple[Task, int]]()

            def set(self) -> None:
                self._is_set = True
                world.notify(self._waiters)

            def is_set(self) -> bool:
                return self._is_set

            def wait(self, timeout: float | None = None) -> bool:
                if not self._is_set:
                    world.wait(timeout, self._waiters)
                return self._is_set

        class Lock:
            def __init__(self) -> None:
                self._is_held, self._waiters = False, list[tuple[Task, int]]()

            def __enter__(self) -> None:
                while self._is_held:
                    world.wait(None, self._waiters)
                self._is_held = True

            def __exit__(self, *_: object) -> None:
                self._is_held = False
                world.notify(self._waiters)

        class Thread:
            def __init__(
                self, *, target: Callable[..., None], args: tuple[Any, ...] = (), name: str = "", daemon: bool = True
            ) -> None:
                self._function = lambda: target(*args)
                self.task: Task | None = None

            def start(self) -> None:
                process = world.current.process
                assert process is not None
                self.task = world.start(process, self._function)

            def join(self, timeout: float | None = None) -> None:
                if self.task is not None:
                    world.join(self.task, timeout)

        class Current:
            """Compares as the thread whose task runs."""

            def __eq__(self, other: object) -> bool:
                return getattr(other, "task", None) is world.current

            def __ne__(self, other: object) -> bool:
                return not self == other

            __hash__ = None  # type: ignore[assignment]

        return SimpleNamespace(Event=Event, Lock=Lock, Thread=Thread, current_thread=Current)

    def _queue(self) -> SimpleNamespace:
        world = self

        class SimpleQueue:
            def __init__(self) -> None:
                self._values: list[Any] = []
                self._waiters: list[tuple[Task, int]] = []

            def put(self, value: Any) -> None:
                self._values.append(value)
                world.notify(self._waiters)

            def get(self, timeout: float | None = None) -> Any:
                end = None if timeout is None else world.now_ns + int(timeout * _SECOND_NS)
                while not self._values:
                    left = None if end is None else (end - world.now_ns) / _SECOND_NS
                    if left is not None and left <= 0:
                        raise queue.Empty
                    world.wait(left, self._waiters)
                return self._values.pop(0)

            def get_nowait(self) -> Any:
                return self.get(0)

        return SimpleNamespace(SimpleQueue=SimpleQueue, Empty=queue.Empty, __class_getitem__=None)
