"""Holes in logs: what they cannot have hidden stays decided, what they did hide never looks decided otherwise.

The truth is the audit of the undamaged store. Every hole is one that really hid records: no certain state may be
another than the truth, and where what decided a transaction was in the hole, nothing certain may be said of it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from tests.forge.damage import flip_byte
from tests.forge.stores import copy_of, settings_of
from tests.fuzz.holes import overwritten
from tests.representatives import one_of_each_design, rest_is_slow
from tests.verdicts.truth import audited

Row = dict[str, Any]
CLEAN = "common-4.9.7"
STORES = (
    CLEAN, "killed-5.1.4", "masked-4.4.0", "delayed-5.3.3", "rocksdb-5.5.0", "rocksdb-queues-5.5.0", "statetable-3.1.4",
    "prepared-4.2.0", "upgraded-4.2.0-4.9.7", "dledger-5.1.4",
)
#: Parts of a log. The last one is left out: where a log ends is the matter of `test_lost_tail.py`.
PARTS = 8


def by_id(rows: list[Row]) -> dict[str, Row]:
    return {row["transaction_id"]: row for row in rows}


def judged(root: Path, name: str) -> dict[str, Row]:
    return by_id(audit([open_store(root)], settings_of(name)).table().to_pylist())


def records_of(root: Path) -> list[Row]:
    rows: list[Row] = scan_records(open_store(root)).table().to_pylist()
    return rows


def require_no_other_state(truth: dict[str, Row], now: dict[str, Row], what: str) -> int:
    """That no certain state is another than the truth; gives how many are UNDECIDABLE."""
    for identity, row in truth.items():
        found = now.get(identity)
        if found is not None and found["state"] not in (row["state"], "UNDECIDABLE"):
            pytest.fail(f"{what}: {identity}: {row['state']} -> {found['state']}: {found['reason']}")
    return sum(row["state"] == "UNDECIDABLE" for row in now.values())


def deciding(row: Row) -> set[int]:
    """Where the records stand that a verdict rests on."""
    kinds = {"COMMITTED": "final_records", "ROLLED_BACK": "op_marks", "DISCARDED": "discard_copies"}
    return {entry["commit_log_offset"] for entry in row.get(kinds.get(row["state"], ""), [])}


@pytest.mark.parametrize("name", one_of_each_design(STORES))
def test_a_part_of_the_log_is_gone(name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    truth, records = by_id(audited(name)), records_of(root)
    for number in range(PARTS - 1):
        part = records[number * len(records) // PARTS : (number + 1) * len(records) // PARTS]
        with overwritten(part, b"\0" if number % 2 else b"\xff"):
            now = judged(root, name)
        require_no_other_state(truth, now, f"part {number} of {PARTS}")
        gone = {record["commit_log_offset"] for record in part}
        for identity, row in now.items():
            decided = deciding(truth[identity]) if identity in truth else set()
            if decided and decided <= gone:
                assert row["state"] == "UNDECIDABLE", f"part {number}: {identity}: {row['state']}: {row['reason']}"


@pytest.mark.parametrize(
    "name", rest_is_slow([CLEAN, "killed-5.1.4", "statetable-3.1.4", "masked-4.4.0", "rocksdb-5.5.0"], quick=3)
)
def test_the_records_that_decided_a_transaction_are_gone(name: str, tmp_path: Path) -> None:
    """The attack on every proof: the decision was in the hole, alone or beside its neighbours."""
    root = copy_of(name, tmp_path)
    truth, records = by_id(audited(name)), records_of(root)
    places = {record["commit_log_offset"]: number for number, record in enumerate(records)}
    decided = [row for row in truth.values() if deciding(row) and deciding(row) <= places.keys()]
    for number, row in enumerate(decided[:: max(1, len(decided) // 8)]):
        steps = (-1, 0, 1) if number % 2 else (0,)
        rows = {places[offset] + step for offset in deciding(row) for step in steps}
        with overwritten([records[place] for place in sorted(rows) if 0 <= place < len(records)]):
            now = judged(root, name)
        identity = row["transaction_id"]
        require_no_other_state(truth, now, f"without what decided {identity}")
        if identity in now:
            assert now[identity]["state"] == "UNDECIDABLE", now[identity]["reason"]


def record_of(records: list[Row], topic: str) -> Row:
    """A record of a topic from the middle of the log."""
    mine = [record for record in records if record["topic"] == topic]
    return mine[len(mine) // 2]


def test_the_records_of_another_transaction_leave_nothing_open(tmp_path: Path) -> None:
    """Half and final of one stand in the hole: the others stay as they are.

    But those whose op could be the one of a decision on a record outside the half topic: the final might be that.
    """
    root = copy_of(CLEAN, tmp_path)
    truth, records = by_id(audited(CLEAN)), records_of(root)
    (committed, *_) = [row for row in truth.values() if row["state"] == "COMMITTED" and len(row["half_copies"]) == 1]
    gone = {committed["half_copies"][0]["commit_log_offset"], *deciding(committed)}
    with overwritten([record for record in records if record["commit_log_offset"] in gone]):
        now = judged(root, CLEAN)
    require_no_other_state(truth, now, "a whole transaction")
    final = max(gone)
    for identity, row in now.items():
        if row["state"] == "UNDECIDABLE":
            assert truth[identity]["state"] == "ROLLED_BACK"
            assert max(mark["commit_log_offset"] for mark in row["op_marks"]) > final
    assert set(truth) - set(now) <= {committed["transaction_id"]}


def test_an_op_leaves_open_what_it_may_have_ended_and_nothing_behind(tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path)
    truth, records = by_id(audited(CLEAN)), records_of(root)
    op = record_of(records, OP_TOPIC)
    with overwritten([op]):
        now = judged(root, CLEAN)
    for identity, row in now.items():
        began = row["half_copies"][0]["commit_log_offset"]
        if began > op["commit_log_offset"]:
            assert row["state"] == truth[identity]["state"]
        elif truth[identity]["state"] in ("PENDING", "LOST", "DISCARDED"):
            assert row["state"] == "UNDECIDABLE"


@pytest.mark.parametrize("topic", [OP_TOPIC, DISCARD_TOPIC, HALF_TOPIC, "real"])
@pytest.mark.parametrize("wound", ["the slot is zeros", "the queue is gone", "all queues are gone", "no index"])
def test_without_the_witness_nothing_is_proven(topic: str, wound: str, tmp_path: Path) -> None:
    """The record is gone, and so is what knows that it was there: what is left must not be taken for all there was."""
    root = copy_of(CLEAN, tmp_path)
    truth, records = by_id(audited(CLEAN)), records_of(root)
    committed = [row for row in truth.values() if row["state"] == "COMMITTED" and len(row["final_records"]) == 1]
    final = committed[len(committed) // 2]["final_records"][0]["commit_log_offset"]
    gone = (
        next(record for record in records if record["commit_log_offset"] == final)
        if topic == "real" else record_of(records, topic)
    )
    queue = root / "consumequeue" / gone["topic"]
    if wound == "the slot is zeros":
        with (queue / str(gone["queue_id"]) / ("0" * 20)).open("r+b") as file:
            file.seek(gone["queue_offset"] * 20)
            file.write(bytes(20))
    elif wound == "no index":
        shutil.rmtree(root / "index")
    else:
        shutil.rmtree(queue if wound == "the queue is gone" else root / "consumequeue")
    with overwritten([gone]):
        now = judged(root, CLEAN)
    require_no_other_state(truth, now, wound)
    if topic == "real":
        assert now[committed[len(committed) // 2]["transaction_id"]]["state"] == "UNDECIDABLE"


def test_the_queue_of_another_log_proves_nothing(tmp_path: Path) -> None:
    root, other = copy_of(CLEAN, tmp_path / "one"), copy_of("common-5.1.4", tmp_path / "other")
    truth, records = by_id(audited(CLEAN)), records_of(root)
    shutil.rmtree(root / "consumequeue" / OP_TOPIC)
    shutil.copytree(other / "consumequeue" / OP_TOPIC, root / "consumequeue" / OP_TOPIC)
    with overwritten([record_of(records, OP_TOPIC)]):
        require_no_other_state(truth, judged(root, CLEAN), "a queue of another log")


def test_a_file_of_the_log_is_gone(tmp_path: Path) -> None:
    """Its queues tell what stood in it: what began behind it, and what it cannot have ended, stays as it is."""
    name = "killed-5.1.4"
    truth, root = by_id(audited(name)), copy_of(name, tmp_path)
    files = sorted((root / "commitlog").iterdir())
    open_counts = []
    for file in files[1:-1]:
        aside = file.rename(tmp_path / "aside")
        now = judged(root, name)
        aside.rename(file)
        open_counts.append(require_no_other_state(truth, now, f"without {file.name}"))
        end = int(file.name) + file.stat().st_size
        for identity, row in now.items():
            copies = row["half_copies"]
            if copies and copies[0]["commit_log_offset"] >= end and copies[0]["checks_count"] is None:
                assert row["state"] == truth[identity]["state"], f"{file.name}: {identity}: {row['reason']}"
    assert any(open_counts)


@pytest.mark.parametrize("name", ["masked-4.4.0", "masked-4.9.7", "masked-5.5.0"])
@pytest.mark.parametrize("position", [5, 15])
def test_a_damaged_decision_on_another_record_decides_no_half(name: str, position: int, tmp_path: Path) -> None:
    """One bit of a COMMIT record that names a discard copy or a final: its op is no rollback of the half it marks."""
    root = copy_of(name, tmp_path)
    truth, records = by_id(audited(name)), records_of(root)
    halves = {record["commit_log_offset"] for record in records if record["topic"] == HALF_TOPIC}
    strays = [
        record for record in records
        if record["prepared_transaction_offset"] and record["prepared_transaction_offset"] not in halves
    ]
    assert strays
    for record in strays:
        flip_byte(Path(record["file"]), record["position_bytes"] + position, 1)
        require_no_other_state(truth, judged(root, name), f"COMMIT record at {record['commit_log_offset']}")
        flip_byte(Path(record["file"]), record["position_bytes"] + position, 1)


@pytest.mark.parametrize("name", ["delayed-5.3.3", "common-4.9.7"])
def test_a_discard_copy_in_a_damaged_topic_is_no_final(name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    truth = by_id(audited(name))
    for record in [record for record in records_of(root) if record["topic"] == DISCARD_TOPIC][:4]:
        content = Path(record["file"]).read_bytes()
        place = content.index(DISCARD_TOPIC.encode(), record["position_bytes"])
        flip_byte(Path(record["file"]), place + 5, 1)
        require_no_other_state(truth, judged(root, name), f"discard copy at {record['commit_log_offset']}")
        flip_byte(Path(record["file"]), place + 5, 1)


@pytest.mark.parametrize("name", rest_is_slow(["delayed-4.3.0", "delayed-5.3.3"], quick=1))
def test_a_half_in_a_damaged_topic_is_no_final(name: str, tmp_path: Path) -> None:
    """The commit of a half that a delay diverted goes to the half topic: elsewhere it looks like a final."""
    root = copy_of(name, tmp_path)
    truth = by_id(audited(name))
    commits = [
        record for record in records_of(root)
        if record["topic"] == HALF_TOPIC and record["transaction_type"] == "commit"
    ]
    assert commits
    for record in commits:
        content = Path(record["file"]).read_bytes()
        place = content.index(HALF_TOPIC.encode(), record["position_bytes"])
        flip_byte(Path(record["file"]), place + 5, 1)
        require_no_other_state(truth, judged(root, name), f"half at {record['commit_log_offset']}")
        flip_byte(Path(record["file"]), place + 5, 1)
