"""Keep pyarrow from loading pandas at its first conversion, which costs 0.25 s and is not needed."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec


class _Absent(MetaPathFinder):
    """An import hook that reports pandas as not installed."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Return None, so that the next import hook is asked; for pandas raise, so that no other hook is.

        Raises: ModuleNotFoundError.
        """
        if name == "pandas":
            raise ModuleNotFoundError("rmqtx does not load pandas", name=name)
        return None


_ABSENT = _Absent()


def block_pandas() -> None:
    """Make pandas impossible to import in this process, which must run only rmqtx."""
    if _ABSENT not in sys.meta_path:
        sys.meta_path.insert(0, _ABSENT)


def allow_pandas() -> None:
    """Make pandas possible to import again: Spark Connect needs it."""
    if _ABSENT in sys.meta_path:
        sys.meta_path.remove(_ABSENT)
