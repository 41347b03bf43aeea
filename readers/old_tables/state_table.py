"""Read the state table of brokers 3.0 and 3.1: one slot for each prepared record, overwritten at its decision.

The commit log decides. A slot belongs to the prepared record at its commit-log offset, not to a number: slots are
numbered from 0 again after a crash. Only the table shows whether the broker checks the record (state PREPARED) and
whether it accepts an answer: only if the slot's number is the prepared record's queue offset
(docs/formats/state_table.md#slot).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa

from rmqtx.readers.log.record_layout import COMMIT, PREPARED, ROLLBACK
from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.layout import Field, Layout
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.model.tables import STATE_TABLE
from rmqtx.readers.old_tables.table_files import AllUnits, SoundUnits, TableFiles, place_columns, state_entries
from rmqtx.readers.queues.consume_queue import PRE_BLANK_LENGTH
from rmqtx.readers.queues.unit_files import Units
from rmqtx.readers.store.store import Store

STATE_SLOT = Layout(
    "state_slot",
    "Slot of the state table (3.0, 3.1)",
    (
        Field("commit_log_offset", "q", "commit-log offset of the prepared record, which may be 0", "byte"),
        Field("record_length_bytes", "i", "length of the record; 0 in an unused slot", "byte"),
        Field("store_time_seconds", "i", "broker clock when the record was appended", "s"),
        Field("producer_group_hash", "i", "Java hash of the producer group"),
        Field("state", "i", "4 PREPARED, 8 COMMIT, 12 ROLLBACK"),
    ),
    24,
    "store/transaction/TransactionStateService.java (3.1.4), docs/formats/state_table.md#slot",
    since="3.0.0",
)
STATES: dict[int, str] = {PREPARED: "PREPARED", COMMIT: "COMMIT", ROLLBACK: "ROLLBACK"}
DIRECTORY = ("transaction", "statetable")
KIND = "statetable"
#: The state of a slot that a bundle left out; its only other field is an impossible length.
LEFT_OUT_STATE = int.from_bytes(b"RMQX", "big")


def are_sound(slots: Units) -> Bools:
    """Return which slots are possible by the broker's rule (3.1.4 TransactionStateService recoverStateTableNormal)."""
    sound: Bools = (slots["commit_log_offset"] >= 0) & (slots["record_length_bytes"] > 0)
    return sound & np.isin(slots["state"], list(STATES))


def are_left_out(slots: Units) -> Bools:
    """Return which slots a bundle left out."""
    left_out: Bools = (slots["record_length_bytes"] == PRE_BLANK_LENGTH) & (slots["state"] == LEFT_OUT_STATE)
    return left_out


FILES = TableFiles(DIRECTORY, STATE_SLOT, are_sound, are_left_out, "an offset, a length, and a state of 4, 8 or 12")


class StateSlots(AllUnits):
    """All sound slots of a state table; their records are prepared records."""

    @cached_property
    def states(self) -> Int64s:
        """State of every slot."""
        return self.values("state")


def scan_state_table(store: Store) -> Reading:
    """Return every slot of the state table.

    Shape:  rows of STATE_TABLE, at most 65,536 a batch.
    Units:  `store_time_ms` is in whole seconds, as in the slot.
    Order:  slot number.
    Damage: table-entry-invalid, table-gap, segment-size, stray-file, unreadable-file.
    Source: store/transaction/TransactionStateService.java (3.1.4); docs/formats/state_table.md#slot.
    """
    return FILES.reading(store, STATE_TABLE, _rows, "only masters 3.0 and 3.1 write it")


def state_slots(store: Store, findings: list[Finding]) -> StateSlots | None:
    """Return the whole table; None if there is none (slaves and brokers from 3.2 on do not write it).

    Units:  48 bytes of memory per slot.
    Damage: as `scan_state_table`.
    """
    return FILES.all_units(store, findings, StateSlots)


def state_table_entries(store: Store, findings: list[Finding]) -> pa.Table | None:
    """Return the slots of the state table as rows of STATE_ENTRIES; None if there is no table.

    Shape:  `key` is the slot number, `value` PREPARED, COMMIT or ROLLBACK.
    Order:  slot number.
    Damage: as `scan_state_table`.
    """
    found = state_slots(store, findings)
    return None if found is None else state_entries(store, KIND, found, found.offsets, state_texts(found.states))


def state_texts(states: Int64s) -> pa.Array:
    """Return the names of sound states."""
    return pa.array(list(STATES.values())).take(pa.array(states // PREPARED - 1))


def _rows(store: Store, found: SoundUnits) -> pa.RecordBatch:
    slots = found.units
    columns = [
        *place_columns(store, STATE_SLOT, found),
        pa.array(slots["commit_log_offset"].astype(np.int64)),
        pa.array(slots["record_length_bytes"].astype(np.int32)),
        pa.array(slots["store_time_seconds"].astype(np.int64) * 1000),
        pa.array(slots["producer_group_hash"].astype(np.int32)),
        state_texts(slots["state"].astype(np.int64)),
    ]
    return pa.record_batch(columns, schema=STATE_TABLE)
