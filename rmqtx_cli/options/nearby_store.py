"""The store of a command that is given none, where none is configured: in this directory, or of this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

_LOG = "commitlog"
_BROKER_CLASS = b"org.apache.rocketmq.broker.BrokerStartup"
_ROOT_KEY = "storePathRootDir"


def nearby_store() -> str | None:
    """Return the root of a store: this directory, the one above, that of a running broker, or ~/store; else None.

    Order: as listed. ~/store is where a broker without a configuration keeps its store. Only where stderr is a
    terminal: a job whose argument was lost must fail, not answer for another store.
    """
    if not is_typed():
        return None
    return next((str(root) for root in _candidates() if _is_store(root)), None)


def is_typed() -> bool:
    """Whether a person types the command: stderr is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def _candidates() -> Iterator[Path]:
    try:
        here = Path.cwd()
    except OSError:  # the directory was deleted
        return
    yield here
    yield here.parent
    yield from _of_running_brokers()
    try:
        yield Path.home() / "store"
    except RuntimeError:  # a user without a home directory
        return


def _is_store(root: Path) -> bool:
    try:
        return any(one.name.isdigit() for one in (root / _LOG).iterdir())
    except OSError:
        return False


def _of_running_brokers() -> Iterator[Path]:
    """Yield the roots that configuration files of running brokers name, as far as this user can read them."""
    for process in sorted(Path("/proc").glob("[0-9]*/cmdline")):
        try:
            words = process.read_bytes().split(b"\0")
            if _BROKER_CLASS in words and b"-c" in words[:-1]:
                conf = process.parent / "cwd" / os.fsdecode(words[words.index(b"-c") + 1])
                yield from _roots(conf.read_text("utf-8", errors="replace"))
        except OSError:  # it has ended, or belongs to another user
            continue


def _roots(conf: str) -> Iterator[Path]:
    for line in conf.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == _ROOT_KEY:
            yield Path(value.strip())
