"""Acts on the files of brokers before 4.3, and of later ones that go on with them: stores of real brokers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmqtx.readers.jobs.job_runner import run_job
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.model.errors import StoreInUse, UnsafeStore
from rmqtx.readers.old_tables.redo_log import REDO_ENTRY, redo_entries
from rmqtx.readers.old_tables.state_table import STATE_SLOT, state_slots
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from rmqtx.repairs.acts import file_medium
from rmqtx.repairs.acts.guards import refusals
from rmqtx.repairs.acts.log_tail import log_end
from rmqtx.repairs.acts.old_table_entries import why_not_dispatched
from rmqtx.repairs.acts.situation import ActRequest
from rmqtx.repairs.changes.execution import Destination, undo
from rmqtx.repairs.changes.store_lock import require_not_mapped
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.records.record_writer import draft_of
from rmqtx.verdicts.verify.verify import Verify
from tests.forge.stores import copy_of
from tests.repairs.acting import act, content, medium_of, rows_of
from tests.repairs.log_records import number, records
from tests.representatives import rest_is_slow

#: Store of the corpus → the broker that is to open it.
STORES = {
    "statetable-3.1.4": "3.1.4", "statetable-killed-3.1.4": "3.1.4", "statetable-recovered-3.1.4": "3.1.4",
    "statetable-slave-3.1.4": "3.1.4", "upgraded-3.1.4-3.2.6": "3.2.6", "prepared-3.2.6": "3.2.6",
    "prepared-killed-3.2.6": "3.2.6", "prepared-4.2.0": "4.2.0", "prepared-killed-4.2.0": "4.2.0",
    "upgraded-4.2.0-4.3.0": "4.3.0", "upgraded-4.2.0-4.9.7": "4.9.7",
}
EFFECT = {"commit": "COMMITTED", "rollback": "ROLLED_BACK", "discard": "ROLLED_BACK"}


def prepared_rows(rows: dict[str, dict[str, Any]]) -> list[str]:
    """The pending transactions whose half copy is a prepared record, those with their own queue first."""
    found = [
        name for name, row in rows.items() if row["state"] == "PENDING" and row["reason"].startswith("prepared record")
    ]
    finals = [final for row in rows.values() for final in row["final_records"]]
    queues = {(final["topic"], final["queue_id"]) for final in finals}
    return sorted(found, key=lambda name: (rows[name]["topic"], rows[name]["queue_id"]) not in queues)


def graver(root: Path, version: str) -> list[tuple[str, int | None]]:
    """What the check of a store finds above a note: kind and place."""
    rows = run_job(Verify(version=version), plan_splits([open_store(root)])).table().to_pylist()
    return [(row["code"], row["commit_log_offset"]) for row in rows if row["severity"] != "note"]


@pytest.mark.parametrize("name", rest_is_slow(STORES, quick=4))
def test_each_action_ends_one_prepared_record_and_nothing_else(name: str, tmp_path: Path, journal: Journal) -> None:
    version = STORES[name]
    source = copy_of(name, tmp_path / "source")
    before, bytes_before = rows_of(source, version), content(source)
    acts = (ActKind.COMMIT, ActKind.ROLLBACK, ActKind.DISCARD, ActKind.COMMIT)
    orders = dict(zip(prepared_rows(before), acts, strict=False))
    assert {ActKind.COMMIT, ActKind.ROLLBACK} <= set(orders.values())
    target = tmp_path / "target"
    receipts = act(medium_of(source, version, Destination(copy=target)), journal, orders)
    assert content(source) == bytes_before
    after = rows_of(target, version)
    for receipt in receipts:
        row = after[receipt.acted_on]
        assert receipt.outcome == "proved", receipt.notes
        assert (row["state"], row["advice"]) == (EFFECT[receipt.action], "none")
        assert not {"open_after_decision", "unanswerable", "conflict", "duplicate_commit"} & set(row["flags"])
        assert len(receipt.requests) == 1
    others = {name: row["state"] for name, row in before.items() if name not in orders}
    assert {name: row["state"] for name, row in after.items() if name not in orders} == others
    # a queue that had no record yet is made by the broker when it starts
    new = set(graver(target, version)) - set(graver(source, version))
    assert {code for code, _ in new} <= {"queue-missing"}


def test_what_is_entered_is_what_the_broker_itself_had_entered(
    tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last two decisions are taken out of a store of 3.1.4 and made again: every byte is the broker's."""
    root = copy_of("statetable-3.1.4", tmp_path / "store")
    whole = content(root)
    store = open_store(root)
    last = list(records(store))[-2:]
    names = {number(record, "commit_log_offset", 8): draft_of(record) for record in last}
    assert [draft.sys_flag & 12 for draft in names.values()] == [8, 12]
    times = [int.from_bytes(record[56:64], "big") for record in last]
    _take_out(root, last)
    prepared = {row["half_copies"][0]["commit_log_offset"]: name for name, row in rows_of(root, "3.1.4").items()}
    actions = (ActKind.COMMIT, ActKind.ROLLBACK)
    ends = [prepared[draft.prepared_transaction_offset] for draft in names.values()]
    for name, action, time_ms in zip(ends, actions, times, strict=True):
        assert rows_of(root, "3.1.4")[name]["state"] == "PENDING"
        monkeypatch.setattr(file_medium, "clock", SimpleNamespace(now_ms=lambda time_ms=time_ms: time_ms))
        medium = medium_of(root, "3.1.4", Destination(undo_file=tmp_path / action))
        assert [receipt.outcome for receipt in act(medium, journal, {name: action})] == ["proved"]
    made = content(root)
    made.pop("checkpoint")
    assert made == {name: data for name, data in whole.items() if name != "checkpoint"}


def _take_out(root: Path, last: list[bytes]) -> None:
    """Some last records of a store of 3.1.4, as if never written: log, queue, redo log, state table, checkpoint."""
    store = open_store(root)
    before = max(number(record, "store_time_ms", 8) for record in records(store) if record not in last)
    for place in range(0, 24, 8):
        _overwrite(root / "checkpoint", place, before.to_bytes(8, "big"))
    for record in last:
        offset = number(record, "commit_log_offset", 8)
        draft = draft_of(record)
        _overwrite(Path(store.commit_log[0].file), offset, bytes(len(record)))
        if draft.sys_flag & 12 == 8:
            queue = root / "consumequeue" / draft.topic / str(draft.queue_id) / f"{0:020}"
            _overwrite(queue, number(record, "queue_offset", 8) * 20, bytes(20))
        entries = redo_entries(store, [])
        assert entries is not None
        row = entries.offsets.tolist().index(offset)
        file = entries.files[int(entries.file_numbers[row])].file
        _overwrite(Path(file), int(entries.positions[row]), bytes(REDO_ENTRY.size_bytes))
        slots = state_slots(store, [])
        assert slots is not None
        row = slots.offsets.tolist().index(draft.prepared_transaction_offset)
        file = slots.files[int(slots.file_numbers[row])].file
        _overwrite(Path(file), int(slots.positions[row]) + STATE_SLOT.size_bytes - 4, (4).to_bytes(4, "big"))


def _overwrite(file: Path, position: int, data: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(position)
        opened.write(data)


def test_a_queue_without_a_directory_is_refused(tmp_path: Path, journal: Journal) -> None:
    root = copy_of("statetable-recovered-3.1.4", tmp_path / "store")
    rows = rows_of(root, "3.1.4")
    name = next(name for name in prepared_rows(rows) if (rows[name]["topic"], rows[name]["queue_id"]) == ("orders", 1))
    target = Destination(copy=tmp_path / "copy")
    (receipt,) = act(medium_of(root, "3.1.4", target), journal, {name: ActKind.COMMIT})
    assert receipt.outcome == "refused_by_guard"
    assert "queue 1 of orders has no directory yet" in receipt.notes[0]
    (receipt,) = act(medium_of(root, "3.1.4", target), journal, {name: ActKind.ROLLBACK})  # which is in no queue
    assert receipt.outcome == "proved"


@pytest.mark.parametrize("name", ["statetable-3.1.4", "statetable-killed-3.1.4", "prepared-4.2.0"])
def test_undo_takes_it_back(name: str, tmp_path: Path, journal: Journal) -> None:
    version = STORES[name]
    root = copy_of(name, tmp_path / "store")
    before = content(root)
    end = log_end(open_store(root)).offset
    orders = dict.fromkeys(prepared_rows(rows_of(root, version)), ActKind.COMMIT)
    receipts = act(medium_of(root, version, Destination(undo_file=tmp_path / "undo")), journal, orders)
    assert {receipt.outcome for receipt in receipts} == {"proved"}, receipts[0].notes
    after = content(root)
    changed = {file.split("/")[0] for file, data in after.items() if before.get(file) != data}
    told = set() if "abort" in before else {"consumequeue"} if version == "3.1.4" else {"abort"}
    tables = {"transaction"} if version == "3.1.4" else set()
    assert changed == {"commitlog", *told, *tables}
    assert log_end(open_store(root)).offset > end
    undo(tmp_path / "undo", root)
    undone = content(root)
    assert undone == before


def test_a_full_redo_log_goes_on_in_a_new_file(tmp_path: Path, journal: Journal) -> None:
    root = copy_of("statetable-3.1.4", tmp_path / "store")
    directory = root / "transaction" / "redolog" / "TRANSACTION_REDOLOG_TOPIC_XXXX" / "0"
    before = sorted(file.name for file in directory.iterdir())
    pending = prepared_rows(rows_of(root, "3.1.4"))
    entries = redo_entries(open_store(root), [])
    assert entries is not None
    room = sum(segment.size_bytes for segment in entries.files) // REDO_ENTRY.size_bytes - len(entries)
    cut = directory / before[-1]
    filler = bytes.fromhex("000000000000000100000064ffffffffffffffff") * (room - 2)
    _overwrite(cut, cut.stat().st_size - room * REDO_ENTRY.size_bytes, filler)  # there is room for two entries
    orders = dict.fromkeys(pending[:4], ActKind.ROLLBACK)
    receipts = act(medium_of(root, "3.1.4", Destination(undo_file=tmp_path / "undo")), journal, orders)
    assert {receipt.outcome for receipt in receipts} == {"proved"}, receipts[0].notes
    assert len(list(directory.iterdir())) == len(before) + 1
    again = redo_entries(open_store(root), [])
    assert again is not None
    assert len(again) == len(entries) + room - 2 + 4


def test_a_broker_without_a_lock_is_seen_by_the_files_that_it_maps(tmp_path: Path) -> None:
    root = copy_of("statetable-killed-3.1.4", tmp_path / "store")
    medium_of(root, "3.1.4", Destination(copy=tmp_path / "copy"))
    program = (
        "import mmap, sys; file = open(sys.argv[1], 'rb'); mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ); "
        "print('mapped', flush=True); sys.stdin.read()"
    )
    log = str(root / "commitlog" / f"{0:020}")
    with subprocess.Popen([sys.executable, "-c", program, log], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as held:
        assert held.stdout is not None
        assert held.stdout.readline() == b"mapped\n"
        with pytest.raises(StoreInUse, match=f"process {held.pid}"):
            medium_of(root, "3.1.4", Destination(copy=tmp_path / "copy"))
        held.communicate()


def test_another_users_java_that_cannot_be_looked_into_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(copy_of("statetable-killed-3.1.4", tmp_path / "store"))
    processes = tmp_path / "proc"
    for number_, command in ((71, "java"), (72, "bash")):
        (processes / str(number_)).mkdir(parents=True)
        (processes / str(number_) / "comm").write_text(command + "\n")
        (processes / str(number_) / "maps").write_text("")
    require_not_mapped(store, processes)
    real = Path.read_text

    def refused(self: Path, *arguments: Any, **named: Any) -> str:
        if self.name == "maps":
            raise PermissionError
        return real(self, *arguments, **named)

    monkeypatch.setattr(Path, "read_text", refused)
    with pytest.raises(UnsafeStore, match="process 71"):
        require_not_mapped(store, processes)
    (processes / "71" / "comm").write_text("sleep\n")
    require_not_mapped(store, processes)


@pytest.mark.parametrize("action", ["resume", "close"])
def test_what_means_nothing_for_a_prepared_record_is_refused_once(action: ActKind, tmp_path: Path) -> None:
    root = copy_of("prepared-4.2.0", tmp_path / "store")
    medium = medium_of(root, "4.2.0", Destination(copy=tmp_path / "copy"))
    row = next(row for row in medium.look(prepared_rows(rows_of(root, "4.2.0"))[:1]))
    (situation,) = medium.situations([row], settled_ms=0)
    (refusal,) = refusals(situation, ActRequest(action))
    assert refusal.guard == "prepared-record"
    assert "decide it: rmqtx commit" in refusal.advice or action == ActKind.RESUME


def test_a_version_that_is_not_known_is_asked_for(tmp_path: Path) -> None:
    root = copy_of("prepared-3.2.6", tmp_path / "store")
    store = open_store(root)
    with pytest.raises(UnsafeStore, match="version is unknown") as refused:
        file_medium.FileMedium(store, broker_settings, {}, Destination(copy=tmp_path / "copy"), open_store)
    assert broker_settings(store).version_low is not None, "else any version would pass"
    assert "--broker-version X.Y.Z, as in rocketmq-broker-X.Y.Z.jar" in str(refused.value), "no version to paste"


def test_a_queue_of_which_there_is_the_directory_gets_its_first_file(tmp_path: Path, journal: Journal) -> None:
    root = copy_of("statetable-recovered-3.1.4", tmp_path / "store")
    rows = rows_of(root, "3.1.4")
    name = next(name for name in prepared_rows(rows) if (rows[name]["topic"], rows[name]["queue_id"]) == ("orders", 1))
    place = root / "consumequeue" / "orders" / "1"
    place.mkdir()
    before = content(root)
    medium = medium_of(root, "3.1.4", Destination(undo_file=tmp_path / "undo"))
    (receipt,) = act(medium, journal, {name: ActKind.COMMIT})
    assert receipt.outcome == "proved", receipt.notes
    (file,) = place.iterdir()
    other = root / "consumequeue" / "orders" / "0" / f"{0:020}"
    assert file.name == f"{0:020}"
    assert file.stat().st_size == other.stat().st_size
    grave = graver(root, "3.1.4")
    assert not [code for code, _ in grave if code.startswith(("slot-", "queue-"))]
    undo(tmp_path / "undo", root)
    undone = content(root)
    assert undone == before


def test_a_first_file_of_unknown_length_is_not_made(tmp_path: Path) -> None:
    """A broker of 3.1.4 left out one of another length than its configuration's, and began the queue anew."""
    root = copy_of("statetable-recovered-3.1.4", tmp_path / "store")
    for file in (root / "consumequeue").glob("*/*/*"):
        file.unlink()
    (root / "consumequeue" / "orders" / "1").mkdir()
    store = open_store(root)
    why = why_not_dispatched(store, "orders", 1, {})
    assert why is not None
    assert "--broker-conf" in why
    assert why_not_dispatched(store, "orders", 1, {"mapedFileSizeConsumeQueue": "4000"}) is None
