"""Rebuilding derived files from the log: a copy of a store with queues, index or checkpoint made from its records.

The original store is not changed. Everything that the log does not determine stays as it was: queues without a record
(their records have expired, and queue offsets continue), the checkpoint's offsets of replicas, the configuration.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.log.commit_log import log_bytes, scan_segments
from rmqtx.readers.log.header_rules import plausible_times
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.errors import BadRequest, NotAStore, StoreInUse
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.reading import Coverage
from rmqtx.readers.model.releases import INDEX_TAGS
from rmqtx.readers.old_tables.beside_tables import has_tables
from rmqtx.readers.old_tables.redo_log import DIRECTORY as REDO_DIRECTORY
from rmqtx.readers.old_tables.state_table import DIRECTORY as TABLE_DIRECTORY
from rmqtx.readers.queues.slot_files import BATCH, SIMPLE
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.checkpoint import CHECKPOINT_FIELDS, SIZE_BYTES, checkpoint_values, flushed_time_ms
from rmqtx.readers.store.store import Store
from rmqtx.readers.store.version_signs import rust_mark
from rmqtx.repairs.changes.clones import COMMIT_LOG, copy_tree
from rmqtx.repairs.changes.fingerprints import require_links_inside
from rmqtx.repairs.changes.new_stores import Progress, new_store, refuse_within, write_at
from rmqtx.repairs.changes.store_lock import store_shared
from rmqtx.repairs.rebuild.index import IndexBuilder
from rmqtx.repairs.rebuild.queues import QueueBuilder
from rmqtx.repairs.rebuild.state_table import StateTableBuilder, TableSizes, table_sizes
from rmqtx.repairs.records.store_sizes import EXTENSION, StoreSizes
from rmqtx.verdicts.claims.log_agreement import missing_findings
from rmqtx.verdicts.claims.log_claims import log_claims
from rmqtx.verdicts.evidence.store_facts import FLUSH_LAG_MS_MAX, known_until_ms
from rmqtx.verdicts.verify.index_entries import newest_entries_have_tags

QUEUES, INDEX, CHECKPOINT = "queues", "index", "checkpoint"
PARTS = (QUEUES, INDEX, CHECKPOINT)
#: Further derived files of brokers 3.0 and 3.1.
STATE_TABLE, REDO_LOG = "statetable", "redolog"
OLD_PARTS = (STATE_TABLE, REDO_LOG)
TABLES = TABLE_DIRECTORY[0]


@dataclass(slots=True)
class Rebuilt:
    """The result of a rebuild: counts, and findings about the log.

    Shape: `lost_numbers_count`: queue offsets whose records are not in the log; `is_clean`: the new store is marked as
           stopped cleanly, and all its derived files were rebuilt.
    """

    findings: list[Finding] = field(default_factory=list)
    coverage: list[Coverage] = field(default_factory=list)
    records_count: int = 0
    queues_count: int = 0
    kept_queues: list[tuple[str, int]] = field(default_factory=list)
    slots_count: int = 0
    lost_numbers_count: int = 0
    index_files_count: int = 0
    index_entries_count: int = 0
    checkpoint: Mapping[str, int] = field(default_factory=dict)
    state_slots_count: int = 0
    open_slots_count: int = 0
    redo_entries_count: int = 0
    is_clean: bool = False


@dataclass(slots=True)
class DerivedBuilder:
    """Builds the requested derived files of a store below `root` from blocks in the order of the log.

    `with_tags`: the index contains tags too, as that of 5.5.0 does. `made_from`: the store that the
    records come from, if `store` is new.
    Raises: OSError where a file cannot be written.
    """

    parts: frozenset[str]
    store: Store
    root: Path
    sizes: StoreSizes
    with_tags: bool = False
    table_sizes: TableSizes | None = None
    made_from: Store | None = None
    made: Rebuilt = field(default_factory=Rebuilt)
    _queues: QueueBuilder = field(init=False)
    _index: IndexBuilder = field(init=False)
    _tables: StateTableBuilder | None = None
    _last_time_ms: int = 0

    def __post_init__(self) -> None:
        extended = {(os.fsencode(topic), number) for topic, number in self.store.queues(EXTENSION)}
        self._queues = QueueBuilder(self.store, self.root, self.sizes, frozenset(extended))
        is_rust = rust_mark(self.store) is not None
        self._index = IndexBuilder(self.root, self.sizes, with_tags=self.with_tags, with_typed_ids=is_rust)
        if self.parts & set(OLD_PARTS):
            self._tables = StateTableBuilder(self.store, self.root, self.table_sizes or table_sizes(self.store))

    def add(self, block: Block) -> None:
        """Add the records of a block."""
        if not len(block):
            return
        self.made.records_count += len(block)
        self._last_time_ms = max(self._last_time_ms, int(plausible_times(block).max()))
        if QUEUES in self.parts:
            self._queues.add(block)
        if INDEX in self.parts:
            self._index.add(block)
        if self._tables is not None:
            self._tables.add(block)

    def finish(self) -> Rebuilt:
        """Write what is still in memory, and the checkpoint."""
        made = self.made
        if QUEUES in self.parts:
            queues = self._queues.finish()
            made.queues_count = len(queues)
            made.slots_count = sum(queue.slots_count for queue in queues.values())
            made.lost_numbers_count = sum(high - low for queue in queues.values() for low, high, _, _ in queue.lost)
            made.findings.extend(self._queues.findings)
        if INDEX in self.parts:
            made.index_files_count = self._index.finish()
            made.index_entries_count = self._index.entries_count
        if self._tables is not None:
            self._finish_tables(self._tables)
        if CHECKPOINT in self.parts:
            made.checkpoint = write_checkpoint(
                self.root, self.store, self.made_from or self.store, log_time_ms=self._last_time_ms,
                queues_time_ms=self._last_time_ms,
                index_time_ms=self._index_time_ms(),
            )
        return made

    def _finish_tables(self, tables: StateTableBuilder) -> None:
        if STATE_TABLE in self.parts:
            tables.write_table()
        if REDO_LOG in self.parts:
            tables.write_redo_log()
        made = self.made
        made.state_slots_count, made.open_slots_count = tables.slots_count, tables.open_count
        made.redo_entries_count = tables.entries_count
        made.findings.extend(tables.findings)

    def _index_time_ms(self) -> int:
        """Store time of the last entry of the last full index file."""
        if INDEX in self.parts:
            return self._index.completed_time_ms
        known = checkpoint_values(self.store).get("index_msg_time_ms", 0)
        return known if 0 <= known <= self._last_time_ms else 0


def index_has_tags(store: Store, settings: BrokerSettings) -> bool:
    """Whether a store's broker indexes tags (5.5.0): by its version, else by the newest entries."""
    known = INDEX_TAGS.between(settings.version_low, settings.version_high)
    if settings.known_version is not None or known is False:
        return known is True
    return newest_entries_have_tags(store)


def rebuild(
    parts: Iterable[str], store: Store, target: Path, sizes: StoreSizes, *, with_tags: bool = False,
    conf: Mapping[str, str] | None = None, progress: Progress | None = None,
) -> Rebuilt:
    """Make a copy of a store at `target`, with some of PARTS and OLD_PARTS rebuilt from its log.

    A broker that did not stop cleanly deletes its state table at its start: for the store of such a broker, STATE_TABLE
    rebuilds everything, and the copy is marked as stopped cleanly.

    `conf`: the broker's configuration, for the lengths of OLD_PARTS.

    Damage: findings and coverage of the log's reading; damaged records are in no queue and no index.
    Raises: BadRequest, StoreInUse, NotAStore, UnreadableFile, UnwritableFile.
    """
    wanted = frozenset(parts)
    if is_made_clean(wanted, store):
        wanted = frozenset((*PARTS, *OLD_PARTS))
    _refuse(wanted, store, conf or {})
    refuse_within(target, store.root, store.commit_log_directories)
    require_links_inside(store.root)
    total = log_bytes(store.commit_log)
    with store_shared(store.root), new_store(target) as root:
        tables = table_sizes(store, conf) if wanted & set(OLD_PARTS) else None
        builder = DerivedBuilder(wanted, store, root, sizes, with_tags, tables)
        made = builder.made
        made.is_clean = is_made_clean(wanted, store)
        made.findings.extend(store.findings)
        made.findings.extend(missing_findings(store, log_claims(store, check_cursors(store))))
        done = 0
        for block in scan_segments(store, made.findings, made.coverage):
            builder.add(block)
            done += int(block.lengths.sum())
            if progress is not None:
                progress(min(done, total), total)
        builder.finish()
        _copy_rest(wanted, store, root, made)
    return made


def _refuse(parts: frozenset[str], store: Store, conf: Mapping[str, str]) -> None:
    if store.is_remote:
        raise BadRequest(f"{store.root} is not on this machine", advice="copy the store to this machine first")
    if store.in_use:
        raise StoreInUse(
            f"{store.root} is in use by a broker (process {store.used_by_process})",
            advice="stop the broker, or give a copy of the store",
        )
    if not store.commit_log:
        raise NotAStore(f"{store.root} has no commit log", advice="to search files for records: rmqtx salvage")
    if store.is_dledger:
        raise BadRequest(
            f"the commit log of {store.root} is a DLedger log", advice="its broker rebuilds derived files by itself"
        )
    if parts & set(OLD_PARTS) and not has_tables(store):
        raise BadRequest(
            f"{store.root} has neither state table nor redo log", advice="only stores of brokers 3.0 and 3.1 have them"
        )
    if QUEUES in parts and (store.has_rocksdb_queues or conf.get("storeType") == "defaultRocksDB"):
        raise BadRequest(
            f"the consume queues of {store.root} are in RocksDB, and its broker does not read queue files",
            advice="to have them again: move the directory of their database out of the store, and the broker's start "
            "writes it from the log",
        )


def is_made_clean(parts: Iterable[str], store: Store) -> bool:
    """Whether a copy with these parts rebuilt is marked as stopped cleanly although the broker did not stop so."""
    return STATE_TABLE in parts and store.aborted


def _is_found(directory: Path, root: Path) -> bool:
    """Whether a directory of the log is one that a store at `root` has without a configuration."""
    return directory.parent == root and directory.name.startswith(COMMIT_LOG)


def _copy_rest(parts: frozenset[str], store: Store, root: Path, made: Rebuilt) -> None:
    """Copy everything that was not rebuilt, and the queues without a record in the log.

    A log in another directory is copied to `commitlog/`, where a broker and rmqtx look for it.
    """
    own = {
        QUEUES: {SIMPLE, BATCH, EXTENSION},
        INDEX: {"index"},
        CHECKPOINT: {"checkpoint"},
        STATE_TABLE: {TABLES},
        REDO_LOG: {TABLES},
    }
    left_out = {name for part in parts for name in own[part]}
    if made.is_clean:
        left_out.add("abort")
    old = Path(store.root)
    directories = map(Path, store.commit_log_directories)
    logs = [one for one in directories if one.is_dir() and not _is_found(one, old)]
    left_out |= {one.name for one in logs if one.parent == old}
    segments = {Path(segment.file).name for segment in store.commit_log}
    if old in logs:  # a directory of log files alone
        left_out |= segments
    copy_tree(old, root, frozenset(left_out))
    for log in logs:
        copy_tree(log, root / COMMIT_LOG, frozenset(entry.name for entry in log.iterdir()) - segments)
    if TABLES in left_out:
        rebuilt = {STATE_TABLE: TABLE_DIRECTORY[1], REDO_LOG: REDO_DIRECTORY[1]}
        without = frozenset(rebuilt[part] for part in rebuilt if part in parts)
        copy_tree(old / TABLES, root / TABLES, without, root=old)
    for kind in (SIMPLE, BATCH, EXTENSION) if QUEUES in parts else ():
        for topic, number in store.queues(kind):
            place = root / kind / topic / str(number)
            if not place.exists() and store.queue_segments(topic, number, kind)[0]:
                copy_tree(Path(store.queue_directory(topic, number, kind)), place, root=old)
                made.kept_queues.append((topic, number))


def write_checkpoint(
    root: Path, store: Store | None, made_from: Store | None, *, log_time_ms: int, queues_time_ms: int,
    index_time_ms: int,
) -> dict[str, int]:
    """Write the checkpoint of a store below `root`, and return its values.

    `log_time_ms`, `queues_time_ms`: store time of the last record of the log, and of the last one in a queue;
    `index_time_ms`: that of the last entry of the last full index file. Offsets confirmed by replicas are taken from
    the checkpoint of `store` as far as the log reaches, because no record contains them. The offset of the last record
    in the queues (5.5.0) stays 0, as after a clean stop of that version. Records that rmqtx wrote while the broker of
    `made_from`, the store that the records come from, was stopped do not count: no other file shows until when that
    broker ran.
    Raises: OSError.
    Source: store/StoreCheckpoint.java; docs/formats/store.md#checkpoint.
    """
    known = {} if store is None else checkpoint_values(store)
    values = {
        "physic_msg_time_ms": log_time_ms,
        "logics_msg_time_ms": queues_time_ms,
        "index_msg_time_ms": index_time_ms,
    }
    if store is not None and store.commit_log:
        for name in ("master_flushed_offset", "confirm_offset"):
            if 0 <= known.get(name, 0) <= store.commit_log[-1].end_offset:
                values[name] = known.get(name, 0)
    end_ms = None if made_from is None else _broker_end_ms(made_from)
    if end_ms is not None and log_time_ms > end_ms + FLUSH_LAG_MS_MAX:
        values |= {"physic_msg_time_ms": end_ms, "logics_msg_time_ms": end_ms}
    (root / "checkpoint").unlink(missing_ok=True)
    write_at(root / "checkpoint", SIZE_BYTES, 0, CHECKPOINT_FIELDS.pack(**values).ljust(SIZE_BYTES, b"\0"))
    return values


def _broker_end_ms(store: Store) -> int | None:
    """Until when the broker of a store ran, where it stopped cleanly; None if unknown."""
    if store.in_use or store.was_killed or not flushed_time_ms(store):
        return None
    return known_until_ms(store)
