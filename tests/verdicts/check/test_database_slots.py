"""The check of queues in RocksDB is predicted where each slot from its cursors on has a record; else nothing is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.rocksdb.database_slots import UnknownSlots, slots_after_start
from rmqtx.readers.rocksdb.rocksdb_queues import SLOT_VALUE, slot_key
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, Store, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.check.check_rules import check_rules
from rmqtx.verdicts.check.window import check_window
from rmqtx.verdicts.simulation.simulation_setup import SimulatedConfiguration, simulated_checks
from rmqtx.verdicts.simulation.simulation_tables import transaction_rows
from tests.forge.damage import flip_byte, log_files
from tests.forge.rocksdb import changed_database
from tests.forge.stores import copy_of, opened, settings_of

#: Of the commit-log offset in the header of a record.
_OWN_PLACE_AT = 28
CLEAN, KILLED = "rocksdb-queues-5.5.0", "rocksdb-queues-killed-5.5.0"


def events(store: Store, name: str) -> set[str]:
    """What happens next to the open transactions of a store."""
    rows = audit([store], settings_of(name)).table().to_pylist()
    return {row["next_event"] for row in rows if row["state"] == "PENDING"}


def simulate(store: Store, name: str) -> int:
    """The number of half messages that the check of a store handles."""
    settings = settings_of(name)(store)
    as_is = SimulatedConfiguration("as is", settings, settings.given or {})
    checks, _, _ = simulated_checks(store, [as_is], check_cursors(store), store.taken_time_ms)
    return sum(transaction_rows(check).num_rows for check in checks)


@pytest.mark.parametrize("name", [CLEAN, KILLED])
def test_a_store_that_a_broker_left_is_predicted(name: str) -> None:
    """The killed broker left an empty database: the next start writes its slots again."""
    assert events(opened(name), name) == {"asked"}
    assert simulate(opened(name), name) >= 6


@pytest.mark.parametrize("name", [CLEAN, KILLED])
def test_the_slots_are_those_of_the_records(name: str) -> None:
    found = slots_after_start(opened(name), (HALF_TOPIC, OP_TOPIC), 0)
    records = scan_records(opened(name)).table().to_pylist()
    for topic, slots in found.items():
        mine = [row for row in records if row["topic"] == topic and row["queue_id"] == 0]
        assert slots.numbers.tolist() == [row["queue_offset"] for row in mine] == list(range(len(mine)))
        assert slots.offsets.tolist() == [row["commit_log_offset"] for row in mine]
        assert slots.lengths.tolist() == [row["length_bytes"] for row in mine]


@pytest.mark.parametrize("topic", [HALF_TOPIC, OP_TOPIC])
def test_a_running_store_is_predicted_unless_a_cursor_is_newer_than_the_slots(topic: str) -> None:
    """The cursors are read after the slots."""
    running, rules = replace(opened(CLEAN), used_by_process=1), check_rules((5, 5, 0))
    slots = slots_after_start(running, (HALF_TOPIC, OP_TOPIC), 0)
    cursors = {name: one.end for name, one in slots.items()}
    window = check_window(running, rules, 0, cursors[HALF_TOPIC], cursors[OP_TOPIC])
    assert (window.state.half_end, window.state.op_end) == (cursors[HALF_TOPIC], cursors[OP_TOPIC])
    cursors[topic] += 1
    with pytest.raises(UnknownSlots, match="grows while it is read"):
        check_window(running, rules, 0, cursors[HALF_TOPIC], cursors[OP_TOPIC])


def slot_gone(root: Path) -> None:
    with changed_database(root / "consumequeue") as database:
        del database[slot_key(HALF_TOPIC, 0, 5)]


def slot_of_another_record(root: Path) -> None:
    """The last slot, so that the places still ascend."""
    last = int(slots_after_start(open_store(root), (HALF_TOPIC,), 0)[HALF_TOPIC].numbers[-1])
    with changed_database(root / "consumequeue") as database:
        key = slot_key(HALF_TOPIC, 0, last)
        value = SLOT_VALUE.unpack(database[key])
        database[key] = SLOT_VALUE.pack(**{**value, "commit_log_offset": value["commit_log_offset"] + 8})


def entry_of_another_form(root: Path) -> None:
    with changed_database(root / "consumequeue") as database:
        database[slot_key(HALF_TOPIC, 0, 5)] += b"more"


def body_damaged(root: Path) -> None:
    """The last record of the log: a start that reads it ends the log there."""
    row = scan_records(open_store(root)).table().to_pylist()[-1]
    flip_byte(log_files(root)[0].parent / Path(row["file"]).name, row["position_bytes"] + 90)


def magic_damaged(root: Path) -> None:
    row = scan_records(open_store(root)).table().to_pylist()[-2]
    flip_byte(log_files(root)[0].parent / Path(row["file"]).name, row["position_bytes"] + 5)


def second_database(root: Path) -> None:
    (root / "consumequeue_rocksdb").mkdir()
    for file in (root / "consumequeue").iterdir():
        if file.is_file():
            (root / "consumequeue_rocksdb" / file.name).write_bytes(file.read_bytes())


def flip_own_place(root: Path, byte: int, turn: int = -1) -> None:
    """Of the last half message, or another one; the highest byte is 0."""
    row = [one for one in scan_records(open_store(root)).table().to_pylist() if one["topic"] == HALF_TOPIC][turn]
    flip_byte(log_files(root)[0].parent / Path(row["file"]).name, row["position_bytes"] + _OWN_PLACE_AT + byte)


def own_place_far(root: Path) -> None:
    """A start dispatches the record again, to the place that its header names (history 1400031)."""
    flip_own_place(root, 4)


@pytest.mark.parametrize(
    "change",
    [
        own_place_far, slot_gone, slot_of_another_record, entry_of_another_form, body_damaged, magic_damaged,
        second_database,
    ],
)
def test_anything_else_is_not_predicted(change: Callable[[Path], None], tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path)
    change(root)
    assert events(open_store(root), CLEAN) <= {"unknown", "none"}
    with pytest.raises(UnknownSlots):
        simulate(open_store(root), CLEAN)


def test_a_record_whose_own_place_is_before_the_end_of_its_queue_keeps_its_slot(tmp_path: Path) -> None:
    """Played on 5.3.3, 5.4.0 and 5.5.0; and on 5.2.0 and 5.3.0 wherever that place is."""
    near, far = copy_of(CLEAN, tmp_path / "near"), copy_of(CLEAN, tmp_path / "far")
    flip_own_place(near, 7, -3)
    assert simulate(open_store(near), CLEAN) == simulate(opened(CLEAN), CLEAN)
    own_place_far(far)
    settings = broker_settings(open_store(far), conf=settings_of(CLEAN)(open_store(far)).given, version="5.3.0")
    as_is = SimulatedConfiguration("as is", settings, settings.given or {})
    assert simulated_checks(open_store(far), [as_is], check_cursors(open_store(far)), open_store(far).taken_time_ms)[0]


def test_a_log_that_lacks_a_record_is_not_predicted(tmp_path: Path) -> None:
    """Of a killed broker the database is empty: a half message that cannot be read leaves a gap in the numbers."""
    root = copy_of(KILLED, tmp_path)
    rows = [row for row in scan_records(open_store(root)).table().to_pylist() if row["topic"] == HALF_TOPIC]
    flip_byte(log_files(root)[0].parent / Path(rows[-2]["file"]).name, rows[-2]["position_bytes"] + 5)
    assert "asked" not in events(open_store(root), KILLED)
    with pytest.raises(UnknownSlots):
        simulate(open_store(root), KILLED)


def test_a_record_without_a_slot_that_names_another_place_is_not_predicted(tmp_path: Path) -> None:
    """History 1400052 on 5.2.0 to 5.5.0: its new slot leads to the place that it names, and the check passes it."""
    root = copy_of(KILLED, tmp_path)
    flip_own_place(root, 7, -3)
    assert "asked" not in events(open_store(root), KILLED)
    with pytest.raises(UnknownSlots, match="as its own place"):
        simulate(open_store(root), KILLED)
