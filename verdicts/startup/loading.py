"""Which files of a directory a start loads, and their required length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rmqtx.readers.storage.places import DirectoryEntry
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.startup.rules import RecoveryRules

_SLOT_BYTES = 20
#: Source: store/config/MessageStoreConfig.java mappedFileSizeConsumeQueue.
DEFAULT_QUEUE_FILE_BYTES = 300_000 * _SLOT_BYTES


def entries(store: Store, directory: str) -> list[DirectoryEntry]:
    """Return the entries of a directory by name; nothing if it cannot be listed."""
    try:
        return sorted(store.files.entries(directory), key=lambda entry: entry.name)
    except OSError:
        return []


def log_directories(store: Store) -> list[str]:
    """The directories of the log."""
    return list(store.commit_log_directories) or [store.place("commitlog")]


def log_file_bytes(store: Store, conf: Mapping[str, str]) -> int:
    """Required length of each file of the log: as configured, else that of most files."""
    configured = _configured(conf, "mappedFileSizeCommitLog", "mapedFileSizeCommitLog")
    return configured or _usual([entries(store, directory) for directory in log_directories(store)])


def queue_file_bytes(store: Store, conf: Mapping[str, str]) -> int:
    """Required length of each file of a simple queue: as configured, in whole slots, else that of most files."""
    configured = _configured(conf, "mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue")
    if configured:
        return -(-configured // _SLOT_BYTES) * _SLOT_BYTES
    return _usual([entries(store, store.queue_directory(topic, queue_id)) for topic, queue_id in store.queues()])


def left_out(found: Sequence[DirectoryEntry], size: int, rules: RecoveryRules) -> DirectoryEntry | None:
    """Return the first entry that a start does not load, nor any after it; None if it loads all or refuses to start.

    Shape: `found` are the entries of one directory by name; `size` is the length that its files must have, in bytes.
    Source: store/MappedFileQueue.java load until 4.4.0, and in 4.9.2; docs/starts.md.
    """
    if rules.refuses_other_sizes:
        return None
    return next((entry for entry in found if entry.is_directory or entry.size_bytes != size), None)


def loaded(segments: Sequence[Segment], first_left_out: DirectoryEntry | None) -> list[Segment]:
    """Return the files that are loaded, given the first entry that is not.

    Order: by name, as brokers sort them.
    """
    if first_left_out is None:
        return list(segments)
    return [segment for segment in segments if _name(segment) < first_left_out.name]


def _name(segment: Segment) -> str:
    return segment.file.rpartition("/")[2]


def _configured(conf: Mapping[str, str], *names: str) -> int | None:
    for name in names:
        text = conf.get(name, "")
        if text.isdecimal():
            return int(text)
    return None


def _usual(directories: list[list[DirectoryEntry]]) -> int:
    """The length of most files: the configured length is not in the store."""
    sizes = Counter(
        entry.size_bytes for found in directories for entry in found if entry.is_file and entry.size_bytes
    )
    return sizes.most_common(1)[0][0] if sizes else 0
