"""A snapshot of a store: its files and their lengths, and whether a broker uses it.

A store argument is `storePathRootDir`, the parent of `commitlog/`. Opening a store reads directory entries and the
first bytes of a local log, tests the lock, and writes nothing. Cursors are read before the lengths are taken
(`cursors.py`), so a decision can be missed only for a half message that was open at that moment.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import re
import stat
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from rmqtx.readers.model import clock
from rmqtx.readers.model.errors import NotAStore, UnreadableFile
from rmqtx.readers.model.findings import Finding, as_text
from rmqtx.readers.storage.file_systems import ListedOnce, files_of
from rmqtx.readers.storage.places import (
    DirectoryEntry,
    FileSystem,
    is_uri,
    joined,
    normalised,
    require_readable,
    unreadable,
)
from rmqtx.readers.storage.segments import (
    Segment,
    SegmentedLog,
    is_dledger,
    is_without_data,
    list_segments,
    misnamed_segments,
    open_together,
    skipped_files,
    with_frames,
)
from rmqtx.readers.store.paths import PATHS
from rmqtx.readers.store.store_roots import (
    file_is_no_store,
    is_root_without_log,
    log_directories,
    not_a_store,
    top_links_out,
)

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DISCARD_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
#: Where producers write message traces, unless they are given another topic; a broker with traceTopicEnable makes it.
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
#: The topics of transactions that are kept in RocksDB (5.4.0+, transRocksDBEnable).
ROCKSDB_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
#: Where half messages are, where op messages are, and both: the topics that the check reads.
HALF_TOPICS, OP_TOPICS = (HALF_TOPIC, ROCKSDB_HALF_TOPIC), (OP_TOPIC, ROCKSDB_OP_TOPIC)
CHECK_TOPICS = (HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC)
#: Those of transactions in RocksDB: their check reads its table, and none of their queues.
TABLE_TOPICS = (ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC)
#: The topics that the check reads and writes.
TRANSACTION_TOPICS = (HALF_TOPIC, OP_TOPIC, DISCARD_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC)
CHECK_GROUP = "CID_RMQ_SYS_TRANS"
#: Directories of the database of consume queues; the second one with useSeparateStorePathForRocksdbCQ (5.5.0).
QUEUE_DATABASES = ("consumequeue", "consumequeue_rocksdb")
#: Files in the directory of each RocksDB database; one of them may be lost.
_IN_EACH_DATABASE = ("CURRENT", "IDENTITY", "LOCK")
#: Directories in config/ that a broker writes with storeType=defaultRocksDB, and without this setting does not.
_SETTINGS_IN_ROCKSDB = ("consumerOffsets", "topics", "subscriptionGroups", "metadata")
#: Topics in which a COMMIT record waits for its delivery time before it reaches its real topic.
SCHEDULE_TOPIC, TIMER_TOPIC = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
WAITING_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC)
#: The topic of the records that a bundle has in place of records that it left out; no queue has slots for them.
LEFT_OUT_TOPIC = "RMQTX_LEFT_OUT"

#: Names of rmqtx's own files begin with this; they exist only while rmqtx changes a store and are not part of it.
OWN_PREFIX = ".rmqtx-"
#: What rmqtx writes to `abort`, in which a broker from 5.0 on writes its process number: no broker has this number.
OWN_ABORT = b"0"
#: A file in the root of a store that rmqtx is changing, or was changing when it was stopped;
#: `rmqtx.repairs.changes.in_progress_mark` writes it.
BEGUN_MARK = f"{OWN_PREFIX}begun"

#: Lock files that this process holds, by device and inode; `rmqtx.repairs.changes.store_lock` keeps the set. They are
#: not tested: the holder would be this process, and closing the file again would release a lock of the older kind.
OWN_LOCKS: set[tuple[int, int]] = set()

#: Queues whose files are opened together.
_QUEUES_OPENED_MAX = 32


_OPENINGS = itertools.count()
#: Name of a queue's directory.
QUEUE_NUMBER = re.compile(r"\d{1,9}")
#: Directories of queues: of these, only the topics of the check are tested to the last file.
_QUEUES = ("consumequeue", "batchconsumequeue", "consumequeue_ext")
#: No verdict depends on these.
_NOT_READ = {"dledger-SELF", "compaction", "kvStore", "tiered_index_file"}
_NAMES = sorted({path.strip().split("/")[0] for one in PATHS for path in one.path.split(",")} - _NOT_READ)
_PRIVATE = ("users", "acls")  # of config/: databases with passwords
#: How much of a log is searched for records that replace those that were left out of a bundle.
_SEARCHED_BYTES = 4 << 20
#: Length and magic of a blank (docs/formats/record.md#blank).
_BLANK_HEAD_BYTES = 8
_OPENED_AT_ONCE = 16


@dataclass(frozen=True)
class Store:
    """One broker's store as it was at `taken_time_ms`.

    Shape: `commit_log` in offset order; queues are listed on demand, because there may be tens of thousands.
    """

    root: str
    commit_log: tuple[Segment, ...]
    commit_log_directories: tuple[str, ...]
    aborted: bool
    used_by_process: int | None
    taken_time_ms: int
    findings: tuple[Finding, ...] = field(default=(), repr=False)
    #: The topic of message traces.
    trace_topic: str = field(default=TRACE_TOPIC, compare=False, repr=False)
    #: Differs between two openings with the same root and time; the same in the processes that read its splits.
    opening: str = field(default_factory=lambda: f"{os.getpid()}/{next(_OPENINGS)}", compare=False, repr=False)

    @property
    def in_use(self) -> bool:
        """Whether a running broker, or an rmqtx that changes the store, holds the store's lock."""
        return self.used_by_process is not None

    @property
    def broker_runs(self) -> bool:
        """Whether a running broker holds the store's lock. rmqtx locks the open file, not the process."""
        return self.in_use and self.used_by_process != -1

    @property
    def was_killed(self) -> bool:
        """Whether the broker was killed: it neither runs nor stopped cleanly, and `abort` was not written by rmqtx."""
        return self.aborted and not self.in_use and not self.has_own_abort

    @property
    def has_own_abort(self) -> bool:
        """Whether rmqtx wrote `abort`: its broker had stopped cleanly."""
        if not self.aborted:
            return False
        try:
            return self.size_bytes("abort") == len(OWN_ABORT) and (
                self.files.content(self.place("abort"), len(OWN_ABORT)) == OWN_ABORT
            )
        except (OSError, UnreadableFile):
            return False

    @property
    def why_unclean(self) -> str:
        """Why files beside the log may be older than the log, for a store that is in use or has `abort`."""
        if self.in_use:
            return "the broker is running"
        return "the broker did not stop cleanly" if self.was_killed else "rmqtx changed this copy and wrote abort"

    @property
    def has_clean_end(self) -> bool:
        """Whether the broker is known to have stopped cleanly.

        Each broker writes a checkpoint and removes `abort` when it stops. Log files alone have neither.
        """
        return not self.aborted and self.has("checkpoint")

    @property
    def is_remote(self) -> bool:
        """Whether the store is read by a URI: a copy, without a lock that would show whether a broker uses it."""
        return is_uri(self.root)

    @cached_property
    def files(self) -> FileSystem:
        """The file system of the store, as of this snapshot: a directory is listed once, unless a broker runs."""
        return files_of(self.root, self.taken_time_ms) if self.is_remote or self.in_use else ListedOnce()

    def place(self, *names: str) -> str:
        """Return the place of a file or directory below the root."""
        return joined(self.root, *names)

    def has(self, *names: str) -> bool:
        """Whether a file or directory exists below the root. Raises: UnreadableFile if access is denied."""
        return self._entry(*names) is not None

    def size_bytes(self, *names: str) -> int | None:
        """Return the length of a file below the root; None if it does not exist.

        Raises: UnreadableFile if access is denied.
        """
        entry = self._entry(*names)
        return None if entry is None else entry.size_bytes

    def _entry(self, *names: str) -> DirectoryEntry | None:
        place = self.place(*names)
        try:
            return self.files.entry(place)
        except PermissionError as error:
            raise unreadable(place, error) from error
        except OSError:
            return None

    def modified_ns(self, *names: str) -> int | None:
        """Return when a file below the root, or the newest file in a directory, was last changed.

        None if unknown, as for objects in a remote store, whose time is the time of their upload.
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
        """Return the commit log for reading single records; the caller closes it."""
        return SegmentedLog(self.commit_log)

    @property
    def log_begin_offset(self) -> int:
        """Commit-log offset of the first byte in a file."""
        return self.commit_log[0].base_offset if self.commit_log else 0

    @property
    def is_dledger(self) -> bool:
        """Whether the commit log, or its later part, consists of DLedger entries (4.5.0+, enableDLegerCommitLog)."""
        return any(map(is_dledger, self.commit_log_directories)) or any(one.frame_bytes for one in self.commit_log)

    @property
    def has_rocksdb_queues(self) -> bool:
        """Whether the consume queues are in RocksDB (storeType=defaultRocksDB, 5.2.0+), not in files."""
        return bool(self.queue_databases) or self.lacks_queue_database

    @cached_property
    def queue_databases(self) -> list[str]:
        """Directories with a database of consume queues, complete or not.

        Only a directory with a file that RocksDB always makes is listed: that of queues in files has an entry for each
        topic of the broker.
        """
        return [
            name for name in QUEUE_DATABASES
            if any(self.has(name, file) for file in _IN_EACH_DATABASE) and self.has_database_files(name)
        ]

    @property
    def lacks_queue_database(self) -> bool:
        """Whether a store with a log and with settings in RocksDB (storeType=defaultRocksDB) has no queues at all: a
        broker with this setting has them in RocksDB too.
        """
        if not self.commit_log or not self.has_rocksdb_settings:
            return False
        return not self.queue_databases and next(self.queues(), None) is None

    @cached_property
    def has_rocksdb_settings(self) -> bool:
        """Whether config/ has a database that a broker writes with storeType=defaultRocksDB."""
        return any(self.has("config", name, "CURRENT") for name in _SETTINGS_IN_ROCKSDB)

    def has_database_files(self, *names: str) -> bool:
        """Whether a directory has files of a RocksDB database: without CURRENT a broker begins an empty one in it."""
        if self.has(*names, "CURRENT"):
            return True
        entries = self.files.entries(self.place(*names)) if self.has(*names) else []
        return any(entry.name.startswith("MANIFEST-") or entry.name.endswith(".sst") for entry in entries)

    def queue_directory(self, topic: str, queue_id: int, kind: str = "consumequeue") -> str:
        """Return the directory of a queue's files."""
        return self.place(kind, topic, str(queue_id))

    def queue_segments(
        self, topic: str, queue_id: int, kind: str = "consumequeue"
    ) -> tuple[tuple[Segment, ...], list[Finding]]:
        """Return the files of one queue; none if the queue does not exist."""
        return list_segments([self.queue_directory(topic, queue_id, kind)], self.root, lambda _: self.files)

    def queues(self, kind: str = "consumequeue") -> Iterator[tuple[str, int]]:
        """Every (topic, queue number) that has a directory. Order: topic, then number."""
        for topic in self.topics(kind):
            for number in self.queue_numbers(topic, kind):
                yield topic, number

    def topics(self, kind: str = "consumequeue") -> list[str]:
        """Every topic that has a directory of queues. Order: name."""
        files = self.files
        try:
            files.list_whole(self.place(kind))
        except PermissionError as error:
            raise unreadable(self.place(kind), error) from error
        except OSError:  # as for a topic's directory that cannot be listed: no queues
            return []
        return _names(files, self.place(kind))

    def queue_numbers(self, topic: str, kind: str = "consumequeue") -> list[int]:
        """The numbers of a topic's queues that have a directory. Order: ascending."""
        names = _names(self.files, self.place(kind, topic))
        return sorted(int(name) for name in names if QUEUE_NUMBER.fullmatch(name))

    def queues_opened_together(
        self, queues: Iterable[tuple[str, int]], kind: str = "consumequeue",
        guessed_ends: Callable[[str, int], int | None] | None = None,
    ) -> Iterator[tuple[str, int]]:
        """Yield the queues, which will be read one after the other; files in a remote store are opened in groups.

        `guessed_ends`: returns about where a queue ends, in bytes from its slot 0; of a queue with a guess the end is
        found by samples. None: its last file is read.
        """
        if not self.is_remote:
            yield from queues
            return
        rest = iter(queues)
        while portion := list(itertools.islice(rest, _QUEUES_OPENED_MAX)):
            files: list[tuple[str, int, int | None]] = []
            guesses: list[int | None] = []
            for topic, queue_id in portion:
                for last in self.queue_segments(topic, queue_id, kind)[0][-1:]:
                    guess = None if guessed_ends is None else guessed_ends(topic, queue_id)
                    files.append((last.file, last.size_bytes, last.modified_ns))
                    guesses.append(None if guess is None else guess - last.base_offset)
            open_together(files, None if guessed_ends is None else guesses)
            yield from portion

    @cached_property
    def is_a_bundle(self) -> bool:
        """As `is_bundle`: the begin of a log does not change, and from object storage it is a large read."""
        for segment in self.commit_log:
            with segment.open() as file:
                begin = file.read(0, _SEARCHED_BYTES)
            if begin[_BLANK_HEAD_BYTES:].strip(b"\0"):
                return LEFT_OUT_TOPIC.encode() in begin
        return False

    @cached_property
    def index_files(self) -> tuple[Segment, ...]:
        """The index files, oldest first; their names are times, so `base_offset` is 0. A directory, a pipe or a link to
        itself in place of one counts as a file without bytes, and cannot be opened.

        Source: docs/formats/index.md#file.
        """
        try:
            entries = self.files.entries(self.place("index"))
        except PermissionError as error:
            raise unreadable(self.place("index"), error) from error
        except OSError:
            return ()
        return tuple(
            Segment(as_text(entry.path), 0, entry.size_bytes, entry.modified_ns)
            for entry in entries
            if re.fullmatch(r"\d{17}", entry.name)
        )


def _names(files: FileSystem, directory: str) -> list[str]:
    try:
        return [entry.name for entry in files.entries(directory) if entry.is_directory]
    except PermissionError as error:
        raise unreadable(directory, error) from error
    except OSError:
        return []


def open_store(root: str | os.PathLike[str], commit_log_directories: tuple[str, ...] = ()) -> Store:
    """Return a snapshot of the store at `root`: a local path, or a URI that `pyarrow.fs` opens.

    `commit_log_directories`: where the commit log is, if not in `commitlog*` below the root (storePathCommitLog; for a
    multi-path commit log several).
    Raises: NotAStore, UnreadableFile; BadRequest for a URI with credentials in it.
    """
    place = normalised(root)
    taken_time_ms = clock.now_ms()
    files = files_of(place, taken_time_ms)
    names = _require_directory(files, place)
    directories = [normalised(name) for name in commit_log_directories]
    directories = directories or log_directories(files, place, names)
    if not directories and not is_root_without_log(files, place, names):
        raise not_a_store(files, place)
    require_access(place, directories)
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
    findings += misnamed_segments(skipped_files(findings), segments, place, files)
    if files.entry(joined(place, "checkpoint")) is None and is_without_data(segments):
        findings.append(Finding(place, "log-empty", directories[0] if directories else joined(place, "commitlog")))
    return Store(
        root=place,
        commit_log=segments,
        commit_log_directories=tuple(directories),
        aborted=(abort := files.entry(joined(place, "abort"))) is not None and not abort.is_link,
        used_by_process=None if is_uri(place) else lock_holder(joined(place, "lock")),
        taken_time_ms=taken_time_ms,
        findings=tuple(findings),
    )


def _require_directory(files: FileSystem, place: str) -> list[str]:
    """Return the names of the directories in a place."""
    try:
        if not is_uri(place):
            require_readable(place)
        return [entry.name for entry in files.entries(place) if entry.is_directory]
    except FileNotFoundError as error:
        reason = "" if error.strerror == os.strerror(errno.ENOENT) else f": {error.strerror}"
        raise NotAStore(f"{place} does not exist{reason}", file=place) from error
    except NotADirectoryError as error:
        raise file_is_no_store(place) from error
    except OSError as error:
        raise unreadable(place, error) from error


def lock_holder(lock: str) -> int | None:
    """Return the process that holds the broker's lock on byte 0, or None; the lock is tested, not taken.

    Shape: -1 if the lock belongs to an open file, not to a process: another rmqtx is changing the store.
    Source: store/DefaultMessageStore.java start (FileChannel.tryLock(0, 1, false)); docs/formats/store.md#lock.
    """
    try:
        status = Path(lock).stat()
        if (status.st_dev, status.st_ino) in OWN_LOCKS:
            return None
        if not stat.S_ISREG(status.st_mode):  # a pipe is not a broker's lock, and opening it would wait
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
        raise UnreadableFile(f"cannot test the lock on {lock}: {error.strerror}", file=lock) from error
    finally:
        os.close(descriptor)


# Whether this user may read a store: a file that may not be read would be taken for a missing one.
#
# Every command opens stores with `open_store`, which tests what verdicts depend on before it returns: the root, the
# files of the commit log, the settings and cursors, the queues of the check, the index. Of other topics the
# directories are tested when they are listed, and the files when they are read.


def require_access(root: str, log_directories: Iterable[str]) -> None:
    """Require that this user may read what verdicts depend on; nothing is tested in a remote store.

    Raises: UnreadableFile, which names the first file or directory that the operating system refuses.
    """
    for directory in log_directories:
        if not is_uri(directory):
            require_readable(directory, 1)
    if is_uri(root):
        return
    for name in _NAMES:
        place = joined(root, name)
        if name not in _QUEUES:
            require_readable(place, 3, leaves_out=_PRIVATE)
            continue
        require_readable(place)
        if Path(place, "CURRENT").exists():  # a database
            require_readable(place, 1)
        for topic in CHECK_TOPICS:
            require_readable(joined(place, topic), 2)


def is_bundle(store: Store) -> bool:
    """Whether a store is a bundle; its log has filler records for what was left out.

    A log file of which a bundle has no record is only a blank: the next one is searched then.
    """
    return store.is_a_bundle


@contextmanager
def opened_logs(stores: Iterable[Store]) -> Iterator[dict[str, SegmentedLog]]:
    """Open the logs of some stores for the block, by root."""
    with ExitStack() as stack:
        yield {store.root: stack.enter_context(store.log()) for store in stores}


def open_all(places: Sequence[str], commit_log_directories: tuple[str, ...] = ()) -> list[Store]:
    """Return the stores at some places; those on object storage are opened at the same time.

    Order:  as given.
    Raises: NotAStore, UnreadableFile, for the first place without a store.
    """
    if len(places) < 2 or not any(map(is_uri, places)):
        return [open_store(place, commit_log_directories) for place in places]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(len(places), _OPENED_AT_ONCE)) as pool:
        return list(pool.map(lambda place: open_store(place, commit_log_directories), places))
