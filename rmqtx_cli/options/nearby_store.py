"""The store of a command that is given none, where none is configured: in this directory, or of this machine."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

_LOG = "commitlog"
#: A broker, and a proxy that contains one (5.0 and later), each with its options for the broker's configuration.
_PROGRAMS = {
    b"org.apache.rocketmq.broker.BrokerStartup": (b"-c", b"--configFile"),
    b"org.apache.rocketmq.proxy.ProxyStartup": (b"-bc", b"--brokerConfigPath"),
}
_ROOT_KEY = "storePathRootDir"
_HOME_OPTION = b"-Duser.home="
_STORE_OF_ROOT = Path("/root/store")
_PROC = Path("/proc")


class Nearby(NamedTuple):
    """A store that was found. `where`: words for the place at which it was found, after "found"."""

    place: str
    where: str


def nearby_store() -> Nearby | None:
    """Return a store: this directory, the one above, that of a running broker, ~/store or /root/store; else None.

    Order: as listed. A broker without a configuration keeps its store in the home directory of its user. Only where
    stderr is a terminal: a job whose argument was lost must fail, not answer for another store.
    """
    if not is_typed():
        return None
    return next((Nearby(str(root), where) for root, where in _candidates() if _is_store(root)), None)


def is_typed() -> bool:
    """Whether a person types the command: stderr is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def _candidates() -> Iterator[tuple[Path, str]]:
    try:
        here = Path.cwd()
    except OSError:  # the directory was deleted
        return
    yield here, "in this directory"
    yield here.parent, "in the directory above"
    yield from _of_running_brokers()
    with suppress(RuntimeError):  # a user without a home directory
        yield Path.home() / "store", "in the home directory"
    yield _STORE_OF_ROOT, "in the home directory of root"


def _is_store(root: Path) -> bool:
    try:
        return any(one.name.isdigit() for one in (root / _LOG).iterdir())
    except OSError:
        return False


def _of_running_brokers() -> Iterator[tuple[Path, str]]:
    """Yield the stores of running brokers, as far as this user can read their configurations."""
    for command_line in sorted(_PROC.glob("[0-9]*/cmdline")):
        try:
            yield from _of_process(command_line.parent, command_line.read_bytes().split(b"\0"))
        except (OSError, KeyError):  # it has ended, or belongs to another user, or to a user without a name
            continue


def _of_process(process: Path, words: Sequence[bytes]) -> Iterator[tuple[Path, str]]:
    """Yield the store of a broker's process: as its configuration file names it, else in its user's home directory.

    A process in a container has its files below /proc/PID/root. Without the right to read that of another user's
    process, its files are taken as files of this system, and only whole paths are known.
    """
    options = next((given for program, given in _PROGRAMS.items() if program in words), None)
    if options is None:
        return
    top, current = Path("/"), process / "cwd"
    with suppress(PermissionError):
        if (process / "root").samefile("/"):
            current = current.readlink()
        else:
            top = process / "root"
    file = next((os.fsdecode(value) for name, value in pairwise(words) if name in options), None)
    where, root = f"in the home directory of the user of process {process.name}", None
    if file is not None:
        root = _root_of(_below(top, current, file).read_text("utf-8", errors="replace"))
        where = f"in {file} of process {process.name}"
    if root is None:
        home = next((one.removeprefix(_HOME_OPTION) for one in words if one.startswith(_HOME_OPTION)), None)
        root = f"{pwd.getpwuid(process.stat().st_uid).pw_dir if home is None else os.fsdecode(home)}/store"
    yield _below(top, current, root), where


def _below(top: Path, current: Path, path: str) -> Path:
    return top / path.lstrip("/") if path.startswith("/") else current / path


def _root_of(conf: str) -> str | None:
    pairs = [line.partition("=") for line in conf.splitlines()]
    return next((value.strip() for name, _, value in reversed(pairs) if name.strip() == _ROOT_KEY), None)
