"""The names of a store's own files and directories, and the symbolic links in it that may be followed.

A store may come from an untrusted place. If a link leads out of the store, its target would be read as a part of the
store, copied with it, or written to. One kind of link is usual and followed: a directory of the store, for example
`commitlog` or `index`, on another disk. The target counts as a directory of the store if all names in it are names
that a broker gives in that directory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

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


def is_own_path(path: str) -> bool:
    """Whether a path below a store's root may be a file that a broker creates, by its first part."""
    first, _, rest = path.partition("/")
    if not rest:
        return re.fullmatch(_FILES, first) is not None
    return any(re.fullmatch(names, first) for names, _ in _DIRECTORIES)


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
            elif directory == real and re.fullmatch(r"commitlog[-_\w]*|config", entry.name) and entry.is_dir():
                directories.append(entry.path)
