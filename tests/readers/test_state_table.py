"""State table and redo log of 3.1.4: against the log, against what clients and broker saw, and damaged."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmqtx.readers.jobs.job_runner import run_job
from rmqtx.readers.log.commit_log import scan_segments
from rmqtx.readers.log.prepared_records import UNDECIDED, OldRecords
from rmqtx.readers.log.record_layout import PREPARED
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.model.findings import KINDS
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.old_tables.redo_log import (
    PREPARED_TAGS,
    REDO_ENTRY,
    entries_per_file,
    recovered_offsets,
    redo_entries,
    redo_log_entries,
    scan_redo_log,
)
from rmqtx.readers.old_tables.state_table import STATE_SLOT, STATES, scan_state_table, state_slots, state_table_entries
from rmqtx.readers.store.store import Store, open_store
from rmqtx.verdicts.verify.verify import DEFAULT, FULL, QUICK, Verify
from tests.brokers import corpus
from tests.forge.stores import copy_of, opened, unpacked
from tests.representatives import rest_is_slow

STORES = corpus.corpus_names(design="state_table")
CLEAN, KILLED = "statetable-3.1.4", "statetable-killed-3.1.4"
REMADE = ["statetable-recovered-3.1.4", "statetable-lossy-3.1.4"]
TABLE_CODES = tuple(code for code in KINDS if code.startswith(("table-", "redo-")))
Row = dict[str, Any]


def records_of(store: Store) -> OldRecords:
    return OldRecords.joined(OldRecords.of_block(block) for block in scan_segments(store, [], []))


def findings(root: Path, level: str = DEFAULT, split_bytes: int = 1 << 27) -> list[Row]:
    """The rows about state table and redo log."""
    reading = run_job(Verify(level), plan_splits([open_store(root)], split_bytes=split_bytes))
    rows: list[Row] = reading.table().to_pylist()
    return [row for row in rows if row["code"] in TABLE_CODES or "transaction/" in (row["file"] or "")]


def offsets_of(rows: list[Row], code: str) -> set[int]:
    return {row["commit_log_offset"] for row in rows if row["code"] == code}


def flagged(name: str, flag: str) -> set[int]:
    return {row["half_commit_log_offset"] for row in corpus.expected(name) if flag in row["flags_at_least"]}


def accounted(reading: Reading) -> Reading:
    for part in reading.coverage:
        assert min(part.decoded_bytes, part.filler_bytes, part.damaged_bytes) >= 0
        assert part.unread_bytes == 0
    return reading


# ---- real stores


def test_there_are_real_stores() -> None:
    assert {CLEAN, KILLED, *REMADE} <= set(STORES)


@pytest.mark.parametrize("name", STORES)
def test_slots_and_entries_of_a_real_store_are_those_of_its_records(name: str) -> None:
    store = opened(name)
    records = records_of(store)
    prepared = {row[0]: row for row in records.prepared.values.T.tolist()}
    table = accounted(scan_state_table(store))
    slots = table.table().to_pylist()
    for slot in slots:
        _, length, seconds, _, _, _, group = prepared[slot["commit_log_offset"]]
        assert (slot["record_length_bytes"], slot["store_time_ms"], slot["producer_group_hash"]) == (
            length, seconds * 1000, group,
        )
    assert table.findings == []
    if name != "statetable-slave-3.1.4":  # a slave keeps no table
        assert slots
        assert [slot["slot_number"] for slot in slots] == list(range(len(slots)))
    redo = scan_redo_log(store)
    entries = redo.table().to_pylist()
    accounted(redo)
    assert redo.findings == []
    last = entries[-1]["commit_log_offset"]
    wanted = [
        (row[0], row[1], "PREPARED" if row[4] == PREPARED else "END", row[0] if row[4] == PREPARED else row[5])
        for row in records.values.T.tolist() if row[0] <= last
    ]
    columns = ("commit_log_offset", "record_length_bytes", "kind", "half_commit_log_offset")
    found = [tuple(entry[column] for column in columns) for entry in entries]
    assert found == wanted
    assert last == records.offsets[-1] or name.startswith("upgraded")


def test_on_a_store_that_was_stopped_cleanly_the_table_is_what_the_log_says() -> None:
    records, slots = records_of(opened(CLEAN)), state_slots(opened(CLEAN), [])
    assert slots is not None
    assert slots.offsets.tolist() == records.prepared.offsets.tolist()
    assert slots.numbers.tolist() == records.prepared.queue_offsets.tolist()
    ended = records.first_ends
    assert slots.states.tolist() == np.where(ended == UNDECIDED, PREPARED, ended).tolist()
    assert len(slots.files) > 1
    assert findings(unpacked(CLEAN)) == []


@pytest.mark.parametrize("name", REMADE)
def test_the_table_that_the_broker_rebuilt_is_predicted(name: str) -> None:
    store = opened(name)
    records, slots, entries = records_of(store), state_slots(store, []), redo_entries(store, [])
    assert slots is not None
    assert entries is not None
    killed_s = next(row["time_ms"] for row in corpus.truth(name) if row["event"] == "stopped") // 1000
    before = int((records.store_seconds <= killed_s).sum())
    predicted = recovered_offsets(
        entries.offsets[:before], entries.tags[:before], entries_per_file=entries_per_file(entries)
    )
    assert slots.offsets[: len(predicted)].tolist() == predicted.tolist()
    assert slots.offsets[len(predicted) :].min() > records.offsets[before - 1]
    everything = recovered_offsets(entries.offsets[:before], entries.tags[:before], entries_per_file=before)
    assert (len(entries.files) > 1) == (everything.tolist() != predicted.tolist())


@pytest.mark.parametrize("name", [*REMADE, CLEAN])
def test_what_is_asked_in_vain_and_what_is_never_asked_is_what_clients_saw(name: str) -> None:
    rows = findings(unpacked(name))
    assert offsets_of(rows, "table-unanswerable") == flagged(name, "unanswerable")
    assert offsets_of(rows, "table-slot-missing") == flagged(name, "never_asked")
    asked_though_decided = {
        row["half_commit_log_offset"] for row in corpus.expected(name)
        if row["state"] != "PENDING" and row["asked_after_restart"]
    }
    assert offsets_of(rows, "table-slot-stale") == asked_though_decided
    assert {row["code"] for row in rows} <= {"table-unanswerable", "table-slot-missing", "table-slot-stale"}


def test_after_a_kill_the_next_start_is_predicted() -> None:
    (row,) = findings(unpacked(KILLED))
    expected = corpus.expected(KILLED)
    asked = [one for one in expected if one["asked_after_restart"]]
    refused = sum(one["answered_after_restart"] is False for one in asked)
    assert row["code"] == "table-remade"
    assert row["actual"] == (
        f"{len(asked)} slots, numbered from 0: {refused} without a decision in the log and with another number than in "
        "their records, 0 decided ones; 0 transactions without a decision in the log get no slot"
    )
    assert refused


def test_a_table_that_a_later_broker_left_behind_is_told_as_such() -> None:
    (row,) = findings(unpacked("upgraded-3.1.4-3.2.6"))
    assert row["code"] == "table-leftover"


@pytest.mark.parametrize("split_bytes", [7001, 65_536])
def test_splits_do_not_change_the_findings(split_bytes: int) -> None:
    for name in REMADE:
        assert findings(unpacked(name), FULL, split_bytes) == findings(unpacked(name), FULL)
        assert findings(unpacked(name), QUICK) == []


@pytest.mark.parametrize("name", STORES)
def test_entries_for_verdicts_say_the_same(name: str) -> None:
    store = opened(name)
    redo = redo_log_entries(store, [])
    assert redo is not None
    table = state_table_entries(store, [])
    if table is None:
        assert name == "statetable-slave-3.1.4"
        return
    rows = table.to_pylist()
    slots = scan_state_table(store).table().to_pylist()
    assert [(r["half_commit_log_offset"], r["key"], r["value"], r["position_bytes"]) for r in rows] == [
        (s["commit_log_offset"], str(s["slot_number"]), s["state"], s["position_bytes"]) for s in slots
    ]
    assert {row["kind"] for row in rows} == {"statetable"}
    assert Counter(redo["value"].to_pylist())["PREPARED"] >= len(rows) - sum(name.startswith("upgraded") for _ in "x")
    assert state_table_entries(opened("common-4.9.7"), []) is None
    assert redo_log_entries(opened("common-4.9.7"), []) is None


# ---- damage


def table_files(root: Path) -> list[Path]:
    return sorted(path for path in (root / "transaction").rglob("*") if path.is_file())


def used_bytes(path: Path) -> int:
    return len(path.read_bytes().rstrip(b"\0"))


@pytest.mark.parametrize("seed", rest_is_slow(range(6), quick=1))
def test_every_flipped_byte_of_a_slot_or_an_entry_is_found(tmp_path: Path, seed: int) -> None:
    root = copy_of(CLEAN, tmp_path)
    chosen = random.Random(seed)
    for path in table_files(root):
        data = path.read_bytes()
        unit = STATE_SLOT if "statetable" in str(path) else REDO_ENTRY
        for _ in range(2):
            place = chosen.randrange(max(unit.size_bytes, used_bytes(path)))
            changed = bytearray(data)
            changed[place] ^= 1 << chosen.randrange(8)
            path.write_bytes(changed)
            rows = findings(root)
            assert rows, (path, place)
            assert all(row["severity"] != "note" for row in rows)
            mine = [row for row in rows if row["file"] == str(path) and row["position_bytes"] is not None]
            assert any(0 <= place - row["position_bytes"] < row["length_bytes"] for row in mine), (path, place, rows)
        path.write_bytes(data)


def test_a_lost_file_is_a_gap_and_what_was_pending_in_it_is_told(tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path)
    middle = root / "transaction" / "statetable" / f"{480:020}"
    lost = {slot["commit_log_offset"] for slot in scan_state_table(open_store(root)).table().to_pylist()
            if slot["file"] == str(middle) and slot["state"] == "PREPARED"}
    middle.unlink()
    rows = findings(root)
    assert offsets_of(rows, "table-slot-missing") == lost
    assert lost
    assert "table-gap" in {row["code"] for row in rows}


def test_a_store_without_its_table_says_that_nobody_will_be_asked(tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path)
    for path in (root / "transaction" / "statetable").iterdir():
        path.unlink()
    (row,) = findings(root)
    assert row["code"] == "table-missing"
    assert "16 of them without a decision in the log" in row["expected"]


def test_garbage_is_accounted_for(tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path)
    chosen = random.Random(3)
    for path in table_files(root):
        path.write_bytes(chosen.randbytes(path.stat().st_size + 7))
    table, redo = scan_state_table(open_store(root)), scan_redo_log(open_store(root))
    for reading in (table, redo):
        rows = reading.table().num_rows
        accounted(reading)
        damaged = sum(part.damaged_bytes for part in reading.coverage)
        assert damaged
        assert rows * (24 if reading is table else 20) == sum(part.decoded_bytes for part in reading.coverage)
        assert "table-entry-invalid" in {finding.code for finding in reading.findings}
    assert findings(root)


def test_strange_files_are_told_and_stop_nothing(tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path)
    table = root / "transaction" / "statetable"
    redo = root / "transaction" / "redolog" / "TRANSACTION_REDOLOG_TOPIC_XXXX" / "0"
    (table / f"{0:020}").write_bytes(b"")
    (table / f"{2**62 - 8:020}").write_bytes(b"x" * 24)
    (table / f"{481:020}").write_bytes(b"y" * 24)
    (table / "notes").write_text("hello")
    (redo / f"{0:020}").unlink()
    (redo / f"{0:020}").mkdir()
    codes = {row["code"] for row in findings(root)}
    assert {"stray-file", "segment-size", "table-entry-invalid", "table-slot-missing", "redo-entry-missing"} <= codes
    for reading in (scan_state_table(open_store(root)), scan_redo_log(open_store(root))):
        reading.table()
        accounted(reading)


# ---- the walk of 3.1.4


def test_the_walk_reads_the_first_file_and_then_every_twentieth() -> None:
    count, per_file = 500, 10
    offsets = np.arange(count, dtype=np.int64) * 100
    tags = np.full(count, PREPARED_TAGS, np.int64)
    seen = recovered_offsets(offsets, tags, entries_per_file=per_file)
    assert seen.tolist() == [*range(0, 1000, 100), *range(20_000, 21_000, 100), *range(40_000, 41_000, 100)]
    assert len(recovered_offsets(offsets, tags, entries_per_file=count)) == count


def test_states_are_named() -> None:
    assert list(STATES.values()) == ["PREPARED", "COMMIT", "ROLLBACK"]


def test_a_table_without_a_redo_log_is_found(tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path)
    for path in (root / "transaction" / "redolog").rglob("0*"):
        if path.is_file():
            path.unlink()
    assert "redo-log-missing" in {row["code"] for row in findings(root)}


def test_entries_out_of_the_logs_order_are_found(tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path)
    file = next(path for path in (root / "transaction" / "redolog").rglob(f"{1000:020}"))
    data = file.read_bytes()
    file.write_bytes(data[:40] + data[60:80] + data[40:60] + data[80:])
    assert "redo-entry-mismatch" in {row["code"] for row in findings(root)}
