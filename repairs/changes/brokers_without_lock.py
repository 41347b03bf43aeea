"""Whether a broker before 4.0 runs on a store: it takes no lock, but it maps the files of its log into memory.

A broker that stopped cleanly has removed `abort`, so only a store with that file needs this test. The test covers the
processes of this machine, and can read only those of its own user: a Java process of another user is reported.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rmqtx.readers.model.errors import StoreInUse, UnsafeStore
from rmqtx.readers.store.store import Store

_PROCESSES = Path("/proc")
_Identity = tuple[int, int, int]


def require_not_mapped(store: Store, processes: Path = _PROCESSES) -> None:
    """Refuse a store whose log a process has mapped, or a Java process of another user may have mapped.

    `processes`: the directory where the kernel lists processes.
    Raises: StoreInUse; UnsafeStore where this is unknown.
    """
    if not store.aborted:
        return
    if not processes.is_dir():
        raise UnsafeStore(
            f"cannot find out on this system whether the broker of {store.root} runs: it is older than 4.0, which "
            "takes no lock, and there is a file abort",
            advice="copy the store, and act on the copy on a machine with /proc",
        )
    wanted = set(_identities(store))
    hidden = []
    for directory in processes.iterdir():
        if not directory.name.isdecimal() or int(directory.name) == os.getpid():
            continue
        try:
            text = (directory / "maps").read_text(errors="replace")
        except PermissionError:
            if command_of(directory) == "java":
                hidden.append(directory.name)
            continue
        except OSError:  # it has ended meanwhile
            continue
        if wanted & set(_mapped(text)):
            raise StoreInUse(
                f"{store.root} is in use by process {directory.name}",
                advice="stop its broker first, or act live: -n HOST:PORT",
            )
    if hidden:
        raise UnsafeStore(
            f"cannot find out whether process {hidden[0]} (java of another user) runs on {store.root}: its broker is "
            "older than 4.0, which takes no lock, and there is a file abort",
            advice="run rmqtx as the broker's user, or as root",
        )


def _identities(store: Store) -> Iterator[_Identity]:
    for segment in store.commit_log:
        status = Path(segment.file).stat()
        yield os.major(status.st_dev), os.minor(status.st_dev), status.st_ino


def _mapped(text: str) -> Iterator[_Identity]:
    """The files of a process's memory map: address, permissions, offset, device, inode, path."""
    for line in text.splitlines():
        parts = line.split(maxsplit=5)
        if len(parts) < 6 or parts[4] == "0":
            continue
        major, _, minor = parts[3].partition(":")
        yield int(major, 16), int(minor, 16), int(parts[4])


def command_of(directory: Path) -> str:
    """Return the name of a process's program, by its directory in /proc; empty if it is unknown."""
    try:
        return (directory / "comm").read_text(errors="replace").strip()
    except OSError:
        return ""
