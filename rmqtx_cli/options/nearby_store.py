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
#: A process with several brokers (5.0 and later): its own options name their configurations, or a file that does.
_CONTAINER = b"org.apache.rocketmq.container.BrokerContainerStartup"
_BROKERS_OPTIONS, _CONTAINER_OPTIONS = (b"-b", b"--brokerConfigFiles"), (b"-c", b"--configFile")
_BROKERS_KEY = "brokerConfigPaths"
_ROOT_KEY, _LOG_KEY = "storePathRootDir", "storePathCommitLog"
_HOME_OPTION = b"-Duser.home="
_STORE_OF_ROOT = Path("/root/store")
_PROC = Path("/proc")


class Nearby(NamedTuple):
    """A store that was found. `where`: words for the place at which it was found, after "found".

    `commit_logs`: the directories of its commit log, if these are not below `place`.
    """

    place: str
    where: str
    commit_logs: tuple[str, ...] = ()


class _Candidate(NamedTuple):
    root: Path
    where: str
    commit_logs: tuple[Path, ...] = ()

    @property
    def is_store(self) -> bool:
        return any(map(_has_log, self.commit_logs or (self.root / _LOG,)))


def nearby_store() -> Nearby | None:
    """Return a store: this directory, the one above, that of a running broker, ~/store or /root/store; else None.

    Order: as listed. A broker without a configuration keeps its store in the home directory of its user. Only where
    stderr is a terminal: a job whose argument was lost must fail, not answer for another store.
    """
    if not is_typed():
        return None
    found = next((one for one in _candidates() if one.is_store), None)
    if found is None:
        return None
    is_usual = found.commit_logs == (found.root / _LOG,)
    return Nearby(str(found.root), found.where, () if is_usual else tuple(map(str, found.commit_logs)))


def is_typed() -> bool:
    """Whether a person types the command: stderr is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def _candidates() -> Iterator[_Candidate]:
    try:
        here = Path.cwd()
    except OSError:  # the directory was deleted
        return
    yield _Candidate(here, "in this directory")
    yield _Candidate(here.parent, "in the directory above")
    yield from _of_running_brokers()
    with suppress(RuntimeError):  # a user without a home directory
        yield _Candidate(Path.home() / "store", "in the home directory")
    yield _Candidate(_STORE_OF_ROOT, "in the home directory of root")


def _has_log(directory: Path) -> bool:
    try:
        return any(one.name.isdigit() for one in directory.iterdir())
    except OSError:
        return False


def _of_running_brokers() -> Iterator[_Candidate]:
    """Yield the stores of running brokers, as far as this user can read their configurations."""
    for command_line in sorted(_PROC.glob("[0-9]*/cmdline")):
        try:
            yield from _of_process(command_line.parent, command_line.read_bytes().split(b"\0"))
        except (OSError, KeyError):  # it has ended, or belongs to another user, or to a user without a name
            continue


def _of_process(process: Path, words: Sequence[bytes]) -> Iterator[_Candidate]:
    """Yield the stores of a process: as configuration files of brokers name them, else in its user's home directory.

    A process in a container has its files below /proc/PID/root. Without the right to read that of another user's
    process, its files are taken as files of this system, and only whole paths are known.
    Source: container/BrokerContainerStartup.java parseBrokerConfigPath.
    """
    options = next((given for program, given in _PROGRAMS.items() if program in words), None)
    if options is None and _CONTAINER not in words:
        return
    top, current = Path("/"), process / "cwd"
    with suppress(PermissionError):
        if (process / "root").samefile("/"):
            current = current.readlink()
        else:
            top = process / "root"
    files = _brokers_of_container(words, top, current) if options is None else [_value(words, options)]
    for file in files:
        where = f"in the home directory of the user of process {process.name}"
        text = ""
        if file is not None:
            try:
                text = _below(top, current, file).read_text("utf-8", errors="replace")
            except OSError:
                continue
            where = f"in {file} of process {process.name}"
        root = _named(text, _ROOT_KEY) or f"{_home_of(process, words)}/store"
        logs = (_named(text, _LOG_KEY) or "").split(",")  # 4.9.2 and later: several directories
        yield _Candidate(
            _below(top, current, root), where,
            tuple(_below(top, current, one.strip()) for one in logs if one.strip()),
        )


def _home_of(process: Path, words: Sequence[bytes]) -> str:
    """Return the home directory of a process. Raises: KeyError for a user without a name."""
    home = next((one.removeprefix(_HOME_OPTION) for one in words if one.startswith(_HOME_OPTION)), None)
    return pwd.getpwuid(process.stat().st_uid).pw_dir if home is None else os.fsdecode(home)


def _brokers_of_container(words: Sequence[bytes], top: Path, current: Path) -> list[str | None]:
    """Return the configuration files of the brokers that a process with several brokers begins with.

    Brokers that an operator added later are in no file. Raises: OSError.
    """
    brokers = _value(words, _BROKERS_OPTIONS)
    file = _value(words, _CONTAINER_OPTIONS)
    if brokers is None and file is not None:
        brokers = _named(_below(top, current, file).read_text("utf-8", errors="replace"), _BROKERS_KEY)
    return [one for one in (brokers or "").split(":") if one]


def _value(words: Sequence[bytes], options: Sequence[bytes]) -> str | None:
    return next((os.fsdecode(value) for name, value in pairwise(words) if name in options), None)


def _below(top: Path, current: Path, path: str) -> Path:
    return top / path.lstrip("/") if path.startswith("/") else current / path


def _named(conf: str, key: str) -> str | None:
    """Return the value of a key; None without one, or for an empty value."""
    pairs = [line.partition("=") for line in conf.splitlines()]
    return next((value.strip() for name, _, value in reversed(pairs) if name.strip() == key), None) or None
