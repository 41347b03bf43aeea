"""What a directory is: the root of a store, a part of one, log files alone, or a directory above several stores.

Its own files and directories have names that brokers give, which also decide the symbolic links that are followed: a
store may come from an untrusted place. If a link leads out of the store, its target would be read as a part of the
store, copied with it, or written to. One kind of link is usual and followed: a directory of the store, for example
`commitlog` or `index`, on another disk. The target counts as a directory of the store if all names in it are names
that a broker gives in that directory.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from rmqtx.readers.model.errors import NotAStore, SourceError
from rmqtx.readers.storage.places import FileSystem, joined, name_of, parent_of, unreadable
from rmqtx.readers.storage.segments import SEGMENT_NAME, is_dledger

_SEGMENT = r"\d{20}"
_ROCKSDB = r"CURRENT|IDENTITY|LOCK|LOG(\.old\.\d+)?|(MANIFEST|OPTIONS)-\d+|\d+\.(sst|log|dbtmp|blob)"
#: One level of directories: the pattern of its file names and of its directory names.
_Level = tuple[str, str]
_QUEUES: tuple[_Level, ...] = ((_ROCKSDB, r"[%|A-Za-z0-9_-]{1,255}"), ("", r"\d{1,9}"), (_SEGMENT, ""))
_CONFIG = r"\w+\.json(\.bak)?|(transactionMetrics|timermetrics|timercheck)(\.bak)?"
#: The names in each directory that a broker creates, level by level. A link to a directory without levels is never
#: followed to another disk.
#: Source: store/MappedFileQueue.java, index/IndexService.java, ConfigManager.java, StorePathConfigHelper.java; those of
#: RocksDB: db/filename.cc.
_DIRECTORIES: tuple[tuple[str, tuple[_Level, ...]], ...] = (
    (r"commitlog[-_\w]*", ((_SEGMENT, ""),)),
    (r"dledger-[^/]+", ((r"(checkpoint|currterm)(\.bak)?", "data|index"), (_SEGMENT, ""))),
    (r"consumequeue(_ext)?|batchconsumequeue", _QUEUES),
    (r"consumequeue_rocksdb|rocksdbstore|kvStore", ((_ROCKSDB, ""),)),
    (r"index", ((r"\d{17}", ""),)),
    (r"transaction", (("", r"statetable|redolog"), (_SEGMENT, ""))),
    (r"timerlog", ((_SEGMENT, ""),)),
    (r"config", ((_CONFIG, r"rdb|metadata|topics|subscriptionGroups|consumerOffsets|users|acls"), (_ROCKSDB, ""))),
    (r"compaction", ()),
)
_FILES = r"(abort|checkpoint|timerwheel(\.\d+)?|epochFileCheckpoint|brokerIdentity(-temp)?)(\.bak)?"
#: Directories and files that identify a store's root if its commit log is elsewhere or lost.
_MARKS = ("consumequeue", "batchconsumequeue", "index", "checkpoint", "config", "transaction", "rocksdbstore")
#: Those that nothing else has.
_OWN_MARKS = ("consumequeue", "batchconsumequeue", "checkpoint", "rocksdbstore")
#: How deep a directory of a store can be below its root.
_PARENTS_MAX = 4
#: Directories of a store whose files have names like those of a log.
_OWN = (*_MARKS, "consumequeue_ext", "timerlog", "compaction", "kvStore")
_TAR = re.compile(r"\.(tar(\.\w+)?|tgz|tbz2?|txz|tzst)$", re.IGNORECASE)
#: Number of subdirectories that are searched for stores if the given directory is not one.
_SUBDIRECTORIES_MAX = 64
_NAMED_MAX = 5


def is_own_path(path: str) -> bool:
    """Whether a path below a store's root may be a file that a broker creates, by its first part."""
    first, _, rest = path.partition("/")
    if not rest:
        return re.fullmatch(_FILES, first) is not None
    return _is_own(first)


def is_own_directory(link: Path, root: Path) -> bool:
    """Whether a link in a store's root leads to a directory of the store in another place.

    Damage: a directory that cannot be listed does not count.
    """
    levels = next((levels for names, levels in _DIRECTORIES if re.fullmatch(names, link.name)), ())
    target = Path(os.path.realpath(link))
    if not levels or link.parent != root or root.is_relative_to(target) or not target.is_dir():
        return False
    try:
        return _holds(target, levels)
    except OSError:
        return False


def _holds(directory: Path, levels: tuple[_Level, ...]) -> bool:
    """Whether all names in a directory match the levels; links in the directory are not followed here."""
    (files, directories), *below = levels
    with os.scandir(directory) as entries:
        found = list(entries)
    for entry in found:
        if not re.fullmatch(directories if entry.is_dir() else files, entry.name):
            return False
        if entry.is_dir() and not entry.is_symlink() and not _holds(Path(entry.path), tuple(below)):
            return False
    return True


def leads_out(place: Path, root: Path) -> bool:
    """Whether a link in a store leads out of the store; `root` is the store's root, with links resolved.

    A directory of the store on another disk counts as inside the store, and so does a link to it.
    """
    target = Path(os.path.realpath(place))
    if target.is_relative_to(root):
        return False
    top = root / place.relative_to(root).parts[0]
    if top.is_symlink() and is_own_directory(top, root):
        return not target.is_relative_to(os.path.realpath(top))
    return True


def top_links_out(root: Path) -> Iterator[Path]:
    """Yield the links in a store's root, and in its directories of log files, that lead out of the store.

    Order: links in the root first.
    Damage: a directory that cannot be listed yields none; the code that reads the directory reports it.
    Raises: UnreadableFile for a link in place of a directory that leads back to itself: it is not a missing directory.
    """
    real = os.path.realpath(root)
    directories = [real]
    while directories:
        directory = directories.pop()
        try:
            with os.scandir(directory) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in found:
            if entry.is_symlink() and leads_out(Path(entry.path), Path(real)):
                yield Path(entry.path)
            elif directory == real and _is_own(entry.name) and _leads_to_directory(entry) and _has_links(entry.name):
                directories.append(entry.path)


def _has_links(name: str) -> bool:
    """Whether a directory is one of log files or of the configuration, whose links are listed too."""
    return re.fullmatch(r"commitlog[-_\w]*|config", name) is not None


def _is_own(name: str) -> bool:
    """Whether brokers give this name to a directory in the root of a store."""
    return any(re.fullmatch(names, name) for names, _ in _DIRECTORIES)


def _leads_to_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        raise unreadable(entry.path, error) from error


def log_directories(files: FileSystem, place: str, names: Iterable[str]) -> list[str]:
    """Return the directories of a store's commit log, by the names of the directories in its root.

    Raises: UnreadableFile.
    """
    plain = [joined(place, name) for name in names if re.fullmatch(r"commitlog[-_\w]*", name)]
    framed = [joined(place, name, "data") for name in names if re.fullmatch(r"dledger-.+", name)]
    return [*plain, *(directory for directory in framed if _is_directory(files, directory))]


def _is_directory(files: FileSystem, place: str) -> bool:
    try:
        entry = files.entry(place)
    except PermissionError as error:
        raise unreadable(place, error) from error
    except OSError:
        return False
    return entry is not None and entry.is_directory


def is_root_without_log(files: FileSystem, place: str, names: Iterable[str]) -> bool:
    """Whether a directory without a commit log is the root of a store, by what else is in it.

    A member of a DLedger group has a checkpoint of its own, which proves nothing.
    """
    is_member = "data" in names and is_dledger(joined(place, "data"))
    return not is_member and any(files.entry(joined(place, mark)) is not None for mark in _MARKS)


def is_below_others_without_log(files: FileSystem, place: str) -> bool:
    """Whether a directory below the given one is the root of a store whose log is elsewhere or lost.

    Directories named `config` or `index` are common: one of the marks must be a store's own, and two must be there.
    """
    found = [mark for mark in _MARKS if files.entry(joined(place, mark)) is not None]
    return len(found) > 1 and any(mark in _OWN_MARKS for mark in found)


def file_is_no_store(place: str) -> NotAStore:
    """Return the error for a file in place of a store: an archive must be unpacked first."""
    advice = "give the directory that contains commitlog/"
    name = name_of(place)
    if _TAR.search(name):
        advice = f"unpack it: tar xf {shlex.quote(place)}, then {advice}"
    elif name.lower().endswith(".zip"):
        advice = f"unpack it: unzip {shlex.quote(place)}, then {advice}"
    elif SEGMENT_NAME.fullmatch(name) and not name_of(parent_of(place)).isdecimal():  # a file of a queue is in a number
        advice = f"a log file alone: mkdir -p NEW/commitlog; cp {shlex.quote(place)} NEW/commitlog; then give NEW"
    return NotAStore(f"{place} is a file, not a store", file=place, advice=advice)


def not_a_store(files: FileSystem, place: str) -> NotAStore:
    """Return the error for a directory that is not a store: what it is, and what to type."""
    what, advice = _why_not(files, place)
    return NotAStore(f"{place} is not a store: {what}", file=place, advice=advice)


def _why_not(files: FileSystem, place: str) -> tuple[str, str | None]:
    folders, plain = _names(files, place), _names(files, place, directories=False)
    if not folders and not plain:
        return "the directory is empty", None
    if "data" in folders and is_dledger(joined(place, "data")):
        return f"the directory belongs to a DLedger member; give the store's root: {parent_of(place)}", None
    above = [place]
    for _ in range(_PARENTS_MAX):
        above.append(parent_of(above[-1]))
        if above[-1] != above[-2] and _is_store(files, above[-1]) and name_of(above[-2]) in _OWN:
            return f"the directory is a part of a store; give the store's root: {above[-1]}", None
    if any(map(SEGMENT_NAME.fullmatch, plain)):
        root = parent_of(parent_of(place)) if is_dledger(place) else parent_of(place)
        if _is_store(files, root):
            return f"the directory contains segment files; give the store's root: {root}", None
        return "the directory contains segment files, without the rest of a store", f"add {_option(place)}"
    below = [joined(place, name) for name in folders[:_SUBDIRECTORIES_MAX]]
    deeper = (joined(one, name) for one in below for name in _names(files, one))  # evidence/BROKER/store
    for part in (below, islice(deeper, _SUBDIRECTORIES_MAX)):
        directories = list(part)
        stores = [one for one in directories if _is_store(files, one)]
        if len(stores) == 1:
            return f"did you mean {stores[0]}?", None
        if stores:
            names = [one.removeprefix(place).strip("/") for one in stores[:_NAMED_MAX]]
            names += ["…"] * (len(stores) > _NAMED_MAX)
            is_cut = len(folders) > _SUBDIRECTORIES_MAX or len(directories) == _SUBDIRECTORIES_MAX
            number = f"{'at least ' if is_cut else ''}{len(stores)} stores"
            return f"it contains {number}: {', '.join(names)}", f"rmqtx stores {shlex.quote(place)}"
    if logs := _logs(files, below):
        return "it contains directories of segment files", f"add {' '.join(map(_option, logs))}"
    return "it contains no commitlog/, consumequeue/, index/, checkpoint, config/, transaction/ or rocksdbstore/", None


def unnamed_logs(files: FileSystem, root: str) -> str | None:
    """Return the options that name the commit log of a store that has it in directories of other names."""
    own = [joined(root, name) for name in _names(files, root)[:_SUBDIRECTORIES_MAX] if name not in _OWN]
    logs = _logs(files, own)
    return " ".join(map(_option, logs)) if logs else None


def _logs(files: FileSystem, directories: Iterable[str]) -> list[str]:
    return [one for one in directories if any(map(SEGMENT_NAME.fullmatch, _names(files, one, directories=False)))]


def _option(directory: str) -> str:
    return f"--commitlog {shlex.quote(directory)}"


def _is_store(files: FileSystem, place: str) -> bool:
    try:
        return bool(log_directories(files, place, _names(files, place)))
    except SourceError:  # it may not be read: it is only searched for advice
        return False


def _names(files: FileSystem, directory: str, *, directories: bool = True) -> list[str]:
    """The names in a directory; none if it cannot be listed, because it is only searched for advice."""
    try:
        return [entry.name for entry in files.entries(directory) if entry.is_directory == directories]
    except OSError:
        return []
