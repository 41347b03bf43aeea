"""DLedger logs: where a wrong entry header ends them at a start, and queues that a start after a kill cuts."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.startup.dledger_log import committed_offset, walk_entries
from tests.field import right
from tests.forge import damage
from tests.forge.stores import copy_of, opened, settings_of
from tests.verdicts.startup.test_recovery import foreseen
from tests.verdicts.verifying import every_finding
from tests.verdicts.verifying import findings as verified

STORE, KILLED = "dledger-4.9.7", "dledger-killed-5.1.4"
ENTRY = 44042
#: Place in the header, form and value; where 4.9.7 then ended the log, and its half queue.
HEADERS = [
    (24, ">q", 0, 44042, 55), (8, ">q", 7, 44042, 55), (16, ">q", 9, 44514, 56), (4, ">i", 900, 44042, 55),
]


def wounded(tmp_path: Path, place: int, form: str, value: int) -> Path:
    root = copy_of(STORE, tmp_path)
    (file,) = (root / "dledger-n0" / "data").iterdir()
    damage.write_bytes(file, ENTRY + place, struct.pack(form, value))
    return root


@pytest.mark.parametrize(("place", "form", "value", "end", "half_end"), HEADERS)
def test_a_wrong_header_ends_the_log_as_4_9_7_did(
    tmp_path: Path, place: int, form: str, value: int, end: int, half_end: int
) -> None:
    root = wounded(tmp_path, place, form, value)
    row = foreseen(root, "4.9.7")["start-cuts-log"]
    assert row["commit_log_offset"] == end
    (lost,) = re.findall(r"^(\d+) half messages? (?:is|are) lost", row["meaning"])
    assert int(lost) == 59 - half_end
    assert "half messages of FD00" in row["meaning"]
    if place == 24:
        assert end == right("dledger-entry-pos")["log_readable_to"]


@pytest.mark.parametrize(("place", "form", "value", "end", "half_end"), HEADERS)
def test_the_entry_is_damage_for_every_command(
    tmp_path: Path, place: int, form: str, value: int, end: int, half_end: int
) -> None:
    root = wounded(tmp_path, place, form, value)
    found = [row for row in verified(root) if row["code"] == "entry-header"]
    assert [row["position_bytes"] for row in found] == [ENTRY]
    reading = audit([open_store(root)], settings_of(STORE))
    rows = reading.table().to_pylist()
    codes = {finding.code for finding in reading.findings if finding.kind.severity == "error"}
    assert codes == {"entry-header"}
    before = audit([opened(STORE)], settings_of(STORE)).table().to_pylist()
    assert [row["state"] for row in rows] == [row["state"] for row in before]


@pytest.mark.parametrize("name", ["dledger-4.9.7", "dledger-5.1.4", KILLED])
def test_whole_logs_end_at_their_last_entry(name: str) -> None:
    walk = walk_entries(opened(name))
    assert walk is not None
    assert walk.why == "zeros"
    assert not {row["code"] for row in verified(Path(opened(name).root))} & {"entry-header"}
    assert "start-cuts-log" not in foreseen(Path(opened(name).root), name.rpartition("-")[2])


def test_without_its_index_the_recovery_begins_at_the_first_file(tmp_path: Path) -> None:
    """4.9.7 rebuilt a removed index, and kept the log."""
    root = copy_of(STORE, tmp_path)
    damage.drop(root / "dledger-n0" / "index")
    assert walk_entries(open_store(root)) == walk_entries(opened(STORE))


def test_5_2_0_empties_the_queues_of_a_killed_broker(tmp_path: Path) -> None:
    root = copy_of(KILLED, tmp_path)
    row = foreseen(root, "5.2.0")["start-empties-queues"]
    assert row["commit_log_offset"] == 0
    assert "half queue offsets 50 to 53" in row["actual"]
    assert "50..54" in right("dledger-before-5.2.0")["start"]
    assert "50 half messages" in row["meaning"]
    assert committed_offset(open_store(root)) == 44930
    (root / "abort").unlink()
    assert "start-empties-queues" not in foreseen(root, "5.2.0")


@pytest.mark.parametrize("version", ["5.3.0", "5.3.3"])
def test_5_3_3_cut_them_short_and_shifted_the_newest(version: str, tmp_path: Path) -> None:
    """The half queue ended at 52, not at 54."""
    rows = foreseen(copy_of(KILLED, tmp_path), version)
    assert rows["start-empties-queues"]["commit_log_offset"] == 43441
    shift = rows["start-shifts"]
    assert shift["file"].endswith(f"{HALF_TOPIC}/0")
    assert (shift["expected"], shift["actual"]) == ("half queue offsets 50 to 53", "slots 48 to 51")


@pytest.mark.parametrize("version", ["5.1.4"])
def test_older_releases_keep_them(version: str, tmp_path: Path) -> None:
    assert foreseen(copy_of(KILLED, tmp_path), version).keys() == {"start-unforeseen"}


@pytest.mark.parametrize(("version", "count"), [("5.1.4", 74), ("5.2.0", 74), ("5.3.3", 74), ("5.5.0", 74)])
def test_a_missing_half_queue_stays_empty_as_on_real_brokers(tmp_path: Path, version: str, count: int) -> None:
    """These releases began the half queue at 0 and gave none of the 74 half messages a slot."""
    root = copy_of("dledger-5.1.4", tmp_path)
    damage.drop(root / "consumequeue" / HALF_TOPIC)
    row = foreseen(root, version)["start-skips"]
    assert row["actual"] == "none; the queue continues at 0"
    assert row["meaning"].startswith(f"{count} half messages are never checked")


@pytest.mark.parametrize("topic", [HALF_TOPIC, OP_TOPIC])
def test_audit_and_verify_agree_about_a_missing_queue(tmp_path: Path, topic: str) -> None:
    root = copy_of("dledger-5.1.4", tmp_path)
    damage.drop(root / "consumequeue" / topic)
    by_verify = {row["code"]: row for row in every_finding(root)}
    reading = audit([open_store(root)], settings_of("dledger-5.1.4"))
    reading.table()
    by_audit = {one.code: one for one in reading.findings}
    for code in ("start-skips", "queue-missing", "cursor-beyond-end"):
        assert (code in by_verify) == (code in by_audit), code
    assert by_verify["start-skips"]["expected"] == by_audit["start-skips"].expected
    assert "start-differs" not in by_audit


@pytest.mark.parametrize("name", [STORE, "dledger-5.1.4"])
def test_without_a_file_of_the_log_the_broker_deletes_its_queues(tmp_path: Path, name: str) -> None:
    """4.9.7 and 5.1.4 logged that the files of the commit log are deleted, and deleted all nine queues."""
    root = copy_of(name, tmp_path)
    (root / "dledger-n0" / "data" / ("0" * 20)).unlink()
    assert foreseen(root, name.removeprefix("dledger-"))["start-deletes-queues"]["actual"] == "9 consume queues"
