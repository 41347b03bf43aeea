"""The setup of a simulation for designs without a half queue: the state table (3.0, 3.1), RocksDB (5.4.0+).

A broker that did not stop cleanly changes its table at its start, before any check: 3.1 rebuilds it from the redo log
and numbers the slots from 0; 5.4.0 and later add the halves of the log after the table's last half. The same is done
here first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.commit_log import scan_segments
from rmqtx.readers.log.designs import PREPARED_RECORDS, ROCKSDB, STATE_TABLE, designs_of
from rmqtx.readers.log.header_doubts import header_findings
from rmqtx.readers.log.op_messages import rocksdb_marks
from rmqtx.readers.log.prepared_records import NO_HASH, OldRecords
from rmqtx.readers.log.record_at import blocks_at
from rmqtx.readers.log.record_layout import PREPARED
from rmqtx.readers.log.transaction_records import JUDGED_HALVES, halves_of
from rmqtx.readers.model.columns import Bools, Int64s, int64s
from rmqtx.readers.model.findings import Finding, one_by_one
from rmqtx.readers.model.releases import HALF_TOPIC_DESIGN, PREPARED_NOT_CHECKED
from rmqtx.readers.model.tables import HALVES
from rmqtx.readers.old_tables.beside_tables import lacks_tables
from rmqtx.readers.old_tables.redo_log import FILES as REDO_FILES
from rmqtx.readers.old_tables.redo_log import rebuilt_offsets, redo_entries
from rmqtx.readers.old_tables.state_table import DIRECTORY, STATE_SLOT, StateSlots, state_slots
from rmqtx.readers.rocksdb.rocksdb_transactions import rocksdb_entries
from rmqtx.readers.store.broker_settings import BrokerSettings, conf_integer
from rmqtx.readers.store.store import ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC, Store
from rmqtx.verdicts.check.check_rules import check_settings
from rmqtx.verdicts.check.stored_records import impossible_values
from rmqtx.verdicts.check.timers_without_copies import AskingSettings, OpenRecord
from rmqtx.verdicts.simulation.beside_simulated import TIMER_INTERVAL_MS, BesideSimulated

#: Interval of a timer of 3.0 and 3.1, and slots per file, unless configured.
TIMER_INTERVAL_KEY = "checkTransactionMessageTimerInterval"
ENABLE_KEY = "checkTransactionMessageEnable"
_FILE_BYTES_KEY, _FILE_BYTES = "tranStateTableMapedFileSize", 2_000_000 * STATE_SLOT.size_bytes


@dataclass(slots=True)
class BesideTables:
    """The tables of a store at the next check of its broker; read once, simulated under any configuration.

    Shape: for the state table a list of (file, open records, whether the file is full).
    """

    store: Store
    designs: tuple[str, ...]
    timers: list[tuple[str, tuple[OpenRecord, ...], bool]] = field(default_factory=list)
    keys: tuple[OpenRecord, ...] | None = None
    timer_words: pa.Table = field(default_factory=HALVES.empty_table)
    key_words: pa.Table = field(default_factory=HALVES.empty_table)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_checked(self) -> bool:
        """Whether a check reads one of the tables."""
        return bool(self.timers) or self.keys is not None

    def simulated(
        self, name: str, settings: BrokerSettings, conf: Mapping[str, str], now_ms: int, *, log_cut: int | None = None
    ) -> list[BesideSimulated]:
        """Return the checks under one configuration. Order: table files, then RocksDB.

        `now_ms`: when a stopped broker is assumed to start. Its timers of 3.0 and 3.1 run one interval later, its check
        of RocksDB at once. `log_cut`: where the next start cuts off the log; it finds no record behind that place.
        """
        root = self.store.root
        interval_ms = conf_integer(conf, TIMER_INTERVAL_KEY, TIMER_INTERVAL_MS, 64)
        first_ms = now_ms if self.store.in_use else now_ms + interval_ms
        found = [
            BesideSimulated(
                root, name, STATE_TABLE, _left(records, log_cut), self.timer_words, first_ms, file, is_full,
                conf.get(ENABLE_KEY, "true").lower() == "true", interval_ms,
            )
            for file, records, is_full in self.timers
        ]
        if self.keys is not None:
            how = check_settings(settings)
            asking = AskingSettings(how.time_out_ms, how.check_max, how.interval_ms)
            found.append(
                BesideSimulated(
                    root, name, ROCKSDB, _left(self.keys, log_cut), self.key_words, now_ms, settings=asking
                )
            )
        return found


def _left(records: tuple[OpenRecord, ...], log_cut: int | None) -> tuple[OpenRecord, ...]:
    """Return the open records of a table after a start: those that it cut off the log cannot be read."""
    if log_cut is None:
        return records
    return tuple(one if one.commit_log_offset < log_cut else one._replace(row=-1) for one in records)


def beside_tables(store: Store, settings: BrokerSettings, conf: Mapping[str, str]) -> BesideTables:
    """Return the tables of other designs in a store; empty in a store with only half topics.

    Damage: as the tables' readers.
    Raises: UnreadableFile, FileChanged.
    """
    found = BesideTables(store, tuple(seen.word for seen in designs_of(store)))
    low = settings.version_low
    asks = low is None or not PREPARED_NOT_CHECKED.holds(low)
    if PREPARED_RECORDS in found.designs or (STATE_TABLE in found.designs and not asks):
        found.notes.append(
            f"{store.root}: its prepared records are never checked: brokers from 3.2 on have no check for them"
        )
    if not found.designs and settings.version_high is not None and not HALF_TOPIC_DESIGN.holds(settings.version_high):
        found.notes.append(
            f"{store.root}: no prepared record was found, and brokers before 4.3 check no other transactions"
        )
    if STATE_TABLE in found.designs and asks:
        _take_state_table(found, conf)
        if settings.broker_role == "SLAVE":
            found.notes.append(f"{store.root}: a slave's timers check nothing: the simulation shows it as a master")
    if ROCKSDB in found.designs:
        _take_rocksdb(found)
        if settings.broker_role == "SLAVE":
            found.notes.append(
                f"{store.root}: a slave checks too, but no producer is connected to it, and transactions that are not"
                " decided in time are dropped from its table"
            )
    return found


# --- 3.0 and 3.1 ------------------------------------------------------------------------------------------------------


def _take_state_table(found: BesideTables, conf: Mapping[str, str]) -> None:
    store = found.store
    slots = state_slots(store, found.findings)
    size = slots.files[0].size_bytes if slots is not None else _FILE_BYTES
    per_file = max(1, conf_integer(conf, _FILE_BYTES_KEY, size, 32) // STATE_SLOT.size_bytes)
    if store.aborted and not store.in_use:
        rebuilt = _rebuilt(found)
        numbers, offsets, is_open = np.arange(len(rebuilt)), rebuilt, np.ones(len(rebuilt), np.bool_)
        found.notes.append(
            f"{store.root}: its broker did not stop cleanly: the next start rebuilds the state table,"
            f" {len(rebuilt)} slots numbered from 0; the rebuilt table is simulated"
        )
    elif slots is None and lacks_tables(store):
        _take_lost_table(found)
        return
    elif slots is None:
        found.notes.append(f"{store.root}: it has no state table, like a slave: nothing is checked")
        return
    else:
        numbers, offsets, is_open = slots.numbers, slots.offsets, slots.states == PREPARED
        found.findings.extend(_contradicted_slots(store, slots, is_open))
    found.timer_words, rows = _words(found, np.unique(offsets[is_open]))
    own = int64s(found.timer_words["queue_offset"])
    for number in np.unique(numbers // per_file).tolist():
        mine = numbers // per_file == number
        records = tuple(
            OpenRecord(rows.get(offset, -1), offset, slot, int(own[rows[offset]]) if offset in rows else None)
            for slot, offset in zip(numbers[mine & is_open].tolist(), offsets[mine & is_open].tolist(), strict=True)
        )
        file = store.place(*DIRECTORY, f"{number * per_file * STATE_SLOT.size_bytes:020d}")
        found.timers.append((file, records, int(mine.sum()) == per_file))


def _contradicted_slots(store: Store, slots: StateSlots, is_open: Bools) -> Iterator[Finding]:
    """Findings for open slots that point to another record than theirs: not a prepared one, or with other values.

    Damage: table-slot-mismatch. A place without a record is reported where its values are read.
    """
    with store.log() as log:
        blocks = list(blocks_at(log, np.unique(slots.offsets[is_open]).tolist()))
    places = np.concatenate([np.empty(0, np.int64), *(block.commit_log_offsets for block in blocks)])
    prepared = OldRecords.joined(OldRecords.of_block(block) for block in blocks).prepared
    known = {
        place: words for place, *words in zip(
            prepared.offsets.tolist(), prepared.lengths.tolist(), prepared.store_seconds.tolist(),
            prepared.group_hashes.tolist(), strict=True,
        )
    }
    found = [slots.values(name) for name in ("record_length_bytes", "store_time_seconds", "producer_group_hash")]
    rows = np.flatnonzero(is_open & np.isin(slots.offsets, places)).tolist()

    def what(row: int) -> str | None:
        """What is at the place of a slot; None if it is the slot's record."""
        words, own = known.get(int(slots.offsets[row])), [int(values[row]) for values in found]
        if words is not None and words[-1] == NO_HASH and words[:-1] == own[:-1]:
            return "unknown: a record there has no producer group that can be read"
        return None if words == own else "another record at its place"

    wrong = {row: text for row in rows if (text := what(row)) is not None}
    for row, more in one_by_one(list(wrong), "slots"):
        yield Finding(
            store.root, "table-slot-mismatch", slots.files[int(slots.file_numbers[row])].file,
            int(slots.positions[row]), STATE_SLOT.size_bytes, commit_log_offset=int(slots.offsets[row]),
            expected="the prepared record of the slot", actual=f"{wrong[row]}{more}",
        )


def _take_lost_table(found: BesideTables) -> None:
    place = found.store.place(*REDO_FILES.directory)
    found.findings.append(Finding(found.store.root, "table-lost", place, actual="no file"))


def _rebuilt(found: BesideTables) -> Int64s:
    """Return the prepared records in the table that a broker rebuilds when it starts."""
    entries = redo_entries(found.store, found.findings)
    if entries is None:
        _take_lost_table(found)
        return np.empty(0, np.int64)
    return rebuilt_offsets(found.store, entries, found.findings)


# --- RocksDB ----------------------------------------------------------------------------------------------------------


def _take_rocksdb(found: BesideTables) -> None:
    store = found.store
    table = rocksdb_entries(store)
    found.findings += table.findings
    if table.entries is None:
        why = "those in RocksDB: their table was not read, so what the check does is unknown"
        found.findings.append(Finding(store.root, "undecidable", actual=why))
        return
    readable = table.entries.filter(pc.is_valid(table.entries["transaction_id"]))
    if readable.num_rows < table.entries.num_rows:
        unread = table.entries.num_rows - readable.num_rows
        found.notes.append(f"{store.root}: {unread} keys of its RocksDB table are skipped: they do not have 3 parts")
    offsets, checks = readable["half_commit_log_offset"].to_pylist(), readable["checks_count"].to_pylist()
    open_checks: dict[int, int] = dict(zip(offsets, checks, strict=True))
    if not table.is_complete:
        _replay(found, open_checks, table.last_offset)
    places = np.array(sorted(open_checks), np.int64)
    found.key_words, rows = _words(found, places)
    words = found.key_words.select(["queue_offset", "born_time_ms", "immunity_seconds"]).to_pylist()
    records = []
    for place in places.tolist():
        row = rows.get(place, -1)
        if row < 0:
            records.append(OpenRecord(row, place, None, None, checks_count=open_checks[place]))
            continue
        number = words[row]["queue_offset"]
        born_ms, immunity = words[row]["born_time_ms"], words[row]["immunity_seconds"]
        records.append(OpenRecord(row, place, number, number, born_ms, open_checks[place], immunity))
    found.keys = tuple(records)


def _replay(found: BesideTables, open_checks: dict[int, int], last_offset: int) -> None:
    """Add to the table the halves of the log after its last half, as a broker does at its start."""
    store = found.store
    added: set[int] = set()
    begin = max(last_offset, store.log_begin_offset)
    for block in scan_segments(store, found.findings, [], from_offset=begin):
        # the last half itself is added again: the broker skips only smaller offsets (its test is `<`)
        halves = block.take(block.topic_is(ROCKSDB_HALF_TOPIC))
        for row in halves_of(halves, store.root, JUDGED_HALVES).to_pylist() if len(halves) else []:
            key = f"{row['real_topic']}{row['transaction_id']}"
            if row["is_indexed"] and "@" not in key:
                open_checks[row["commit_log_offset"]] = 0
                added.add(row["commit_log_offset"])
        ops = block.take(block.topic_is(ROCKSDB_OP_TOPIC))
        named = rocksdb_marks(ops, store.root)["half_commit_log_offset"].to_pylist() if len(ops) else []
        for place in named:
            open_checks.pop(place, None)
    if store.has_own_abort:
        return  # rmqtx changed a store whose broker had written the table: only what an act decided is removed
    left = sum(place in open_checks for place in added)
    why = "its broker is running" if store.in_use else "its broker did not stop cleanly"
    found.notes.append(
        f"{store.root}: {why}: the RocksDB table is as old as its last flush, and the next start adds "
        f"{left} half message{'' if left == 1 else 's'} of the log with 0 checks that no op message removes; the "
        "resulting table is simulated"
    )


def _words(found: BesideTables, offsets: Int64s) -> tuple[pa.Table, dict[int, int]]:
    """Return the records at some places as rows of HALVES, and the row of each place that has one.

    At a place without a record, what the broker checks is unknown.
    """
    store = found.store
    with store.log() as log:
        blocks = list(blocks_at(log, offsets.tolist()))
    table = pa.Table.from_batches([halves_of(block, store.root) for block in blocks], HALVES)
    for block in blocks:  # the header that identifies a record may be damaged
        halves = halves_of(block, store.root, JUDGED_HALVES)
        found.findings.extend(header_findings(block, {"halves": halves}, store.root))
        found.findings.extend(impossible_values(block, store.root))
    rows = {place: row for row, place in enumerate(table["commit_log_offset"].to_pylist())}
    unmet = [place for place in offsets.tolist() if place not in rows and place >= store.log_begin_offset]
    if unmet:
        first = f"first at commit-log offset {unmet[0]}"
        why = f"{len(unmet)} open in the table, {first}: no record of their own is there"
        found.findings.append(Finding(store.root, "undecidable", actual=why))
    return table, rows
