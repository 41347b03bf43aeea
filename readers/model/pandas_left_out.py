"""Keeps pyarrow from loading pandas, which it looks for at its first conversion: a quarter of a second for nothing."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec


class _Absent(MetaPathFinder):
    """Says that pandas is not installed."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """None, so that others look; for pandas an error, so that none does.

        Raises: ModuleNotFoundError.
        """
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not wanted here", name=name)
        return None


_ABSENT = _Absent()


def leave_pandas_out() -> None:
    """From now on this process has no pandas; for one that runs only rmqtx, which needs none."""
    if _ABSENT not in sys.meta_path:
        sys.meta_path.insert(0, _ABSENT)


def let_pandas_in() -> None:
    """Give it back: Spark Connect wants it."""
    if _ABSENT in sys.meta_path:
        sys.meta_path.remove(_ABSENT)
