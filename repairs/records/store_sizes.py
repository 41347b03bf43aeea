"""Lengths of a store's files: from the broker's configuration, from existing files, or a broker's defaults."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from rmqtx.readers.index.index import ENTRY, HEADER, INDEX_SLOT
from rmqtx.readers.index.index_search import open_index
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.releases import newest_default
from rmqtx.readers.queues.consume_queue import BATCH_SLOT, SLOT
from rmqtx.readers.queues.slot_files import BATCH, SIMPLE
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.startup.rules import DEFAULT_QUEUE_FILE_BYTES

EXTENSION = "consumequeue_ext"
#: Queues whose files are examined for their length.
_EXAMINED_QUEUES = 64
#: Source: store/config/MessageStoreConfig.java; docs/formats/store.md#segments, docs/formats/record.md#tags-code.
_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_DELAY_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE_BYTES_MAX = 1 << 40


#: Keys of a configuration for the length of a consume queue's files; the second is how brokers of 3 spell it.
QUEUE_LENGTH_KEYS = ("mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue")


@dataclass(frozen=True, slots=True)
class StoreSizes:
    """Lengths of a store's files, and further values that only a broker's configuration contains.

    Units: bytes; `delay_levels_ms`: the delay of level 1, 2, ... `index_entries_count`: maxIndexNum, one more than the
           entries of a file. `has_default_queues`: neither a file nor the configuration gives the length of the files
           of consume queues; `is_log_file_guessed`: the length of the log's files is a guess.
    """

    log_file_bytes: int
    queue_file_bytes: Mapping[str, int]
    index_slots_count: int
    index_entries_count: int
    delay_levels_ms: tuple[int, ...]
    has_default_queues: bool = False
    is_log_file_guessed: bool = False

    @property
    def assumption(self) -> str | None:
        """What is assumed about the length of the files of consume queues, as a sentence; None if it is known."""
        if not self.has_default_queues:
            return None
        return (
            f"new consume queue files have {self.queue_file_bytes[SIMPLE]} bytes, the default, as no file of a queue "
            "is left: a broker with another mappedFileSizeConsumeQueue does not start on them; add --broker-conf FILE"
        )


def store_sizes(store: Store | None, conf: Mapping[str, str] | None = None) -> StoreSizes:
    """Return the lengths for a rebuilt store: from the configuration, else from the files, else the defaults.

    Raises: BadRequest for an invalid configuration; UnreadableFile, FileChanged.
    """
    given = conf or {}
    log = () if store is None else store.commit_log
    queues = {kind: [] if store is None else _queue_files(store, kind) for kind in (SIMPLE, BATCH, EXTENSION)}
    slots, entries = (None, None) if store is None else _index_counts(store)
    return StoreSizes(
        number_of(given, "mappedFileSizeCommitLog", "mapedFileSizeCommitLog") or _usual(log) or 1 << 30,
        {
            SIMPLE: whole_units(
                number_of(given, *QUEUE_LENGTH_KEYS)
                or _usual(queues[SIMPLE]) or DEFAULT_QUEUE_FILE_BYTES,
                SLOT.size_bytes,
            ),
            BATCH: whole_units(
                number_of(given, "mapperFileSizeBatchConsumeQueue") or _usual(queues[BATCH]) or 13_800_000,
                BATCH_SLOT.size_bytes,
            ),
            EXTENSION: number_of(given, "mappedFileSizeConsumeQueueExt", "mapedFileSizeConsumeQueueExt")
            or _usual(queues[EXTENSION]) or 48 << 20,
        },
        number_of(given, "maxHashSlotNum") or slots or newest_default("maxHashSlotNum"),
        number_of(given, "maxIndexNum") or entries or newest_default("maxIndexNum"),
        _delays(given.get("messageDelayLevel", _DELAY_LEVELS)),
        has_default_queues=not (number_of(given, *QUEUE_LENGTH_KEYS) or _usual(queues[SIMPLE])),
    )


def with_log_files_of(sizes: StoreSizes, log_file_bytes: int | None) -> StoreSizes:
    """Return the sizes with another length of log files, if one is given."""
    return sizes if log_file_bytes is None else replace(sizes, log_file_bytes=log_file_bytes)


def usual_log_file_bytes(files: Iterable[tuple[str, int]]) -> int | None:
    """Return the most frequent length of files (name, bytes) that are named like segments; None if there are none."""
    sizes = Counter(size for name, size in files if re.fullmatch(r"[0-9]{20}", name) and size)
    return sizes.most_common(1)[0][0] if sizes else None


def are_single(files: Iterable[tuple[str, int]]) -> bool:
    """Whether only one of the files (name, bytes) is named like a segment and has bytes."""
    return sum(bool(re.fullmatch(r"[0-9]{20}", name)) and size > 0 for name, size in files) == 1


def number_of(conf: Mapping[str, str], *keys: str) -> int | None:
    """Return the length of a file from a broker's configuration; None if it is not set.

    Raises: BadRequest for an invalid length.
    """
    for key in keys:
        text = conf.get(key)
        if text is None:
            continue
        if not re.fullmatch(r"[0-9]{1,13}", text) or not 0 < int(text) <= _SIZE_BYTES_MAX:
            raise BadRequest(f"{key}={text[:40]} is not a length of a file in bytes", field=key)
        return int(text)
    return None


def _usual(segments: Iterable[Segment]) -> int | None:
    sizes = Counter(segment.size_bytes for segment in segments if segment.size_bytes)
    return sizes.most_common(1)[0][0] if sizes else None


def whole_units(size: int, slot_bytes: int) -> int:
    """Return the length of a file in whole slots; brokers round up."""
    return -(-size // slot_bytes) * slot_bytes


def _queue_files(store: Store, kind: str) -> list[Segment]:
    return [
        segment
        for topic, queue_id in islice(store.queues(kind), _EXAMINED_QUEUES)
        for segment in store.queue_segments(topic, queue_id, kind)[0]
    ]


def _index_counts(store: Store) -> tuple[int | None, int | None]:
    """Number of slots and entries (maxHashSlotNum, maxIndexNum) per file, from an existing index file."""
    for file in reversed(open_index(store).files):
        if file.why_incomplete() is None and file.slots_count is not None:
            rest = file.segment.size_bytes - HEADER.size_bytes - INDEX_SLOT.size_bytes * file.slots_count
            return file.slots_count, rest // ENTRY.size_bytes
    return None, None


def _delays(text: str) -> tuple[int, ...]:
    """Source: store/schedule/ScheduleMessageService.java parseDelayLevel."""
    delays = []
    for word in text.split(" "):
        if not re.fullmatch(r"[0-9]{1,9}[smhd]", word):
            raise BadRequest(f"messageDelayLevel: {word[:40]!r} is not a delay", field="messageDelayLevel")
        delays.append(int(word[:-1]) * _DELAY_UNITS_MS[word[-1]])
    return tuple(delays)
