"""Faults that only a verification reported before: `audit`, and where rows depend on them `pending`, have them too."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.compute as pc
import pytest

from rmqtx.readers.jobs.job_runner import run_job
from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending
from rmqtx.verdicts.verify.verify import FULL, Verify
from tests.forge.stores import copy_of, settings_of


def codes_of(root: Path, name: str) -> tuple[set[str], set[str]]:
    """The codes of all findings of an audit, and of those that make its status 3."""
    reading = audit([open_store(root)], settings_of(name))
    reading.table()
    return (
        {one.code for one in reading.findings},
        {one.code for one in reading.findings if one.kind.severity == "error"},
    )


def verified(root: Path) -> dict[str, str]:
    """The findings of a verification by code, with the name of the file."""
    rows = run_job(Verify(FULL), plan_splits([open_store(root)]), processes=1).table().to_pylist()
    return {row["code"]: Path(row["file"] or "").name for row in rows}


def pending_codes(root: Path, name: str) -> set[str]:
    """The codes of all findings of a list of the open transactions."""
    reading = pending([open_store(root)], settings_of(name))
    reading.table()
    return {one.code for one in reading.findings}


def flip(file: Path, position: int, bits: int = 0x55) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= bits
    file.write_bytes(data)


@pytest.mark.parametrize("name", ["statetable-3.1.4", "prepared-4.2.0", "common-5.1.4"])
def test_a_piece_in_the_properties_of_a_commit_record_that_is_no_property(name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    rows = scan_records(open_store(root)).table().to_pylist()
    final = next(row for row in rows if row["sys_flag"] & 0xC == 8)
    file = Path(final["file"])
    record = file.read_bytes()[final["position_bytes"] : final["position_bytes"] + final["length_bytes"]]
    flip(file, final["position_bytes"] + record.rindex(b"\x01"), 0x01 ^ ord("?"))
    assert "record-properties" in codes_of(root, name)[0]


@pytest.mark.parametrize("topic", [OP_TOPIC, HALF_TOPIC])
def test_a_zeroed_queue_of_the_check_after_a_clean_stop(topic: str, tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path)
    for file in (root / "consumequeue" / topic / "0").iterdir():
        file.write_bytes(bytes(file.stat().st_size))
    assert {"slot-missing", "start-skips"} & codes_of(root, "common-5.3.3")[1]


def test_a_slot_in_the_middle_of_the_half_queue(tmp_path: Path) -> None:
    root = copy_of("common-4.9.7", tmp_path)
    file = min((root / "consumequeue" / HALF_TOPIC / "0").iterdir())
    flip(file, 4 * 20 + 8, 0x80)  # a negative length
    assert "slot-invalid" in codes_of(root, "common-4.9.7")[1]


def test_pending_and_audit_agree_where_the_next_start_cuts_the_log_at_a_body(tmp_path: Path) -> None:
    name = "common-5.3.3"
    root = copy_of(name, tmp_path)
    record = next(row for row in scan_records(open_store(root)).table().to_pylist() if row["body_length_bytes"] > 8)
    flip(Path(record["file"]), record["position_bytes"] + 92)  # a byte of its body
    store = open_store(root)
    reading = audit([store], settings_of(name))
    events = {row["transaction_id"]: row["next_event"] for row in reading.table().to_pylist()}
    assert "record-body-crc" in {one.code for one in reading.findings}
    rows = pending([store], settings_of(name)).table().to_pylist()
    found = {row["transaction_id"]: row["next_event"] for row in rows}
    assert set(found.values()) == {"cut"}
    assert found == {identity: events[identity] for identity in found}


@pytest.mark.parametrize("directory", ["topics", "subscriptionGroups"])
@pytest.mark.parametrize("pattern", ["*.sst", "MANIFEST-*"])
def test_databases_of_settings_are_read_whole(directory: str, pattern: str, tmp_path: Path) -> None:
    root = copy_of("rocksdb-queues-5.5.0", tmp_path)
    assert "database-unread" not in verified(root)
    file = max((root / "config" / directory).glob(pattern))
    flip(file, file.stat().st_size // 2)
    assert verified(root)["database-unread"] == directory


def test_a_database_of_transactions_that_no_transaction_uses(tmp_path: Path) -> None:
    root = copy_of("common-5.5.0", tmp_path)
    (root / "rocksdbstore" / "CURRENT").unlink()
    assert verified(root)["database-unread"] == "rocksdbstore"
    assert "database-unread" not in codes_of(root, "common-5.5.0")[0]


def test_a_start_is_refused_whatever_the_design(tmp_path: Path) -> None:
    root = copy_of("rocksdb-5.4.0", tmp_path)
    file = min((root / "consumequeue" / ROCKSDB_HALF_TOPIC / "0").iterdir())
    file.write_bytes(file.read_bytes()[:1005])
    assert "start-refused" in codes_of(root, "rocksdb-5.4.0")[1]


def test_an_impossible_time_of_the_checkpoint(tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path)
    flip(root / "checkpoint", 1, 0x20)
    store = open_store(root)
    assert "checkpoint-damaged" in codes_of(root, "common-5.3.3")[0]
    reading = pending([store], settings_of("common-5.3.3"))
    reading.table()
    assert "checkpoint-damaged" in {one.code for one in reading.findings}


@pytest.mark.parametrize(
    ("name", "topic", "slot"),
    [("cursorback-5.5.0", HALF_TOPIC, 37), ("common-5.3.3", HALF_TOPIC, 1), ("common-5.3.3", OP_TOPIC, 1)],
)
@pytest.mark.parametrize("at", [0, 3, 8])
def test_a_slot_before_the_cursor_at_which_the_next_start_cuts_its_queue(
    name: str, topic: str, slot: int, at: int, tmp_path: Path
) -> None:
    root = copy_of(name, tmp_path)
    flip(min((root / "consumequeue" / topic / "0").iterdir()), slot * 20 + at, 0x80 if at != 3 else 0x7F)
    assert "start-cuts-queue" in verified(root)
    assert "start-cuts-queue" in codes_of(root, name)[0] & pending_codes(root, name)


@pytest.mark.parametrize("name", ["rocksdb-separate-5.5.0", "rocksdb-combined-5.4.0"])
@pytest.mark.parametrize("topic", [OP_TOPIC, HALF_TOPIC])
def test_a_slot_in_a_file_beside_the_queues_in_rocksdb(name: str, topic: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    flip(min((root / "consumequeue" / topic / "0").iterdir()), 11, 0x01)  # the length in its first slot
    assert "slot-mismatch" in codes_of(root, name)[1] & pending_codes(root, name)


def test_a_table_of_rocksdb_without_the_last_half_after_a_clean_stop(tmp_path: Path) -> None:
    name = "rocksdb-slave-5.5.0"
    root = copy_of(name, tmp_path)
    assert "database-entry" not in codes_of(root, name)[0]
    manifest = next((root / "rocksdbstore").glob("MANIFEST-*"))
    manifest.write_bytes(manifest.read_bytes()[:174])
    assert "database-entry" in verified(root)
    assert "database-entry" in codes_of(root, name)[0] & pending_codes(root, name)


def test_a_cursor_beyond_the_end_that_the_next_start_does_not_read(tmp_path: Path) -> None:
    name = "lmq-switched-5.3.3"
    root = copy_of(name, tmp_path)
    file = root / "config" / "consumerOffset.json"
    text, changed = re.subn(rf'("{HALF_TOPIC}@[^"]*":\s*{{\s*"?0"?:)\d+', r"\g<1>962", file.read_text())
    assert changed == 1
    file.write_text(text)
    found = run_job(
        Verify(FULL, "5.3.3", tuple((settings_of(name)(open_store(root)).given or {}).items())),
        plan_splits([open_store(root)]), processes=1,
    ).table()["code"].to_pylist()
    assert "cursor-beyond-end" not in found
    assert "cursors-not-loaded" in codes_of(root, name)[0] & pending_codes(root, name) & set(found)


@pytest.mark.parametrize("text", ["", '{"offsetTable":{}}', '{"offsetTable":{2:"six"}}'])
def test_without_the_cursors_of_the_delay_levels_no_delayed_half_message_is_left_out(text: str, tmp_path: Path) -> None:
    root = copy_of("delayed-4.4.0", tmp_path)
    expected = audit([open_store(root)], settings_of("delayed-4.4.0")).table()
    (root / "config" / "delayOffset.json").write_text(text)
    found = pending([open_store(root)], settings_of("delayed-4.4.0")).table()
    assert found.num_rows == 2
    open_ids = expected.filter(pc.equal(expected["state"], "PENDING"))["transaction_id"].to_pylist()
    assert set(found["transaction_id"].to_pylist()) == set(open_ids)


def test_a_body_that_ends_the_log_of_a_killed_broker_before_its_last_three_files(tmp_path: Path) -> None:
    root = copy_of("killed-4.4.0", tmp_path)
    flip(root / "commitlog" / f"{1 << 14:020}", 16120)
    assert "start-cuts-log" in verified(root)
    reading = audit([open_store(root)], settings_of("killed-4.4.0"))
    assert "cut" in " ".join(filter(None, reading.table()["next_event"].to_pylist()))
    assert "record-body-crc" in {one.code for one in reading.findings}


def test_an_impossible_crc_of_an_ordinary_message_ends_the_log(tmp_path: Path) -> None:
    root = copy_of("rocksdb-configs-5.5.0", tmp_path)
    log = min((root / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    data[995:999] = b"\xff" * 4
    log.write_bytes(data)
    assert "start-cuts-log" in verified(root)
    assert "record-body-crc" in codes_of(root, "rocksdb-configs-5.5.0")[0]


@pytest.mark.parametrize("name", ["cursoredited-4.3.0", "common-5.3.3"])
def test_another_id_in_the_last_half_message(name: str, tmp_path: Path) -> None:
    """No other record has the id: a scan shows that the index has another id for this record, the last one in it."""
    root = copy_of(name, tmp_path)
    halves = [row for row in scan_records(open_store(root)).table().to_pylist() if row["topic"] == HALF_TOPIC]
    last = max(halves, key=lambda row: int(row["queue_offset"]))
    file, begin = Path(last["file"]), int(last["position_bytes"])
    flip(file, file.read_bytes().index(b"UNIQ_KEY\x01", begin) + len("UNIQ_KEY\x01") + 20, 1)
    assert "words-contradict" in pending_codes(root, name) & codes_of(root, name)[1]


def test_a_state_table_that_the_next_start_makes_again_from_a_short_redo_log(tmp_path: Path) -> None:
    name = "statetable-killed-3.1.4"
    root = copy_of(name, tmp_path)
    file = next((root / "transaction" / "redolog").rglob("0" * 20))
    file.write_bytes(file.read_bytes()[:24])
    assert "table-remade" in verified(root)
    assert "table-remade" in codes_of(root, name)[0] & pending_codes(root, name)


def test_a_half_message_with_lost_properties_is_the_same_finding_of_a_verification(tmp_path: Path) -> None:
    """The lengths of its parts are still right, so brokers accept the record."""
    root = copy_of("common-4.9.7", tmp_path)
    halves = [row for row in scan_records(open_store(root)).table().to_pylist() if row["topic"] == HALF_TOPIC]
    last = max(halves, key=lambda row: int(row["queue_offset"]))
    file, end = Path(last["file"]), int(last["position_bytes"]) + int(last["length_bytes"])
    data = bytearray(file.read_bytes())
    begin = data.index(HALF_TOPIC.encode(), int(last["position_bytes"])) + len(HALF_TOPIC) + 2
    data[begin:end] = bytes(end - begin)
    file.write_bytes(data)
    assert "half-unreadable" in verified(root).keys() & codes_of(root, "common-4.9.7")[1]
