"""State tables of 3.1 of a few slots: which timers run on after a start, and what is found at the places of slots."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from rmqtx.readers.log.record_layout import AT, COMMIT, PREPARED
from rmqtx.readers.old_tables.redo_log import FILES as REDO_FILES
from rmqtx.readers.old_tables.state_table import STATE_SLOT
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.check.timers_without_copies import CANCELLED, END
from rmqtx.verdicts.simulation.simulation_without_queue import BesideTables, beside_tables
from tests.forge.damage import flip_byte
from tests.forge.logs import java_hash
from tests.verdicts.transactions.test_forged_designs import Old


def tabled(root: Path, slots: list[tuple[int, int]]) -> None:
    """A state table that is full of slots for these places and states."""
    folder = root / "transaction" / "statetable"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(b"".join(
        STATE_SLOT.pack(
            commit_log_offset=place, record_length_bytes=200, store_time_seconds=1_700_000_000,
            producer_group_hash=java_hash("shop"), state=state,
        )
        for place, state in slots
    ))


def tables(root: Path, conf: dict[str, str]) -> BesideTables:
    store = open_store(root)
    return beside_tables(store, broker_settings(store, version="3.1.4"), conf)


def test_a_timer_runs_on_as_long_as_its_file_has_room(tmp_path: Path) -> None:
    """By the configured size of a file, which may be anything up to 2 GiB - 1: of 3.1.4, an int."""
    forge = Old(tmp_path / "store")
    places = [forge.prepared(), forge.prepared()]
    root = forge.write(half_cursor=None, op_cursor=None)
    tabled(root, [(place, COMMIT) for place in places])
    for size_bytes, stop in ((48, CANCELLED), (3 << 29, END), ((1 << 31) - 1, END), (1 << 31, CANCELLED)):
        conf = {"tranStateTableMapedFileSize": str(size_bytes)}
        store = open_store(root)
        (timer,) = tables(root, conf).simulated("", broker_settings(store, version="3.1.4"), conf, 0)
        assert [played.stop for played in islice(timer.rounds(), 2)] == [stop] * (1 if stop == CANCELLED else 2)


def test_a_damaged_record_that_two_open_slots_lead_to_is_one_finding(tmp_path: Path) -> None:
    forge = Old(tmp_path / "store")
    place = forge.prepared()
    root = forge.write(half_cursor=None, op_cursor=None)
    tabled(root, [(place, PREPARED), (place, PREPARED)])
    before = [one.code for one in tables(root, {}).findings]
    flip_byte(root / "commitlog" / f"{0:020d}", place + AT["store_address"] + 4, 0x80)
    found = tables(root, {})
    assert before.count("record-header") == 0
    assert [one.code for one in found.findings].count("record-header") == 1
    assert [len(records) for _, records, _ in found.timers] == [2]


def test_an_open_slot_that_leads_to_no_record_is_reported_with_its_place(tmp_path: Path) -> None:
    """What the timer asks about it is unknown; without the finding the simulation would end with status 0."""
    forge = Old(tmp_path / "store")
    places = [forge.prepared(), forge.prepared()]
    root = forge.write(half_cursor=None, op_cursor=None)
    tabled(root, [(places[0], PREPARED), (places[1] + 8, PREPARED)])
    found = [one.actual for one in tables(root, {}).findings if one.code == "undecidable"]
    assert found == [
        f"1 open in the table, first at commit-log offset {places[1] + 8}: no record of their own is there"
    ]


def test_a_killed_broker_rebuilds_its_table_and_that_is_noted(tmp_path: Path) -> None:
    """Else an operator reads slot numbers that the store does not have now."""
    forge = Old(tmp_path / "store")
    place = forge.prepared()
    root = forge.write(half_cursor=None, op_cursor=None)
    tabled(root, [(place, PREPARED)])
    assert not any("rebuilds the state table" in note for note in tables(root, {}).notes)
    (root / "abort").touch()
    folder = root.joinpath(*REDO_FILES.directory)
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(bytes(1_000))
    (note,) = [note for note in tables(root, {}).notes if "rebuilds the state table" in note]
    assert "slots numbered from 0; the rebuilt table is simulated" in note


def test_a_redo_log_without_a_state_table_is_that_of_a_slave_and_no_lost_table(tmp_path: Path) -> None:
    forge = Old(tmp_path / "store")
    forge.prepared()
    root = forge.write(half_cursor=None, op_cursor=None)
    folder = root.joinpath(*REDO_FILES.directory)
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(bytes(1_000))
    found = tables(root, {})
    assert "table-lost" not in {one.code for one in found.findings}
    assert any("it has no state table, like a slave" in note for note in found.notes)
