"""How the releases of RocketMQ differ when they open a store: one set of rules per version, from the source code.

A start loads files, recovers queues, reads the log from one of the last files to its end, cuts what lies after, and
dispatches what the queues lack. Each of these steps has changed; the rules contain the changes that affect a result.
Then the stores whose start they do not predict, and the first step: which files of a directory a start loads, and
their required length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rmqtx.readers.log.record_layout import MAGIC_V1, MAGIC_V2
from rmqtx.readers.model.findings import as_text
from rmqtx.readers.model.releases import (
    BEGINS_WITH_FILLERS,
    DIRECTORIES_SKIPPED,
    DISPATCHES_BEHIND_QUEUES,
    DISPATCHES_PAST_QUEUES,
    DLEDGER_QUEUES_CUT_SHORT,
    DLEDGER_QUEUES_EMPTIED,
    EMPTY_LAST_DELETED,
    EMPTY_QUEUE_FILE_REFUSED,
    FILES_BACK_BOUNDED,
    INDEX_FILES_OPENED,
    IPV6_HOSTS,
    LAST_TO_START_ALIKE,
    LENGTHS_BOUNDED,
    LONG_TOPICS,
    MISMATCHED_COUNTED,
    OTHER_SIZES_REFUSED,
    PROPERTY_CRC,
    QUEUE_MAXIMUM_IS_END,
    QUEUES_CUT_AFTER_CLEAN_STOP,
    QUEUES_DESTROYED,
    QUEUES_READ_AGAIN,
    STARTS_AT_QUEUES_OFFSET,
    THREE_FILES_BACK,
    Version,
    dotted,
)
from rmqtx.readers.storage.places import DirectoryEntry
from rmqtx.readers.storage.segments import SEGMENT_NAME, Segment
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.remembered import remembered
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, QUEUE_NUMBER, Store
from rmqtx.readers.store.version_signs import rust_mark

_FILES_BACK_MAX = 10


@dataclass(frozen=True, slots=True)
class RecoveryRules:
    """How brokers of one version open a store; equal for versions that do the same.

    Shape: `dispatches`: what a start after a clean stop dispatches to the queues: `nothing`, `behind_queues` (all
           records after the furthest slot), `past_queues` (records that begin past that place: one that begins exactly
           there is skipped). `reads_queues_again`: whether the queues are cut after the dispatch of the recovery, and
           their last files read again: old slots after the new ones are valid again. `files_back_max`: how many files
           back recovery begins at most; None: no limit.
    Source: store/MappedFileQueue.java load, CommitLog.java recoverNormally and recoverAbnormally,
            ConsumeQueue.java, DefaultMessageStore.java start of each release; docs/formats/store.md#segments,
            docs/formats/record.md#validation, docs/formats/recovery.md#normal, docs/formats/consume_queues.md#recovery,
            docs/formats/consume_queues.md#dispatch.
    """

    version: Version = field(compare=False)
    refuses_other_sizes: bool
    skips_directories: bool
    deletes_empty_last: bool
    opens_index_files: bool
    magics: tuple[int, ...]
    reads_ipv6: bool
    bounds_lengths: bool
    counts_mismatched: bool
    starts_three_files_back: bool
    starts_at_queues_offset: bool
    queue_maximum_is_end: bool
    cuts_queues_after_clean_stop: bool
    destroys_queues_without_log: bool
    dispatches: str
    reads_queues_again: bool
    files_back_max: int | None
    verifies_property_crcs: bool
    refuses_empty_queue_file: bool
    begins_with_fillers: bool
    empties_dledger_queues: bool
    cuts_dledger_queues_short: bool

    @property
    def name(self) -> str:
        """The version as text."""
        return dotted(self.version)


def rules_of(
    version: Version, conf: Mapping[str, str] | None = None, *, is_dledger: bool = False
) -> RecoveryRules:
    """Return the rules of a version; `conf`: its configuration, if known. `is_dledger`: its log is a DLedger log.

    The recovery of a DLedger log dispatches nothing after a clean stop (seen on 5.1.4 and 5.5.0).
    """
    rechecks = (conf or {}).get("recheckReputOffsetFromCq", "").lower() == "true"
    if DISPATCHES_PAST_QUEUES.holds(version):
        dispatches = "nothing" if is_dledger else "past_queues"
    elif DISPATCHES_BEHIND_QUEUES.holds(version) or rechecks:
        dispatches = "behind_queues"
    else:
        dispatches = "nothing"
    return RecoveryRules(
        version=version,
        refuses_other_sizes=OTHER_SIZES_REFUSED.holds(version),
        skips_directories=DIRECTORIES_SKIPPED.holds(version),
        deletes_empty_last=EMPTY_LAST_DELETED.holds(version),
        opens_index_files=INDEX_FILES_OPENED.holds(version),
        magics=(MAGIC_V1, MAGIC_V2) if LONG_TOPICS.holds(version) else (MAGIC_V1,),
        reads_ipv6=IPV6_HOSTS.holds(version),
        bounds_lengths=LENGTHS_BOUNDED.holds(version),
        counts_mismatched=MISMATCHED_COUNTED.holds(version),
        starts_three_files_back=THREE_FILES_BACK.holds(version),
        starts_at_queues_offset=STARTS_AT_QUEUES_OFFSET.holds(version),
        queue_maximum_is_end=QUEUE_MAXIMUM_IS_END.holds(version),
        cuts_queues_after_clean_stop=QUEUES_CUT_AFTER_CLEAN_STOP.holds(version),
        destroys_queues_without_log=QUEUES_DESTROYED.holds(version),
        dispatches=dispatches,
        reads_queues_again=QUEUES_READ_AGAIN.holds(version),
        files_back_max=_files_back_max(conf or {}) if FILES_BACK_BOUNDED.holds(version) else None,
        verifies_property_crcs=PROPERTY_CRC.holds(version) and (conf or {}).get("forceVerifyPropCRC") == "true",
        refuses_empty_queue_file=EMPTY_QUEUE_FILE_REFUSED.holds(version),
        begins_with_fillers=BEGINS_WITH_FILLERS.holds(version),
        empties_dledger_queues=DLEDGER_QUEUES_EMPTIED.holds(version),
        cuts_dledger_queues_short=DLEDGER_QUEUES_CUT_SHORT.holds(version),
    )


def _files_back_max(conf: Mapping[str, str]) -> int:
    """Return the value of commitLogRecoverMaxNum. Source: store/CommitLog.java recoverNormally, recoverAbnormally."""
    text = conf.get("commitLogRecoverMaxNum", "")
    return int(text) if text.isdecimal() and int(text) else _FILES_BACK_MAX


def possible_rules(
    settings: BrokerSettings, conf: Mapping[str, str] | None = None, *, is_dledger: bool = False
) -> list[RecoveryRules]:
    """Return the rules of every version that a store's broker may have, each kind once, oldest first."""
    low, high = settings.version_low, settings.version_high
    versions = [
        version
        for version in LAST_TO_START_ALIKE
        if (low is None or version >= low) and (high is None or version <= high)
    ]
    versions = sorted({*versions, *(version for version in (low, high) if version is not None)})
    kinds: dict[RecoveryRules, RecoveryRules] = {}
    for version in versions:
        rules = rules_of(version, conf, is_dledger=is_dledger)
        kinds.setdefault(rules, rules)
    return list(kinds.values())


_SLOT_BYTES = 20
#: Source: store/config/MessageStoreConfig.java mappedFileSizeConsumeQueue.
DEFAULT_QUEUE_FILE_BYTES = 300_000 * _SLOT_BYTES


def not_predictable(store: Store, conf: Mapping[str, str]) -> str | None:
    """Return why the start cannot be predicted; None if it can."""
    if store.has_rocksdb_queues:
        return "the consume queues are in RocksDB"
    if rust_mark(store) is not None:
        return "the broker is rocketmq-rust, whose starts are not predicted"
    if conf.get("duplicationEnable") == "true":
        return "duplicationEnable=true: the start depends on the confirmed offset"
    if store.has("epochFileCheckpoint"):
        return "a controller decides which part of its log is valid"
    place = _in_place_of_queue(store)
    return None if place is None else f"{place} is in place of a queue or its file, so no start can write the queue"


@remembered
def _in_place_of_queue(store: Store) -> str | None:
    """Return what is in place of the half or op queue, or of a file of these; None if nothing is.

    5.3.3 and 5.5.0 started with a directory in place of a file, and the half queue stayed empty; so did 4.9.7, 5.3.3
    and 5.5.0 with a file or a link to itself in place of the queue. A link to itself in place of a file they delete.
    """
    for topic in (HALF_TOPIC, OP_TOPIC):
        place = store.place("consumequeue", topic)
        queues = [one for one in entries(store, place) if QUEUE_NUMBER.fullmatch(one.name)]
        files = [one for queue in queues for one in entries(store, queue.path) if SEGMENT_NAME.fullmatch(one.name)]
        wrong = [one for one in queues if not one.is_directory] + [one for one in files if one.is_directory]
        if wrong:
            return as_text(wrong[0].path)
    return None


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


def configured_queue_file_bytes(conf: Mapping[str, str]) -> int | None:
    """Configured length of each file of a simple queue, in whole slots; None if it is not given.

    Brokers before 4.9 spell it with one p.
    """
    configured = _configured(conf, "mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue")
    return -(-configured // _SLOT_BYTES) * _SLOT_BYTES if configured else None


def queue_file_bytes(store: Store, conf: Mapping[str, str]) -> int:
    """Required length of each file of a simple queue: as configured, in whole slots, else that of most files."""
    return configured_queue_file_bytes(conf) or _usual(
        [entries(store, store.queue_directory(topic, queue_id)) for topic, queue_id in store.queues()]
    )


def left_out(found: Sequence[DirectoryEntry], size: int, rules: RecoveryRules) -> DirectoryEntry | None:
    """Return the first entry that a start does not load, nor any after it; None if it loads all or refuses to start.

    Shape: `found` are the entries of one directory by name; `size` is the length that its files must have, in bytes.
    Source: store/MappedFileQueue.java load until 4.4.0, and in 4.9.2; docs/starts.md.
    """
    if rules.refuses_other_sizes:
        return None
    return next((entry for entry in found if entry.is_directory or entry.size_bytes != size), None)


def loaded(segments: Sequence[Segment], first_left_out: DirectoryEntry | None) -> list[Segment]:
    """Return the files that are loaded, given the first entry that is not. Order: by name, as brokers sort them."""
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
