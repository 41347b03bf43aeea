"""The accelerator in tasks: on a cluster its compiled loops are kept beside the packages that were sent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import rmqtx
from rmqtx.readers.log import kernels

_CACHE_HOME = "XDG_CACHE_HOME"


def use_accelerator(wanted: bool) -> bool:
    """Choose for this worker; return whether the accelerator is in use."""
    with _cache_beside_packages():
        return kernels.use_accelerator(wanted)


@contextmanager
def _cache_beside_packages() -> Iterator[None]:
    """Let numba keep what it compiles beside an archive that rmqtx is imported from.

    For modules in archives numba uses a folder in the user's home, which an executor's user may not have, and where
    the folders of all applications would stay.
    """
    archive = next((one for one in Path(rmqtx.__file__).parents if one.suffix == ".zip"), None)
    if archive is None:
        yield
        return
    before = os.environ.get(_CACHE_HOME)
    os.environ[_CACHE_HOME] = str(archive.absolute().with_suffix(".cache"))
    try:
        yield
    finally:
        if before is None:
            del os.environ[_CACHE_HOME]
        else:
            os.environ[_CACHE_HOME] = before
