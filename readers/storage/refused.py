"""What the operating system refuses to read: never reported as missing, and nothing is predicted from it."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection

from rmqtx.readers.model.errors import UnreadableFile
from rmqtx.readers.model.findings import as_text
from rmqtx.readers.storage.places import is_uri

ADVICE = "run as the broker's user"
_READ_AND_SEARCH = os.R_OK | os.X_OK


def unreadable(place: str | os.PathLike[str], error: OSError, verb: str = "read") -> UnreadableFile:
    """Return the error for a file or directory that could not be read."""
    name = as_text(place)
    if isinstance(error, PermissionError):
        return _denied(name)
    return UnreadableFile(f"cannot {verb} {name}: {error.strerror}", file=name)


def _denied(name: str) -> UnreadableFile:
    advice = None if is_uri(name) else ADVICE
    return UnreadableFile(f"cannot read {name}: permission denied", file=name, advice=advice)


def require_readable(place: str, depth: int = 0, leaves_out: Collection[str] = ()) -> None:
    """Require that this user may read a local file, or a directory and what is below it, down to `depth` levels.

    `leaves_out`: names directly in the directory that are not tested.
    A place that does not exist is skipped. Links are followed, and a special file is not tested.
    Raises: UnreadableFile.
    """
    try:
        mode = os.stat(place).st_mode  # noqa: PTH116  # a command asks for dozens of files
    except PermissionError as error:
        raise _denied(as_text(place)) from error
    except (OSError, ValueError):  # ValueError: a name with a zero byte
        return
    is_directory = stat.S_ISDIR(mode)
    if not is_directory and not stat.S_ISREG(mode):
        return
    if not os.access(place, _READ_AND_SEARCH if is_directory else os.R_OK, effective_ids=True):
        raise _denied(as_text(place))
    if is_directory and depth:
        for name in _listed(place):
            if name not in leaves_out:
                require_readable(f"{place}/{name}", depth - 1)


def _listed(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208  # as above
    except OSError:  # a running broker deletes expired queues
        return []
