"""The stores of public reports are judged as real brokers treated them: states, events, and statuses that follow."""

from __future__ import annotations

import filecmp
import struct
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.cursors import transaction_metrics
from rmqtx.readers.index.index_search import open_index
from rmqtx.readers.model.errors import UnsafeStore
from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import HALF_TOPIC, Store, open_store
from rmqtx.repairs.acts.file_preconditions import require_changeable
from rmqtx.repairs.rebuild.rebuild import rebuild
from rmqtx.repairs.records.store_sizes import store_sizes
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending
from rmqtx.verdicts.check.check_rules import check_rules
from rmqtx.verdicts.check.window import check_window
from rmqtx.verdicts.evidence.store_facts import known_until_ms
from rmqtx.verdicts.model.predicted import open_rows
from rmqtx.verdicts.verify.verify import FULL
from tests.conftest import MOMENT
from tests.field import field_stores, right
from tests.forge import damage
from tests.verdicts.verifying import findings

Row = dict[str, Any]


@pytest.fixture(autouse=True)
def _a_minute_after_the_last_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MOMENT, lambda store: known_until_ms(store) + 60_000)


def settings_by(version: str | None) -> Any:
    """Settings of a broker of this release, or of an unknown one."""

    def settings(store: Store) -> BrokerSettings:
        return broker_settings(store, version=version)

    return settings


def rows_and_codes(root: Path, version: str | None) -> tuple[list[Row], set[str]]:
    """The rows of audit, and the findings; those of pending are the open part of both."""
    reading = audit([open_store(root)], settings_by(version))
    table = reading.table()
    listed = pending([open_store(root)], settings_by(version))
    assert listed.table().to_pylist() == open_rows(table).to_pylist()
    codes = {finding.code for finding in reading.findings}
    assert {"check-skips", "start-differs"} & codes == {"check-skips", "start-differs"} & {
        finding.code for finding in listed.findings
    }
    return table.to_pylist(), codes


@pytest.mark.parametrize("name", ["fillers-at-begin", "fillers-one-log-file"])
@pytest.mark.parametrize("version", ["5.3.3", None])
def test_halves_behind_fillers_are_lost_and_every_command_reports_it(
    name: str, version: str | None, tmp_path: Path
) -> None:
    root = field_stores(name, tmp_path) / "store"
    rows, codes = rows_and_codes(root, version)
    states = {row["half_copies"][-1]["queue_offset"]: row["state"] for row in rows}
    for place, state in right(name)["by_queue_offset"].items():
        assert states[int(place)] == state.split(":")[0]
    assert "check-skips" in codes
    lost = {row["reason_code"] for row in rows if row["state"] == "LOST"}
    assert "check_passed" not in lost
    window = check_window(open_store(root), check_rules((5, 3, 3)), 0, 0, 0)
    assert "undecidable" not in {one.code for one in window.findings}


def test_queues_behind_the_log_are_filled_by_the_start_and_checked(tmp_path: Path) -> None:
    root = field_stores("queues-behind-log-15", tmp_path) / "store"
    rows, codes = rows_and_codes(root, "5.3.3")
    asked = [row["half_copies"][-1]["queue_offset"] for row in rows if row["next_event"] == "asked"]
    assert asked == list(range(22, 32))
    assert "start-differs" not in codes


@pytest.mark.parametrize("is_emptied", [False, True])
def test_a_start_that_depends_on_the_release_is_a_finding(is_emptied: bool, tmp_path: Path) -> None:
    """5.2.0 dispatches nothing after a clean stop; 5.3.3 and 5.5.0 dispatch what the queues lack."""
    root = field_stores("queues-behind-log-15", tmp_path) / "store"
    if is_emptied:
        (file,) = damage.queue_files(root, HALF_TOPIC)
        file.write_bytes(bytes(file.stat().st_size))
    events = {}
    for version in ("5.2.0", "5.3.3", "5.5.0"):
        rows, codes = rows_and_codes(root, version)
        assert "start-differs" not in codes
        events[version] = [row["next_event"] for row in rows]
    assert events["5.2.0"] != events["5.3.3"] == events["5.5.0"]
    rows, codes = rows_and_codes(root, None)
    assert "start-differs" in codes
    assert [row["next_event"] for row in rows] == events["5.5.0"]


def test_a_start_that_only_some_releases_refuse_is_a_finding(tmp_path: Path) -> None:
    root = field_stores("zero-last-queue-file", tmp_path) / "store"
    assert "start-differs" in rows_and_codes(root, None)[1]
    for version, is_refused in (("5.3.3", True), ("5.5.0", False)):
        rows, codes = rows_and_codes(root, version)
        assert "start-differs" not in codes
        assert ("start-refused" in codes) is is_refused
        events = {row["next_event"] for row in rows if row["state"] == "PENDING"}
        assert events == ({"stopped"} if is_refused else {"asked"})


@pytest.mark.parametrize(("version", "checked"), [("5.2.0", [54]), ("5.3.3", [])])
def test_a_dledger_start_that_cuts_the_queues_loses_halves(version: str, checked: list[int], tmp_path: Path) -> None:
    """5.2.0 gives the half message 54 its slot again and checks it; 5.3.3 passes everything."""
    root = field_stores("dledger-after-5.2.0", tmp_path) / "store"
    rows, codes = rows_and_codes(root, version)
    by_place = {row["half_copies"][-1]["queue_offset"]: row for row in rows if row["half_copies"]}
    assert {by_place[place]["state"] for place in range(48, 54)} == {"LOST"}
    assert [place for place, row in by_place.items() if row["state"] == "PENDING"] == checked
    assert "check-skips" in codes
    assert "start-differs" in rows_and_codes(root, None)[1]


def test_one_half_of_two_with_a_number_is_lost(tmp_path: Path) -> None:
    rows, _ = rows_and_codes(field_stores("two-halves-one-number", tmp_path) / "store", "5.3.3")
    states = {str(row["half_copies"][-1]["commit_log_offset"]): row["state"] for row in rows}
    for place, state in right("two-halves-one-number")["by_log_offset"].items():
        assert states[place] == state
    assert Counter(states.values())["PENDING"] == 6


def test_file_queues_that_a_switch_to_rocksdb_left_behind_are_not_compared(tmp_path: Path) -> None:
    root = field_stores("rocksdb-in-place", tmp_path) / "store"
    rows, codes = rows_and_codes(root, None)
    assert sum(row["state"] == "PENDING" for row in rows) == right("rocksdb-in-place")["pending"]
    found = {(row["code"], row["expected"]) for row in findings(root)}
    assert not {"cursor-beyond-end", "op-beyond-end"} & {*codes, *(code for code, _ in found)}
    assert [slot for code, slot in found if code == "slot-missing"] == ["slot 0 of queue 0 of RMQ_SYS_TRANS_HALF_TOPIC"]
    assert "queues-leftover" in {code for code, _ in found}


def test_a_database_of_queues_that_cannot_be_read_is_a_finding_of_audit(tmp_path: Path) -> None:
    root = field_stores("rocksdb-in-place", tmp_path) / "store"
    (manifest,) = (root / "consumequeue").glob("MANIFEST*")
    damage.write_bytes(manifest, 60, bytes(60))
    assert "database-unread" in rows_and_codes(root, None)[1]


def with_slots(root: Path, places: list[int]) -> Path:
    """Nine slots of an older log behind the half queue's end, in a file of their own."""
    queue = root / "consumequeue" / HALF_TOPIC / "0"
    assert [file.name for file in sorted(queue.iterdir())] == ["0" * 20]
    slots = b"".join(struct.pack(">qiq", place, 344, 0) for place in places)
    (queue / "00000000000000000200").write_bytes(slots.ljust(200, b"\0"))
    return root


@pytest.mark.parametrize("first", [2000, 3500, 4200])
def test_slots_of_an_older_log_hide_no_record(first: int, tmp_path: Path) -> None:
    """They point into records, some of them beyond the end of the log: no byte is missing, the slots are the damage."""
    root = field_stores("foreign-message-id", tmp_path) / "store"
    whole, _ = rows_and_codes(root, "5.3.3")
    rows, codes = rows_and_codes(with_slots(root, [first + 150 * number for number in range(9)]), "5.3.3")
    assert {row["transaction_id"]: row["state"] for row in rows} == {
        row["transaction_id"]: row["state"] for row in whole
    }
    assert Counter(row["state"] for row in rows) == {"PENDING": 7, "COMMITTED": 3}
    assert "slot-mismatch" in codes
    assert "log-missing" not in codes


def test_slots_that_only_point_beyond_the_log_leave_it_open(tmp_path: Path) -> None:
    """Slots of an older log and a log that lost its end look the same."""
    root = field_stores("foreign-message-id", tmp_path) / "store"
    rows, codes = rows_and_codes(with_slots(root, [5000 + 300 * number for number in range(9)]), "5.3.3")
    assert Counter(row["state"] for row in rows) == {"UNDECIDABLE": 7, "COMMITTED": 3}
    assert "log-missing" in codes


def test_one_slot_that_points_into_a_record_is_no_reason_to_pass_the_next(tmp_path: Path) -> None:
    """It may be damaged alone: the records of the slots behind it are lost with the log's end."""
    root = field_stores("foreign-message-id", tmp_path) / "store"
    places = [3600, *(5000 + 300 * number for number in range(8))]
    assert "UNDECIDABLE" in {row["state"] for row in rows_and_codes(with_slots(root, places), "5.3.3")[0]}


# --- rocketmq-rust ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_rust(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that rocketmq-rust wrote; not to be changed."""
    return field_stores("rust-1.0.0", tmp_path_factory.mktemp("rust")) / "store"


def copy_of(root: Path, to: Path, *names: str) -> Path:
    """A copy of a store, or of some of its files; its index has holes where it is zero, as the original."""
    for name in names or [path.name for path in root.iterdir()]:
        subprocess.run(["cp", "-a", "--sparse=always", root / name, to / name], check=True)
    return to


def states_by_key(rows: list[Row]) -> dict[str, str]:
    return {row["keys"]: row["state"] for row in rows}


def error_codes(root: Path) -> set[str]:
    """The errors and warnings of a whole verification."""
    return {row["code"] for row in findings(root, FULL) if row["severity"] != "note"}


def test_a_store_of_rocketmq_rust_is_read_as_it_was_written(of_rust: Path) -> None:
    rows, codes = rows_and_codes(of_rust, None)
    assert states_by_key(rows) == right("rust-1.0.0")["by_key"]
    for key, delivered in right("rust-1.0.0")["delivered"].items():
        (row,) = (row for row in rows if row["keys"] == key)
        assert [final["commit_log_offset"] for final in row["final_records"]] == delivered
    assert codes == set()
    assert error_codes(of_rust) == set()
    settings = broker_settings(open_store(of_rust))
    assert settings.broker == "rocketmq-rust, read as 5.2.0 or later"
    assert transaction_metrics(open_store(of_rust)) == {"TR": 2}


def test_pending_uses_the_index_of_rocketmq_rust(of_rust: Path) -> None:
    listed = pending([open_store(of_rust)], settings_by(None))
    assert {row["keys"] for row in listed.table().to_pylist()} == {"KEY_late2", "KEY_late5"}
    assert [note.text for note in listed.notes if "scanned" in note.text] == []


def test_a_copy_without_the_files_that_show_rocketmq_rust_has_no_damage(of_rust: Path, tmp_path: Path) -> None:
    """The keys of the index show it."""
    root = copy_of(of_rust, tmp_path, "commitlog", "consumequeue", "index", "checkpoint")
    assert error_codes(root) == {"config-missing"}
    states = states_by_key(audit([open_store(root)], settings_by(None)).table().to_pylist())
    assert Counter(states.values()) == {"COMMITTED": 9, "ROLLED_BACK": 8, "DISCARDED": 6, "UNDECIDABLE": 2}


def test_damage_of_a_store_of_rocketmq_rust_is_found(of_rust: Path, tmp_path: Path) -> None:
    root = copy_of(of_rust, tmp_path)
    log = open_store(root).commit_log[0]
    data = Path(log.file).read_bytes()
    lone = data.index(b"FD0000000000000000000000000000025ECF4E0E2F2A891E62890002", 1195)  # KEY_g1: only its half has it
    damage.flip_byte(Path(log.file), lone + 50, 1)
    assert "words-contradict" in rows_and_codes(root, None)[1]
    assert {"index-mismatch"} <= error_codes(root)


def test_a_changed_entry_of_the_index_of_rocketmq_rust_is_found(of_rust: Path, tmp_path: Path) -> None:
    root = copy_of(of_rust, tmp_path)
    (index,) = open_index(open_store(root)).files
    damage.flip_byte(Path(index.segment.file), index.entry_position(4) + 3)  # the id of the half message KEY_g0
    assert error_codes(root) & {"index-mismatch", "index-damaged"}


def test_a_log_cut_before_what_rocketmq_rust_had_indexed_is_found(of_rust: Path, tmp_path: Path) -> None:
    root = copy_of(of_rust, tmp_path, "commitlog", "consumequeue", "checkpoint", "config")
    damage.zero_bytes(root / "commitlog" / ("0" * 20), 25820, 437)  # KEY_late5, the last half message
    for file in damage.queue_files(root):
        data = file.read_bytes()
        for place in range(0, len(data), 20):
            if int.from_bytes(data[place : place + 8], "big") == 25820:
                damage.zero_bytes(file, place, 20)
    _, codes = rows_and_codes(root, None)
    assert "log-missing" in codes


def test_nothing_is_written_into_a_store_of_rocketmq_rust(of_rust: Path) -> None:
    store = open_store(of_rust)
    with pytest.raises(UnsafeStore, match=r"rocketmq-rust ran on it \(timer-v2/FORMAT\)"):
        require_changeable(store, broker_settings(store, version="5.5.0"), {})


def test_the_index_of_rocketmq_rust_is_rebuilt_byte_for_byte(of_rust: Path, tmp_path: Path) -> None:
    store = open_store(of_rust)
    rebuild(["index"], store, tmp_path / "new", store_sizes(store, None), with_tags=True)
    (old,), (new,) = ((root / "index").iterdir() for root in (of_rust, tmp_path / "new"))
    assert filecmp.cmp(old, new, shallow=False)
