"""What is open in the designs beside half and op topics: prepared records (before 4.3), RocksDB (5.4.0+).

A part of the rule in `judged_copies.py`, copy by copy. In half topics the check cursor shows what is open. These
designs have no cursor: a prepared record is open until a COMMIT or ROLLBACK record names it, and the slots of the state
table (3.0, 3.1) decide whether the broker checks it; a half in RocksDB is open while its key is in the table, or while
the table is older than the half (docs/formats/state_table.md#records,
docs/formats/prepared_records.md#transaction-table, docs/formats/rocksdb_transactions.md#open).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools, Int64s, int64s
from rmqtx.readers.model.releases import HALF_TOPIC_DESIGN, PREPARED_NOT_CHECKED
from rmqtx.readers.old_tables.beside_log import END_ENTRY, NONE, OPEN_SLOT, REDO_LOG, ROCKSDB, STATE_TABLE
from rmqtx.readers.store.store import HALF_TOPIC, ROCKSDB_HALF_TOPIC
from rmqtx.verdicts.check.check_rules import RECORD_AGE_MAY_EQUAL, is_younger
from rmqtx.verdicts.transactions.chains import Chains

if TYPE_CHECKING:
    from rmqtx.verdicts.model.verdict_inputs import StoreView

_KEY_SEPARATOR = "@"


class OtherDesigns:
    """The half copies of other designs.

    Shape: one value per half copy. `is_ahead`: open as far as the store shows, without regard to COMMIT records and op
           messages; `is_unknown`: only the RocksDB table shows whether it is open or dropped, and it was not read;
           `is_dropped`: the broker removed it from that table; `is_slaves_drop`: the broker is a slave, which drops
           what it cannot check, independently of its master (seen on 5.5.0); `is_unindexed`: it never was in the table;
           `is_unreadable_key`: it is there, and the check cannot read it. `checks`: its count in the table, −1 unknown.
           `open_slot`: number of its open slot of the state table, or of its slot in the table after a rebuild, −1
           none; `is_table_unread`: a broker may check it, and its table is missing or damaged; `decided_slot`: number
           of a slot with COMMIT or ROLLBACK; `was_asked`: that slot was open at the given past time, if nothing had
           ended the record then; `has_tables`: whether that table, or the redo log of its
           broker, existed (for a half in RocksDB, its table); `is_rebuilt`: a broker that finds `abort` will rebuild
           the state table; `is_predicted`: the content after the rebuild is known; `is_table_damaged`: because of this
           it is unknown whether it has a slot; `is_uncounted`: a broker may have checked it, and nothing counts the
           checks; `is_ended_beside`: by the state table or the redo log a record ended it.
    """

    def __init__(self, chains: Chains) -> None:
        halves = chains.halves
        count = len(halves)
        topics = halves.table["topic"]
        self.is_rocksdb: Bools = np.asarray(pc.equal(topics, ROCKSDB_HALF_TOPIC))
        self.is_prepared: Bools = ~(np.asarray(pc.equal(topics, HALF_TOPIC)) | self.is_rocksdb | chains.diverted_halves)
        self.is_other = self.is_prepared | self.is_rocksdb
        self.is_ahead = self.is_prepared.copy()
        self.is_unknown, self.is_dropped, self.is_unindexed, self.is_unreadable_key, self.has_tables, self.is_asked = (
            np.zeros(count, np.bool_) for _ in range(6)
        )
        self.is_recorded, self.is_slaves_drop = (np.zeros(count, np.bool_) for _ in range(2))
        self.checks, self.open_slot, self.decided_slot, self.last_offset = (
            np.full(count, NONE, np.int64) for _ in range(4)
        )
        self.never_asks, self.refuses_commit, self.is_unanswerable, self.is_rebuilt, self.may_ask, self.was_asked = (
            np.zeros(count, np.bool_) for _ in range(6)
        )
        self.is_predicted, self.is_table_damaged, self.is_uncounted, self.is_ended_beside, self.is_table_unread = (
            np.zeros(count, np.bool_) for _ in range(5)
        )
        if not self.is_other.any():
            return
        self._offsets = halves.integers("commit_log_offset")
        for name, view in chains.views.items():
            here = halves.are_in([name]) & self.is_other
            prepared, rocksdb = np.flatnonzero(here & self.is_prepared), np.flatnonzero(here & self.is_rocksdb)
            if len(prepared):
                self._read_state_table(prepared, view)
            if len(rocksdb):
                self._read_rocksdb(rocksdb, view, chains)
        self.is_asked = (self.open_slot != NONE) & ~self.never_asks
        # A broker that did not stop cleanly rebuilds its table: then the present numbers no longer count.
        counts = ~self.is_rebuilt | self.is_predicted
        self.is_table_unread = self.may_ask & (~self.has_tables | (self.is_table_damaged & (self.open_slot == NONE)))
        self.is_unanswerable = self.is_asked & counts & (self.open_slot != halves.integers("queue_offset"))
        self.is_uncounted |= self.is_prepared & (self.may_ask | (halves.integers("queue_offset") > 0))

    def _read_state_table(self, rows: Int64s, view: StoreView) -> None:
        low = view.settings.version_low
        self.never_asks[rows] = low is not None and PREPARED_NOT_CHECKED.holds(low)
        self.refuses_commit[rows] = low is not None and HALF_TOPIC_DESIGN.holds(low)
        self.has_tables[rows] = bool(view.beside.kinds & {STATE_TABLE, REDO_LOG})
        self.is_rebuilt[rows] = view.is_interrupted
        high = view.settings.version_high
        self.may_ask[rows] = high is not None and not PREPARED_NOT_CHECKED.holds(high)
        asked, entries = view.beside.rows_of(self._offsets[rows])
        self.is_uncounted[rows[asked]] = True
        found = view.beside.taken(entries)
        is_slot, is_open = (
            np.asarray(pc.equal(found[name], word)) for name, word in (("kind", STATE_TABLE), ("value", OPEN_SLOT))
        )
        slots_of = {"open": is_slot & is_open, "decided": is_slot & ~is_open}
        numbers = {word: int64s(pc.cast(found["key"].filter(pa.array(chosen)), pa.int64()))
                   for word, chosen in slots_of.items()}
        self.decided_slot[rows[asked[slots_of["decided"]]]] = numbers["decided"]
        is_end = np.asarray(pc.and_(pc.equal(found["kind"], REDO_LOG), pc.equal(found["value"], END_ENTRY)))
        self.is_ended_beside[rows[asked[slots_of["decided"] | is_end]]] = view.at_ms is None
        # A slot is decided once and stays decided: before that it was open.
        self.was_asked[rows] = (view.at_ms is not None) & (self.decided_slot[rows] != NONE) & ~self.never_asks[rows]
        beside = view.beside
        rebuilt = beside.rebuilt
        if rebuilt is None:
            self.open_slot[rows[asked[slots_of["open"]]]] = numbers["open"]
            self.is_table_damaged[rows] = STATE_TABLE in beside.damaged
            return
        self.is_predicted[rows] = True
        if len(rebuilt):
            places = np.minimum(np.searchsorted(rebuilt, self._offsets[rows]), len(rebuilt) - 1)
            held = rebuilt[places] == self._offsets[rows]
            self.open_slot[rows[held]] = places[held]

    def _read_rocksdb(self, rows: Int64s, view: StoreView, chains: Chains) -> None:
        table = chains.halves.table.take(pa.array(rows))
        indexed = np.asarray(pc.fill_null(table["is_indexed"], False))
        # With "skip", Arrow drops rows with both values null: halves whose properties cannot be read.
        words = pc.binary_join_element_wise(
            table["real_topic"], table["transaction_id"], "", null_handling="replace", null_replacement=""
        )
        self.is_unindexed[rows] = ~indexed
        self.is_unreadable_key[rows] = np.asarray(pc.match_substring(words, _KEY_SEPARATOR))
        if ROCKSDB in view.beside.kinds:
            self._read_rocksdb_table(rows, view, indexed)
        else:
            self._estimate_rocksdb(rows, view, table, indexed)

    def _estimate_rocksdb(self, rows: Int64s, view: StoreView, table: pa.Table, indexed: Bools) -> None:
        """Without the table: a half is in it if the check cannot have dropped it yet; else that is unknown."""
        stored_ms, settings = int64s(table["store_time_ms"]), view.settings
        # The check drops a half after transactionCheckMax + 1 checks, the first one not before the timeout, which
        # counts from the born time of the client; it cannot drop a half earlier. During its immunity a half is
        # never checked. Every start of a broker is one more round, maybe with other settings: files show neither, so
        # there only immunity is a proof.
        first_ms = np.maximum(stored_ms, int64s(table["born_time_ms"]) + settings.transaction_time_out_ms)
        drops_after_ms = settings.transaction_check_max * settings.transaction_check_interval_ms
        is_young = np.full(len(rows), settings.check_max_is_configured and view.booted_time_ms is not None)
        is_young &= view.reference_time_ms - first_ms < drops_after_ms
        if view.booted_time_ms is not None:
            is_young &= stored_ms >= view.booted_time_ms
        immunity_ms = int64s(table["immunity_seconds"], 0) * 1000
        age_ms = view.reference_time_ms - int64s(table["born_time_ms"])
        is_young |= is_younger(age_ms, immunity_ms, RECORD_AGE_MAY_EQUAL)
        self.is_ahead[rows] = indexed & is_young
        self.is_unknown[rows] = indexed & ~is_young

    def _read_rocksdb_table(self, rows: Int64s, view: StoreView, indexed: Bools) -> None:
        offsets = self._offsets[rows]
        self.has_tables[rows] = True
        asked, entries = view.beside.rows_of(offsets)
        found = view.beside.taken(entries)
        is_key = np.asarray(pc.equal(found["kind"], ROCKSDB))
        recorded = np.zeros(len(rows), np.bool_)
        recorded[asked[is_key]] = True
        self.checks[rows[asked[is_key]]] = int64s(pc.cast(found["value"].filter(pa.array(is_key)), pa.int64()))
        last = view.beside.rocksdb_last_offset
        # After a kill the recovery adds the half at the last offset again (its test is `<`).
        is_newer = (offsets > last) | ((offsets == last) & view.is_interrupted)
        self.last_offset[rows] = last
        self.is_recorded[rows] = recorded
        self.is_ahead[rows] = indexed & (recorded | is_newer)
        self.is_dropped[rows] = indexed & ~recorded & ~is_newer
        self.is_slaves_drop[rows] = self.is_dropped[rows] & (view.settings.broker_role == "SLAVE")


def state_entries_of(chains: Chains, kind: pa.DataType) -> pa.Array:
    """Return the table entries of each transaction, as the evidence list of TRANSACTIONS.

    Order: of the half copies; last those of prepared records that have left the log.
    """
    numbers: list[Int64s] = []
    found: list[pa.Table] = []
    gone = chains.marks.table.filter(pa.array(chains.half_of_mark < 0)) if len(chains.marks) else None
    for name, view in chains.views.items():
        if not view.beside.entries.num_rows:
            continue
        here = np.flatnonzero(chains.halves.are_in([name]))
        offsets, owners = chains.halves.integers("commit_log_offset")[here], chains.halves.number[here]
        if gone is not None and gone.num_rows:
            lost = np.flatnonzero(chains.half_of_mark < 0)
            lost = lost[np.asarray(pc.equal(gone["store"], name))]
            named, first = np.unique(chains.marks.integers("half_commit_log_offset")[lost], return_index=True)
            offsets, owners = np.append(offsets, named), np.append(owners, chains.marks.number[lost[first]])
        asked, rows = view.beside.rows_of(offsets)
        numbers.append(owners[asked])
        found.append(view.beside.taken(rows))
    owner = np.concatenate([np.empty(0, np.int64), *numbers])
    order = np.argsort(owner, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=chains.count))]).astype(np.int32)
    fields = list(kind.value_type)
    if not found:
        return pa.ListArray.from_arrays(pa.array(starts), pa.array([], kind.value_type), type=kind)
    table = pa.concat_tables(found).take(pa.array(order)).combine_chunks()
    arrays = [pa.concat_arrays(table[field.name].chunks) if table.num_rows else pa.array([], field.type)
              for field in fields]
    return pa.ListArray.from_arrays(
        pa.array(starts), pa.StructArray.from_arrays(arrays, fields=fields), type=kind
    )
