"""Keep pyarrow from loading pandas and dateutil at its first conversions: 0.25 s for types that are not used."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec

_NAMES = ("pandas", "dateutil")


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


def block_pandas() -> None:
    """Make pandas and dateutil impossible to import in this process, which must run only rmqtx."""
    if _ABSENT not in sys.meta_path:
        sys.meta_path.insert(0, _ABSENT)


def allow_pandas() -> None:
    """Make them possible to import again: Spark Connect needs pandas."""
    if _ABSENT in sys.meta_path:
        sys.meta_path.remove(_ABSENT)
