"""Processes of a pool that do not run the caller's program a second time.

A process that is spawned imports the file or module that was started: a script without `if __name__ == "__main__":`
would begin its audit again there, and each process would load what the caller imports. Tasks are functions of rmqtx,
which are found by their module.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import spawn
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

_LAUNCHING = threading.Lock()
#: What multiprocessing passes to a process so that it imports the program.
_PROGRAM = ("init_main_from_name", "init_main_from_path")


@contextmanager
def _program_left_out() -> Iterator[None]:
    """Leave the program out of what this thread passes to a process; other threads start theirs as before.

    Source: CPython 3.11 to 3.14, multiprocessing/spawn.py: get_preparation_data has no parameter for it.
    """
    own = threading.get_ident()
    with _LAUNCHING:
        usual = spawn.get_preparation_data

        def chosen(name: str) -> dict[str, Any]:
            passed = usual(name)
            is_own = threading.get_ident() == own
            return {key: one for key, one in passed.items() if not (is_own and key in _PROGRAM)}

        spawn.get_preparation_data = chosen
        try:
            yield
        finally:
            spawn.get_preparation_data = usual


class _Process(SpawnProcess):
    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802 -- the name in multiprocessing
        with _program_left_out():
            return SpawnProcess._Popen(process_obj)


class WithoutProgram(SpawnContext):
    """Spawned processes, without the caller's program."""

    Process = _Process
