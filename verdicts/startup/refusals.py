"""Files because of which a broker exits at its start: foreign files, wrong lengths, unreadable configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding, as_text
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.rocksdb.rocksdb_queues import queue_bounds
from rmqtx.readers.storage.places import DirectoryEntry
from rmqtx.readers.store.fastjson import read_config
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.startup.queues import QueueFate
from rmqtx.verdicts.startup.rules import RecoveryRules, entries, log_directories, log_file_bytes, queue_file_bytes

#: Configuration that a start needs: if the file and its backup are unreadable, the broker exits.
_CONFIGURATIONS = ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "delayOffset.json")
_IN_SECOND_DATABASE = ("topics.json", "consumerOffset.json", "subscriptionGroup.json")
_JAVA_LONG = re.compile(r"[+-]?\d{1,40}")
_DLEDGER_DATA = re.compile(r"(?:.*/)?dledger-[^/]+/data")
#: Length of the files of the index of a DLedger log. Source: DLedgerConfig.java mappedFileSizeForEntryIndex.
_DLEDGER_INDEX_BYTES = 5 * (1 << 20) * 32


class StartDirectory(NamedTuple):
    """The entries of a directory of the log or of a queue, the length of its files, and the setting for this length.

    `is_dledger`: DLedger loads them, which exits at each other length: at a directory and an empty last file too.
    """

    entries: list[DirectoryEntry]
    file_bytes: int
    setting: str
    is_dledger: bool = False


def start_directories(store: Store, conf: Mapping[str, str]) -> list[StartDirectory]:
    """Return the directories with files that a start loads: of the log, then of the queues.

    Queue files beside a database of queues count only if the broker loads them.
    """
    size = log_file_bytes(store, conf)
    found = []
    for directory in log_directories(store):
        is_dledger = _DLEDGER_DATA.fullmatch(directory) is not None
        found.append(StartDirectory(entries(store, directory), size, "mappedFileSizeCommitLog", is_dledger))
        if is_dledger:
            index = entries(store, f"{directory.removesuffix('data')}index")
            found.append(StartDirectory(index, _DLEDGER_INDEX_BYTES, "mappedFileSizeForEntryIndex", is_dledger))
    size = queue_file_bytes(store, conf)
    return found + [
        StartDirectory(entries(store, store.queue_directory(*queue)), size, "mappedFileSizeConsumeQueue")
        for queue in (store.queues() if _loads_queue_files(store, conf) else ())
    ]


def _loads_queue_files(store: Store, conf: Mapping[str, str]) -> bool:
    """Whether a start loads the files of queues, which can be beside a database of queues.

    `storeType` decides; with storeType=default it loads the database only for rocksdbCQDoubleWriteEnable=true. Without
    a configuration: if the files of a queue lead as far as the database, the broker writes both. 5.4.0 and 5.5.0 were
    started.
    Source: RocksDBMessageStore.java, DefaultMessageStore.java createConsumeQueueStore; CombineConsumeQueueStore.java.
    """
    if not store.has_rocksdb_queues:
        return True
    if conf:
        if conf.get("storeType", "default").lower() == "defaultrocksdb":
            return False
        kinds = conf.get("combineCQLoadingCQTypes", "default;defaultRocksDB").split(";")
        return conf.get("rocksdbCQDoubleWriteEnable") != "true" or "default" in kinds
    in_files = set(store.queues())
    ends = {name: end for name, (_, end) in queue_bounds(store, []).items() if name in in_files}
    return any(_ends_at(store, name) >= end for name, end in ends.items())


def _ends_at(store: Store, name: tuple[str, int]) -> int:
    """Return where the files of a queue end; -1 if they cannot be read, which their reader reports."""
    try:
        with open_queue(store, *name) as queue:
            return queue.max_offset
    except SourceError:
        return -1


def refusals(store: Store, conf: Mapping[str, str], rules: RecoveryRules) -> Iterator[Finding]:
    """Return what would prevent a broker from starting on a store.

    Source: store/MappedFileQueue.java load, common/ConfigManager.java load; docs/formats/store.md#segments.
    """
    for directory in start_directories(store, conf):
        advice = _advice_on_size(directory) if directory.setting in conf else None
        for finding in refusals_of_directory(store, directory, rules):
            is_size = finding.length_bytes is not None and finding.actual != "a directory"
            yield replace(finding, advice=advice) if advice and is_size else finding
    yield from refusals_of_index(store, rules)
    yield from refusals_of_configuration(store)


def refusals_of_index(store: Store, rules: RecoveryRules) -> Iterator[Finding]:
    """Return what in place of index files is not a file: a broker from 5.1.0 on opens each, and exits.

    A name that is not a number is passed over. Where a link leads nowhere, the file is made there.
    Source: store/index/IndexService.java load, DefaultMessageStore.java load; 4.3.0, 4.9.7 and 5.0.0 started, 5.1.0,
            5.1.4, 5.2.0, 5.3.3 and 5.5.0 exited.
    """
    for entry in entries(store, store.place("index")) if rules.opens_index_files else ():
        if _JAVA_LONG.fullmatch(entry.name):
            yield from _refusal_of_place(store, entry.path)


def _refusal_of_place(store: Store, place: str) -> Iterator[Finding]:
    """Return that a directory, a pipe or a link to itself is at a place where a broker opens a file."""
    try:
        entry = store.files.entry(place)
    except OSError:
        return  # its reader reports it
    if entry is not None and not entry.is_file:
        actual = "a directory" if entry.is_directory else "neither a file nor a directory"
        yield Finding(store.root, "start-refused", as_text(place), expected="a file", actual=actual)


def _advice_on_size(directory: StartDirectory) -> str | None:
    """The advice where the given length fits no file, and all files have one other length.

    One shorter file alone may have been cut off: then the length in the configuration is right.
    """
    sizes = [entry.size_bytes for entry in directory.entries if not entry.is_directory]
    if len(set(sizes)) != 1 or directory.file_bytes in sizes:
        return None
    if len(sizes) == 1 and sizes[0] < directory.file_bytes:
        return (
            f"if the file was cut off, replace it from a backup or a slave, or salvage the store with --broker-conf "
            f"FILE; only if {sizes[0]} bytes is the length of the broker's files, correct {directory.setting} in the "
            "configuration"
        )
    return f"correct {directory.setting} in the configuration: each of these files has {sizes[0]} bytes"


def refusals_of_directory(store: Store, directory: StartDirectory, rules: RecoveryRules) -> Iterator[Finding]:
    """Return the faults in a directory. Brokers before 4.5 load the files before the fault, and start.

    Source: store/MappedFileQueue.java load; DLedger's MmapFileList.java load: 4.9.7 and 5.1.4 exited.
    """
    found, size, key, is_dledger = directory
    skips_directories = rules.skips_directories and not is_dledger
    deletes_empty_last = rules.deletes_empty_last and not is_dledger
    for number, entry in enumerate(found):
        is_empty_last = not entry.size_bytes and number == len(found) - 1
        if (entry.is_directory and skips_directories) or (is_empty_last and deletes_empty_last):
            continue
        if entry.size_bytes != size or entry.is_directory or (is_dledger and is_empty_last):
            if rules.refuses_other_sizes or is_dledger:
                yield Finding(
                    store.root, "start-refused", as_text(entry.path), 0, entry.size_bytes,
                    expected=f"{size} bytes ({key})" if size else key,
                    actual="a directory" if entry.is_directory else f"{entry.size_bytes} bytes",
                )
            return
        if not _JAVA_LONG.fullmatch(entry.name) or not -(1 << 63) <= int(entry.name) < 1 << 63:
            yield Finding(
                store.root, "start-refused", as_text(entry.path), expected="a name of 20 digits",
                actual=as_text(entry.name),
            )
            return


def empty_file_refusals(store: Store, fates: Sequence[QueueFate], rules: RecoveryRules) -> Iterator[Finding]:
    """Return the queue files without any slot because of which a broker would exit after it has read its log.

    Source: store/ConsumeQueue.java correctMinOffset; docs/formats/consume_queues.md#empty-file.
    """
    for fate in fates if rules.refuses_empty_queue_file else ():
        if fate.makes_empty_file:
            last = fate.facts.files.segments[-1]
            yield Finding(
                store.root, "start-refused", last.file, last.size_bytes - fate.facts.files.layout.size_bytes,
                expected="a last slot that leads to the last record of the queue",
                actual="one that leads to a place before: the recovery makes the next file, without a slot",
            )
        if (empty := fate.empty_last_file) is not None and empty.base_offset:
            yield Finding(
                store.root, "start-refused", empty.file, 0, empty.size_bytes,
                expected="at least one slot in the last file of a queue", actual="only zeros",
            )


def refusals_of_configuration(store: Store) -> Iterator[Finding]:
    """Return the files of the configuration that a start cannot read, and a checkpoint that is not a file.

    With storeType=defaultRocksDB a broker reads the files too: 5.5.0 exited. With configManagerVersion=v2 it does not
    read those that its database replaces: 5.5.0 started. Where the checkpoint was a directory or a link to itself,
    4.3.0, 4.9.7, 5.1.4 and 5.5.0 exited.
    Source: store/StoreCheckpoint.java, DefaultMessageStore.java load.
    """
    replaced = _IN_SECOND_DATABASE if store.has("config", "rdb", "CURRENT") else ()
    for name in _CONFIGURATIONS:
        if name in replaced or not store.size_bytes("config", f"{name}.bak"):
            continue  # a missing or empty backup is no error: the broker begins with an empty table
        for finding in read_config(store, name).findings:
            if finding.code == "config-damaged":
                yield Finding(store.root, "start-refused", finding.file, expected="JSON", actual=finding.actual)
    yield from _refusal_of_place(store, store.place("checkpoint"))
