"""What a directory is: the root of a store, a part of one, log files alone, or a directory above several stores."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from itertools import islice

from rmqtx.readers.model.errors import NotAStore, SourceError
from rmqtx.readers.storage.places import FileSystem, joined, name_of, parent_of, unreadable
from rmqtx.readers.storage.segments import SEGMENT_NAME, is_dledger

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
