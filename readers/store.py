"""What is here? A store's parts, taken once as a snapshot: files and their lengths, whether a broker uses it.

A store argument is `storePathRootDir`, the parent of `commitlog/`. Opening one reads directory entries and tries the
lock, nothing else; nothing is ever written. Cursors are read before the lengths are taken (`cursors.py`), so that a
decision can be missed only for a half that was still open at that moment.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from readers.errors import NotAStore, UnreadableFile
from readers.findings import Finding, as_text
from readers.sources import Segment, SegmentedLog, list_segments

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DISCARD_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
CHECK_GROUP = "CID_RMQ_SYS_TRANS"
#: Topics where a final waits for its time before it reaches its real topic.
SCHEDULE_TOPIC, TIMER_TOPIC = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
WAITING_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC)

#: Directories and files by which a root is recognised when its commit log is elsewhere or lost.
_STORE_MARKS = ("consumequeue", "batchconsumequeue", "index", "checkpoint", "config")


@dataclass(frozen=True)
class Store:
    """One broker's store as it was at `taken_time_ms`.

    Shape: `commit_log` in offset order; queues are listed when asked for, because there may be tens of thousands.
    """

    root: str
    commit_log: tuple[Segment, ...]
    commit_log_directories: tuple[str, ...]
    aborted: bool
    used_by_process: int | None
    taken_time_ms: int
    findings: tuple[Finding, ...] = field(default=(), repr=False)

    @property
    def in_use(self) -> bool:
        """Whether a running broker holds the store's lock."""
        return self.used_by_process is not None

    @property
    def path(self) -> Path:
        """The root as a path."""
        return Path(self.root)

    def log(self) -> SegmentedLog:
        """The commit log for reading single records; the caller closes it."""
        return SegmentedLog(self.commit_log)

    @property
    def log_begin_offset(self) -> int:
        """Commit-log offset of the first byte that is left."""
        return self.commit_log[0].base_offset if self.commit_log else 0

    @property
    def has_rocksdb_queues(self) -> bool:
        """Whether the consume queues live in RocksDB (storeType=defaultRocksDB, 5.2.0+): queues cannot be followed."""
        return any((self.path / name / "CURRENT").exists() for name in ("consumequeue", "consumequeue_rocksdb"))

    def queue_directory(self, topic: str, queue_id: int, kind: str = "consumequeue") -> Path:
        """Where the files of a queue are."""
        return self.path / kind / topic / str(queue_id)

    def queue_segments(
        self, topic: str, queue_id: int, kind: str = "consumequeue"
    ) -> tuple[tuple[Segment, ...], list[Finding]]:
        """The files of one queue; none if it does not exist."""
        return list_segments([self.queue_directory(topic, queue_id, kind)], self.root)

    def queues(self, kind: str = "consumequeue") -> Iterator[tuple[str, int]]:
        """Every (topic, queue number) that has a directory.

        Order: topic, then number.
        """
        for topic in _names(self.path / kind):
            numbers = [int(name) for name in _names(self.path / kind / topic) if re.fullmatch(r"\d{1,9}", name)]
            for number in sorted(numbers):
                yield topic, number

    @cached_property
    def index_files(self) -> tuple[Segment, ...]:
        """The index files, oldest first; their names are times, so `base_offset` is 0.

        Source: FORMATS 4.1.
        """
        files = []
        for name in _names(self.path / "index", directories=False):
            if re.fullmatch(r"\d{17}", name):
                path = self.path / "index" / name
                try:
                    if path.is_file():
                        files.append(Segment(as_text(path), 0, path.stat().st_size))
                except OSError:  # a broker expires index files while it runs
                    continue
        return tuple(files)


def _names(directory: Path, *, directories: bool = True) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir() == directories)
    except OSError:
        return []


def open_store(root: str | os.PathLike[str], commit_log_directories: tuple[str, ...] = ()) -> Store:
    """A snapshot of the store at `root`.

    `commit_log_directories`: where the commit log is, if not in `commitlog*` below the root (storePathCommitLog; for a
    multi-path commit log several).
    Raises: NotAStore, UnreadableFile.
    """
    path = Path(root)
    _require_directory(path)
    directories = [Path(name) for name in commit_log_directories] or _commit_log_directories(path)
    text = as_text(path)
    if not directories and not any((path / mark).exists() for mark in _STORE_MARKS):
        raise NotAStore(f"{text} is not a store: {_why_not(path)}", file=path)
    segments, findings = list_segments(directories, text)
    return Store(
        root=text,
        commit_log=segments,
        commit_log_directories=tuple(as_text(directory) for directory in directories),
        aborted=(path / "abort").exists(),
        used_by_process=_lock_holder(path / "lock"),
        taken_time_ms=time.time_ns() // 1_000_000,
        findings=tuple(findings),
    )


def _require_directory(path: Path) -> None:
    try:
        with os.scandir(path):
            pass
    except FileNotFoundError as error:
        raise NotAStore(f"{as_text(path)} does not exist", file=path) from error
    except NotADirectoryError as error:
        raise NotAStore(
            f"{as_text(path)} is a file, not a store", file=path, advice="give the directory that holds commitlog/"
        ) from error
    except OSError as error:
        raise UnreadableFile(f"cannot read {as_text(path)}: {error.strerror}", file=path) from error


def _commit_log_directories(root: Path) -> list[Path]:
    return [root / name for name in _names(root) if re.fullmatch(r"commitlog[-_\w]*", name)]


def _why_not(path: Path) -> str:
    names = _names(path) + _names(path, directories=False)
    if not names:
        return "the directory is empty"
    if any(re.fullmatch(r"\d{20}", name) for name in names):
        return f"it holds segment files; give the store's root, {as_text(path.parent)}"
    if any(name.startswith("dledger-") for name in names):
        return "it holds a DLedger log, which this version does not read"
    below = [name for name in names if (path / name / "commitlog").is_dir()]
    if below:
        return f"did you mean {as_text(path / below[0])}?"
    return "no commitlog/, consumequeue/, index/, checkpoint or config/ in it"


def _lock_holder(lock: Path) -> int | None:
    """The process that holds the broker's lock on byte 0, if any; asks without taking it.

    Source: store/DefaultMessageStore.java start (FileChannel.tryLock(0, 1, false)); FORMATS 1.6.
    """
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        question = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, question + bytes(8))
        kind, _, _, _, process = struct.unpack_from("hhqqi", answer)
        return None if kind == fcntl.F_UNLCK else process
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOLCK, errno.ENOSYS):  # no POSIX locks on this file system
            return None
        raise UnreadableFile(f"cannot ask for the lock on {lock}: {error.strerror}", file=lock) from error
    finally:
        os.close(descriptor)
