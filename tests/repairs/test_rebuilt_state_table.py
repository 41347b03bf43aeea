"""State table and redo log made anew from the log: as 3.1.4 left them, and as it takes answers again after a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.jobs.job_runner import run_job
from rmqtx.readers.log.record_layout import AT, PREPARED
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.old_tables.state_table import scan_state_table
from rmqtx.readers.store.store import open_store
from rmqtx.repairs.rebuild.rebuild import OLD_PARTS, REDO_LOG, STATE_TABLE, Rebuilt, rebuild
from rmqtx.repairs.rebuild.state_table import table_sizes
from rmqtx.repairs.records.store_sizes import store_sizes
from rmqtx.verdicts.verify.verify import Verify
from tests.brokers import corpus
from tests.forge.stores import contents, copy_of, opened, unpacked

CLEAN, KILLED = "statetable-3.1.4", "statetable-killed-3.1.4"
RECOVERED, LOSSY = "statetable-recovered-3.1.4", "statetable-lossy-3.1.4"


def rebuilt(root: Path, target: Path, *parts: str) -> Rebuilt:
    store = open_store(root)
    return rebuild(parts, store, target, store_sizes(store))


def table_codes(root: Path) -> list[str]:
    reading = run_job(Verify(), plan_splits([open_store(root)]))
    return [code for code in reading.table()["code"].to_pylist() if code.startswith(("table-", "redo-"))]


def slots(root: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = scan_state_table(open_store(root)).table().to_pylist()
    return rows


@pytest.mark.parametrize("parts", [OLD_PARTS, (STATE_TABLE,), (REDO_LOG,)])
def test_after_a_clean_stop_they_are_byte_for_byte_what_the_broker_left(tmp_path: Path, parts: tuple[str, ...]) -> None:
    before = contents(unpacked(CLEAN))
    made = rebuilt(unpacked(CLEAN), tmp_path / "new", *parts)
    assert contents(tmp_path / "new") == before == contents(unpacked(CLEAN))
    assert (made.state_slots_count > 0, made.redo_entries_count > 0) == (STATE_TABLE in parts, REDO_LOG in parts)
    assert made.findings == []


def test_what_is_lost_or_damaged_is_there_again(tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path / "damaged")
    for path in (root / "transaction").rglob("0*"):
        if path.is_file():
            path.unlink()
    conf = {"tranStateTableMapedFileSize": "480", "tranRedoLogMapedFileSize": "1000"}
    store = open_store(root)
    rebuild(OLD_PARTS, store, tmp_path / "new", store_sizes(store), conf=conf)
    assert contents(tmp_path / "new") == contents(unpacked(CLEAN))


@pytest.mark.parametrize("name", [RECOVERED, LOSSY])
def test_after_a_crash_each_undecided_one_has_the_slot_that_its_record_names(tmp_path: Path, name: str) -> None:
    """As the client's handles have it: with such a number the broker takes the answer."""
    made = rebuilt(unpacked(name), tmp_path / "new", STATE_TABLE)
    waiting = {row["half_commit_log_offset"]: row["half_queue_offset"] for row in corpus.expected(name)
               if row["state"] == "PENDING"}
    found = {row["commit_log_offset"]: row["slot_number"] for row in slots(tmp_path / "new")
             if row["state"] == "PREPARED"}
    taken = [finding for finding in made.findings if finding.code == "table-number-taken"]
    left_out = {finding.commit_log_offset for finding in taken}
    assert found == {offset: number for offset, number in waiting.items() if offset not in left_out}
    for offset in left_out:  # another undecided one has its number
        assert offset is not None
        assert waiting[offset] in found.values()
    assert len(taken) < len(waiting) / 4
    assert [row["slot_number"] for row in slots(tmp_path / "new")] == list(range(made.state_slots_count))
    assert set(table_codes(tmp_path / "new")) <= ({"table-slot-missing"} if taken else set())
    assert made.open_slots_count == len(found)


def test_of_a_killed_broker_everything_is_made_anew_or_its_start_would_destroy_the_table(tmp_path: Path) -> None:
    rebuilt(unpacked(KILLED), tmp_path / "new", STATE_TABLE)
    assert table_codes(unpacked(KILLED)) == ["table-remade"]
    assert table_codes(tmp_path / "new") == []
    assert not (tmp_path / "new" / "abort").exists()
    here, new = contents(unpacked(KILLED)), contents(tmp_path / "new")
    differs = {path.split("/")[0] for path in here.keys() | new.keys() if here.get(path) != new.get(path)}
    assert differs <= {"abort", "checkpoint", "index"}


def test_what_only_a_table_knows_to_be_decided_is_not_asked_again(tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path / "damaged")
    end = next(row for row in corpus.expected(CLEAN) if row["state"] == "ROLLED_BACK")["op_marks"][0]
    with (root / "commitlog" / f"{0:020}").open("r+b") as log:  # its ROLLBACK record cannot be read
        log.seek(end["commit_log_offset"] + 4)
        log.write(b"\0\0\0\0")
    made = rebuilt(root, tmp_path / "new", STATE_TABLE)
    told = [{**row, "store": "", "file": ""} for row in slots(tmp_path / "new")]
    assert told == [{**row, "store": "", "file": ""} for row in slots(unpacked(CLEAN))]
    assert "table-slot-unproved" in {finding.code for finding in made.findings}
    (root / "transaction" / "statetable" / f"{0:020}").unlink()
    rebuilt(root, tmp_path / "newer", STATE_TABLE)
    assert [row["state"] == "PREPARED" for row in slots(tmp_path / "newer")] == [
        row["state"] == "PREPARED" for row in slots(unpacked(CLEAN))
    ]


def test_numbers_without_a_record_do_not_end_the_table(tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path / "damaged")
    lost = corpus.expected(CLEAN)[5]["half_commit_log_offset"]
    with (root / "commitlog" / f"{0:020}").open("r+b") as log:
        log.seek(lost + 4)
        log.write(b"\0\0\0\0")
    rebuilt(root, tmp_path / "new", STATE_TABLE)
    rows = slots(tmp_path / "new")
    assert [row["slot_number"] for row in rows] == list(range(len(slots(unpacked(CLEAN)))))
    assert lost not in {row["commit_log_offset"] for row in rows}


@pytest.mark.parametrize("number", [2**62, -1])
def test_a_number_that_cannot_be_is_told_and_has_no_slot(tmp_path: Path, number: int) -> None:
    root = copy_of(CLEAN, tmp_path / "damaged")
    lost = corpus.expected(CLEAN)[5]["half_commit_log_offset"]
    with (root / "commitlog" / f"{0:020}").open("r+b") as log:
        log.seek(lost + AT["queue_offset"])
        log.write(number.to_bytes(8, "big", signed=True))
    made = rebuilt(root, tmp_path / "new", STATE_TABLE)
    assert lost not in {row["commit_log_offset"] for row in slots(tmp_path / "new")}
    assert len(slots(tmp_path / "new")) == len(slots(unpacked(CLEAN)))
    assert ("record-header" in {finding.code for finding in made.findings}) == (number > 0)


def test_a_store_of_another_design_has_none(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="neither state table nor redo log"):
        rebuilt(unpacked("common-4.9.7"), tmp_path / "new", STATE_TABLE)
    assert not (tmp_path / "new").exists()
    sizes = table_sizes(opened(CLEAN))
    assert (sizes.table_file_bytes, sizes.redo_file_bytes) == (480, 1000)
    assert PREPARED == 4


def test_of_a_log_without_a_record_that_stands_where_it_says_no_slot_is_made(tmp_path: Path) -> None:
    root = copy_of(LOSSY, tmp_path / "damaged")
    file = root / "commitlog" / f"{0:020}"
    file.rename(file.with_name(f"{1:020}"))
    assert rebuilt(root, tmp_path / "new", STATE_TABLE).state_slots_count == 0
