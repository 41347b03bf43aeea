"""Run tasks in this process, and in others of this machine."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from rmqtx.readers.model.own_process import MEMORY_OF_SCANS, begin_own_process

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

#: Called with the amount done and the total.
Progress = Callable[[int, int], None]


@runtime_checkable
class ShowsPhases(Protocol):
    """A progress that also shows what is done now."""

    def show_phase(self, phase: str, done_tasks: int, tasks_count: int, found: str = "") -> None:
        """Receive the phase, like `judging`, its tasks that have ended and all of them, and what it found so far."""


def show_phase(
    progress: Progress | None, phase: str, done_tasks: int, tasks_count: int, found: str = ""
) -> None:
    """Pass a phase on to a progress that shows phases."""
    given: object = progress
    if isinstance(given, ShowsPhases):
        given.show_phase(phase, done_tasks, tasks_count, found)

#: Below this a second process costs more than it saves.
ONE_PROCESS_BYTES_MAX = 192 << 20

#: Tasks of each process that may be begun before the result of the first is taken: results are memory.
_WAITING_MAX = 4


def workers_count(total_bytes: int, processes: int | None) -> int:
    """Return the number of processes for a scan of `total_bytes`; `processes` is the limit, None for one per core."""
    return 1 if total_bytes <= ONE_PROCESS_BYTES_MAX else processes or os.cpu_count() or 1


def _begin() -> None:
    """Begin a process: it ends at Ctrl-C without a word, and when its parent is killed."""
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    begin_own_process()
    MEMORY_OF_SCANS.begin()  # for as long as the process runs
    threading.Thread(target=_wait_for_parents_end, daemon=True).start()


def _wait_for_parents_end() -> None:
    import multiprocessing

    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _pool(processes: int) -> ProcessPoolExecutor:
    from concurrent.futures import ProcessPoolExecutor

    from rmqtx.readers.jobs.spawned import WithoutProgram

    # Spawned, not forked: Arrow's threads do not survive a fork.
    return ProcessPoolExecutor(processes, mp_context=WithoutProgram(), initializer=_begin)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold back Ctrl-C in the block, and in processes that it starts until `_begin`: they would print a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Workers:
    """Processes that run tasks, of which this process is one: a further process costs its start and its memory."""

    def __init__(self, processes: int) -> None:
        self._others = processes - 1
        self._pool = _pool(self._others) if self._others else None

    def __enter__(self) -> Workers:
        MEMORY_OF_SCANS.begin()
        return self

    def __exit__(self, *_: object) -> None:
        MEMORY_OF_SCANS.end()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def run(self, function: Callable[[_Task], _Result], tasks: Iterable[_Task]) -> Iterator[_Result]:
        """Return the results, in the tasks' order."""
        return map(function, tasks) if self._pool is None else self._run(self._pool, function, iter(tasks))

    def _run(
        self, pool: ProcessPoolExecutor, function: Callable[[_Task], _Result], tasks: Iterator[_Task]
    ) -> Iterator[_Result]:
        """Return the results; this process takes a task whenever the next result is not ready."""
        begun: deque[Future[_Result]] = deque()
        waiting_max = _WAITING_MAX * (self._others + 1)
        while True:
            # Each other process has a second task, so that it need not wait for the end of one in this process.
            free = 2 * self._others - sum(not one.done() for one in begun)
            left = waiting_max - len(begun)
            for task in islice(tasks, max(0, min(free, left))):
                with _uninterrupted():
                    begun.append(pool.submit(function, task))
            if not begun:
                return
            has_time = not begun[0].done() and len(begun) < waiting_max
            has_own = False
            for task in islice(tasks, 1 if has_time else 0):
                begun.append(_done(function, task))  # nothing else holds the result: it may be large
                has_own = True
            if not has_own:
                yield begun.popleft().result()


def _done(function: Callable[[_Task], _Result], task: _Task) -> Future[_Result]:
    """Run a task in this process."""
    from concurrent.futures import Future

    done: Future[_Result] = Future()
    try:
        done.set_result(function(task))
    except Exception as error:
        done.set_exception(error)  # raised when it is this task's turn
    return done
