"""Which inner loops a scan runs on: the reference path, or the accelerator where it is installed and pays.

The choice is per process and made before a scan begins; both give the same rows.
"""

from __future__ import annotations

import importlib.util
from types import ModuleType

#: Bytes of log per process from which the accelerator's start (about a second) is repaid.
ACCELERATED_BYTES_MIN = 1 << 30

_accelerated: ModuleType | None = None


def is_accelerator_installed() -> bool:
    """Whether the extra `fast` is there."""
    return importlib.util.find_spec("numba") is not None


def use_accelerator(wanted: bool) -> bool:
    """Choose for this process; gives whether the accelerator is now in use."""
    global _accelerated
    if wanted and is_accelerator_installed():
        from readers.log import accelerated

        _accelerated = accelerated
    else:
        _accelerated = None
    return _accelerated is not None


def accelerated() -> ModuleType | None:
    """The accelerated loops if this process uses them."""
    return _accelerated
