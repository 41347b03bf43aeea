"""What is here? A store's parts, taken once as a snapshot: files and their lengths, whether a broker uses it.

A store argument is `storePathRootDir`, the parent of `commitlog/`. Opening one reads directory entries and the first
bytes of a local log, and tries the lock, nothing else; nothing is ever written. Cursors are read before the lengths are
taken (`cursors.py`), so that a decision can be missed only for a half that was still open at that moment.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import re
import stat
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from readers.model.errors import NotAStore, UnreadableFile
from readers.model.findings import Finding, as_text
from readers.storage.file_systems import files_of
from readers.storage.opening import open_together
from readers.storage.places import FileSystem, is_uri, joined, normalised, parent_of
from readers.storage.segments import Segment, SegmentedLog, is_dledger, list_segments, with_frames
from readers.store.links import top_links_out

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DISCARD_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
#: The topics of transactions that are kept in RocksDB (5.4.0+, transRocksDBEnable).
ROCKSDB_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
CHECK_GROUP = "CID_RMQ_SYS_TRANS"
#: Topics where a final waits for its time before it reaches its real topic.
SCHEDULE_TOPIC, TIMER_TOPIC = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
WAITING_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC)
#: The topic of records that a bundle has in the place of those that it left out; no queue knows them.
LEFT_OUT_TOPIC = "RMQTX_LEFT_OUT"

#: Files whose names begin so are ours, and there only while rmqtx changes a store; no part of it.
OWN_PREFIX = ".rmqtx-"
#: What rmqtx writes into `abort`, where a broker from 5.0 on writes its process: no broker was killed with that one.
OWN_ABORT = b"0"
#: In the root of a store whose files rmqtx is changing, or was when it was stopped; `repairs.changes.in_progress_mark`
#: keeps it.
BEGUN_MARK = f"{OWN_PREFIX}begun"

#: Lock files that this process itself holds, by device and inode; `repairs.changes.store_lock` keeps it. They are never
#: asked about: the answer would be ourselves, and closing the file again would give up a lock of the older kind.
OWN_LOCKS: set[tuple[int, int]] = set()

#: Queues whose files are opened together.
_PREPARED_QUEUES = 32
#: Directories in which a store is looked for when the one given is none.
_LOOKED_BELOW_MAX = 64
#: Directories and files by which a root is recognised when its commit log is elsewhere or lost.
_STORE_MARKS = ("consumequeue", "batchconsumequeue", "index", "checkpoint", "config", "transaction", "rocksdbstore")


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
    def was_killed(self) -> bool:
        """Whether its broker neither runs nor stopped cleanly; a store that only rmqtx marked so was not killed."""
        if not self.aborted or self.in_use:
            return False
        try:
            is_ours = self.size_bytes("abort") == len(OWN_ABORT) and (
                self.files.content(self.place("abort"), len(OWN_ABORT)) == OWN_ABORT
            )
        except (OSError, UnreadableFile):
            return True
        return not is_ours

    @property
    def is_remote(self) -> bool:
        """Whether it is read from a file system by a URI: a copy, on which no lock says whether a broker uses it."""
        return is_uri(self.root)

    @property
    def files(self) -> FileSystem:
        """The file system that it lies on, as of this snapshot."""
        return files_of(self.root, self.taken_time_ms)

    def place(self, *names: str) -> str:
        """Where something below the root is."""
        return joined(self.root, *names)

    def has(self, *names: str) -> bool:
        """Whether something is there; false where it may not be looked at."""
        try:
            return self.files.entry(self.place(*names)) is not None
        except OSError:
            return False

    def size_bytes(self, *names: str) -> int | None:
        """Length of a file below the root; None where there is none, or it may not be looked at."""
        try:
            entry = self.files.entry(self.place(*names))
        except OSError:
            return None
        return None if entry is None else entry.size_bytes

    def modified_ns(self, *names: str) -> int | None:
        """When a file below the root was last changed, or the newest one in a directory; None where that is not known,
        as of objects in a remote store, whose time is that of their copying.
        """
        place = Path(self.place(*names))
        if self.is_remote:
            return None
        try:
            files = [one for one in place.iterdir() if one.is_file()] if place.is_dir() else [place]
            return max((file.stat().st_mtime_ns for file in files), default=None)
        except OSError:
            return None

    def log(self) -> SegmentedLog:
        """The commit log for reading single records; the caller closes it."""
        return SegmentedLog(self.commit_log)

    @property
    def log_begin_offset(self) -> int:
        """Commit-log offset of the first byte that is left."""
        return self.commit_log[0].base_offset if self.commit_log else 0

    @property
    def is_dledger(self) -> bool:
        """Whether the commit log, or its later part, consists of DLedger entries (4.5.0+, enableDLegerCommitLog)."""
        return any(map(is_dledger, self.commit_log_directories)) or any(one.frame_bytes for one in self.commit_log)

    @property
    def has_rocksdb_queues(self) -> bool:
        """Whether the consume queues live in RocksDB (storeType=defaultRocksDB, 5.2.0+): queues cannot be followed."""
        return any(self.has(name, "CURRENT") for name in ("consumequeue", "consumequeue_rocksdb"))

    def queue_directory(self, topic: str, queue_id: int, kind: str = "consumequeue") -> str:
        """Where the files of a queue are."""
        return self.place(kind, topic, str(queue_id))

    def queue_segments(
        self, topic: str, queue_id: int, kind: str = "consumequeue"
    ) -> tuple[tuple[Segment, ...], list[Finding]]:
        """The files of one queue; none if it does not exist."""
        return list_segments([self.queue_directory(topic, queue_id, kind)], self.root, lambda _: self.files)

    def queues(self, kind: str = "consumequeue") -> Iterator[tuple[str, int]]:
        """Every (topic, queue number) that has a directory.

        Order: topic, then number.
        """
        for topic in self.topics(kind):
            for number in self.queue_numbers(topic, kind):
                yield topic, number

    def topics(self, kind: str = "consumequeue") -> list[str]:
        """Every topic that has a directory of queues.

        Order: name.
        """
        files = self.files
        try:
            files.list_whole(self.place(kind))
        except OSError:  # as with a directory that cannot be listed: what cannot be seen has no queues
            return []
        return _names(files, self.place(kind))

    def queue_numbers(self, topic: str, kind: str = "consumequeue") -> list[int]:
        """The numbers of a topic's queues that have a directory.

        Order: ascending.
        """
        names = _names(self.files, self.place(kind, topic))
        return sorted(int(name) for name in names if re.fullmatch(r"\d{1,9}", name))

    def prepared_queues(
        self, queues: Iterable[tuple[str, int]], kind: str = "consumequeue"
    ) -> Iterator[tuple[str, int]]:
        """The same queues, which will be read one after the other: where opening a file is a request, some together."""
        if not self.is_remote:
            yield from queues
            return
        rest = iter(queues)
        while portion := list(itertools.islice(rest, _PREPARED_QUEUES)):
            found = (self.queue_segments(topic, queue_id, kind)[0] for topic, queue_id in portion)
            open_together((one[-1].file, one[-1].size_bytes, one[-1].modified_ns) for one in found if one)
            yield from portion

    @cached_property
    def index_files(self) -> tuple[Segment, ...]:
        """The index files, oldest first; their names are times, so `base_offset` is 0.

        Source: docs/formats/index.md#file.
        """
        try:
            entries = self.files.entries(self.place("index"))
        except OSError:
            return ()
        return tuple(
            Segment(as_text(entry.path), 0, entry.size_bytes, entry.modified_ns)
            for entry in entries
            if entry.is_file and re.fullmatch(r"\d{17}", entry.name)
        )


def _names(files: FileSystem, directory: str, *, directories: bool = True) -> list[str]:
    try:
        return [entry.name for entry in files.entries(directory) if entry.is_directory == directories]
    except OSError:
        return []


def open_store(root: str | os.PathLike[str], commit_log_directories: tuple[str, ...] = ()) -> Store:
    """A snapshot of the store at `root`: a local path, or a URI of what `pyarrow.fs` opens.

    `commit_log_directories`: where the commit log is, if not in `commitlog*` below the root (storePathCommitLog; for a
    multi-path commit log several).
    Raises: NotAStore, UnreadableFile; BadRequest for a URI with credentials in it.
    """
    place = normalised(root)
    taken_time_ms = time.time_ns() // 1_000_000
    files = files_of(place, taken_time_ms)
    names = _require_directory(files, place)
    directories = [normalised(name) for name in commit_log_directories]
    directories = directories or log_directories(files, place, names)
    is_member = "data" in names and is_dledger(joined(place, "data"))  # DLedger keeps a checkpoint of its own there
    is_store = any(files.entry(joined(place, mark)) is not None for mark in _STORE_MARKS) and not is_member
    if not directories and not is_store:
        raise NotAStore(f"{place} is not a store: {_why_not(files, place)}", file=place)
    segments, findings = list_segments(directories, place, lambda directory: files_of(directory, taken_time_ms))
    for directory in directories:
        if not is_dledger(directory) and (commit_log_directories or not is_uri(directory)):
            segments = with_frames(segments, directory)
    if not is_uri(place):
        findings += [Finding(place, "link-out", as_text(link), actual=as_text(os.path.realpath(link)))
                     for link in top_links_out(Path(place))]
    mark = joined(place, BEGUN_MARK)
    if files.entry(mark) is not None:
        findings.append(Finding(place, "half-changed", mark))
    return Store(
        root=place,
        commit_log=segments,
        commit_log_directories=tuple(directories),
        aborted=files.entry(joined(place, "abort")) is not None,
        used_by_process=None if is_uri(place) else lock_holder(joined(place, "lock")),
        taken_time_ms=taken_time_ms,
        findings=tuple(findings),
    )


def log_directories(files: FileSystem, place: str, names: Iterable[str]) -> list[str]:
    """Where the commit log of a store at a place is, by the names of the directories there."""
    plain = [joined(place, name) for name in names if re.fullmatch(r"commitlog[-_\w]*", name)]
    framed = [joined(place, name, "data") for name in names if re.fullmatch(r"dledger-.+", name)]
    return [*plain, *(directory for directory in framed if _is_directory(files, directory))]


def _is_directory(files: FileSystem, place: str) -> bool:
    try:
        entry = files.entry(place)
    except OSError:
        return False
    return entry is not None and entry.is_directory


def _require_directory(files: FileSystem, place: str) -> list[str]:
    """The names of the directories in a place."""
    try:
        return [entry.name for entry in files.entries(place) if entry.is_directory]
    except FileNotFoundError as error:
        reason = "" if error.strerror == os.strerror(errno.ENOENT) else f": {error.strerror}"
        raise NotAStore(f"{place} does not exist{reason}", file=place) from error
    except NotADirectoryError as error:
        raise NotAStore(
            f"{place} is a file, not a store", file=place, advice="give the directory that holds commitlog/"
        ) from error
    except OSError as error:
        raise UnreadableFile(f"cannot read {place}: {error.strerror}", file=place) from error


def _why_not(files: FileSystem, place: str) -> str:
    names = _names(files, place) + _names(files, place, directories=False)
    if not names:
        return "the directory is empty"
    if "data" in names and is_dledger(joined(place, "data")):
        return f"it is a DLedger member's part of one; give the store's root, {parent_of(place)}"
    if any(re.fullmatch(r"\d{20}", name) for name in names):
        root = parent_of(parent_of(place)) if is_dledger(place) else parent_of(place)
        return f"it holds segment files; give the store's root, {root}"
    for name in _names(files, place)[:_LOOKED_BELOW_MAX]:
        if "commitlog" in _names(files, joined(place, name)):
            return f"did you mean {joined(place, name)}?"
    return "no commitlog/, consumequeue/, index/, checkpoint, config/, transaction/ or rocksdbstore/ in it"


def lock_holder(lock: str) -> int | None:
    """The process that holds the broker's lock on byte 0, if any; asks without taking it.

    Shape: -1 where the lock belongs to an open file, not to a process: another rmqtx changes the store.
    Source: store/DefaultMessageStore.java start (FileChannel.tryLock(0, 1, false)); docs/formats/store.md#lock.
    """
    try:
        status = Path(lock).stat()
        if (status.st_dev, status.st_ino) in OWN_LOCKS:
            return None
        if not stat.S_ISREG(status.st_mode):  # a pipe, say: no broker's, and opening it would wait for its writer
            return None
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
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
