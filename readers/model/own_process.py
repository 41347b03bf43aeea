"""Settings of a process that runs only rmqtx.

pyarrow loads pandas and dateutil at its first conversions: 0.25 s for types that are not used. Python's collector looks
for cycles each time that 700 more objects exist, and imports and columns make many objects and hardly any cycle: 5 % of
the time of an audit of 700 MB, 7 % of that of `pending` on a small store; while modules are
loaded, 4 % of that of `audit` on one.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from importlib.machinery import ModuleSpec
from typing import Any

_NAMES = ("pandas", "dateutil")
#: New objects after which the collector looks for cycles.
_COLLECTED_OBJECTS = 50_000
#: Parameters of mallopt (malloc.h of glibc): what is larger is mapped on its own; free memory that is kept.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
_MAPPED_BYTES, _KEPT_BYTES = 32 << 20, 64 << 20


class _Absent:
    """An import hook that reports these packages as not installed."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Return None, so that the next import hook is asked; for these packages raise, so that no other hook is.

        Raises: ModuleNotFoundError.
        """
        if name in _NAMES:
            raise ModuleNotFoundError(f"rmqtx does not load {name}", name=name)
        return None


_ABSENT = _Absent()


def begin_own_process() -> None:
    """Make pandas and dateutil impossible to import in this process, and look for cycles less often."""
    if _ABSENT not in sys.meta_path:
        sys.meta_path.insert(0, _ABSENT)
    gc.set_threshold(_COLLECTED_OBJECTS)


def begin_loading() -> None:
    """Look for no cycles until `loaded` is called: imports make none that are garbage."""
    gc.disable()


def loaded() -> None:
    """Look for cycles from now on, but not in what was imported, after `begin_loading`."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def keep_free_memory() -> None:
    """Keep memory that is freed, for a scan of a long log.

    Otherwise the C library gives the memory of each window back to the system, which clears the same pages for the next
    window: 4 % of the time of an audit. Without glibc nothing changes.
    """
    import ctypes

    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, _MAPPED_BYTES)
        set_option(_TRIM_THRESHOLD, _KEPT_BYTES)


class MemoryOfScans:
    """Parts of a run that scan long logs, also in a process that is not one of rmqtx; they may overlap, in threads.

    Arrow allocates from the C library in them: its own allocators keep freed memory, so that an audit needs 100 MiB
    more, and an eighth more processor time. An allocator that the environment names is kept. Cycles are looked for less
    often. After the last part both are as before.
    """

    def __init__(self) -> None:
        self._lock, self._parts = threading.Lock(), 0
        self._arrow: Any = None
        self._pool: Any = None
        self._threshold: tuple[int, int, int] | None = None

    def begin(self) -> None:
        """Begin a part."""
        import pyarrow as pa

        keep_free_memory()
        with self._lock:
            self._parts += 1
            if self._parts > 1:
                return
            if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
                self._arrow, self._pool = pa, pa.default_memory_pool()
                pa.set_memory_pool(pa.system_memory_pool())
            if 0 < gc.get_threshold()[0] < _COLLECTED_OBJECTS:  # 0: the collector is off
                self._threshold = gc.get_threshold()
                gc.set_threshold(_COLLECTED_OBJECTS)

    def end(self) -> None:
        """End a part."""
        with self._lock:
            self._parts -= 1
            if self._parts:
                return
            if self._pool is not None:
                self._arrow.set_memory_pool(self._pool)
                self._pool = None
            if self._threshold is not None:
                gc.set_threshold(*self._threshold)
                self._threshold = None


MEMORY_OF_SCANS = MemoryOfScans()


def allow_pandas() -> None:
    """Make pandas and dateutil possible to import again: Spark Connect needs pandas."""
    if _ABSENT in sys.meta_path:
        sys.meta_path.remove(_ABSENT)
