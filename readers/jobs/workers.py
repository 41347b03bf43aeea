"""Run tasks in other processes of this machine, or in this process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from readers.model.pandas_import import block_pandas

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

#: Called with the amount done and the total.
Progress = Callable[[int, int], None]

#: Below this a second process costs more than it saves.
ONE_PROCESS_BYTES_MAX = 192 << 20


def workers_count(total_bytes: int, processes: int | None) -> int:
    """Return the number of processes for a scan of `total_bytes`; `processes` is the limit, None for one per core."""
    return 1 if total_bytes <= ONE_PROCESS_BYTES_MAX else processes or os.cpu_count() or 1


def _begin() -> None:
    """End this process when its parent is killed: otherwise it would wait for tasks without end."""
    block_pandas()
    threading.Thread(target=_wait_for_parents_end, daemon=True).start()


def _wait_for_parents_end() -> None:
    import multiprocessing

    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _pool(processes: int) -> ProcessPoolExecutor:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # Spawned, not forked: Arrow's threads do not survive a fork.
    return ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"), initializer=_begin)


class Workers:
    """Processes that run tasks in order, or this process."""

    def __init__(self, processes: int) -> None:
        self._pool = _pool(processes) if processes > 1 else None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def run(self, function: Callable[[_Task], _Result], tasks: Iterable[_Task]) -> Iterator[_Result]:
        """Return the results, in the tasks' order."""
        return self._pool.map(function, tasks) if self._pool is not None else map(function, tasks)
