"""What a start of the broker would do with a damaged store, version by version."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.jobs.job_runner import run_job
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.storage.open_file import OpenFile
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import HALF_TOPIC, SCHEDULE_TOPIC, open_store
from rmqtx.verdicts.startup.log_walk import BLANK_OK, END, MISMATCH, RECORD_OK, check_record
from rmqtx.verdicts.startup.rules import possible_rules, rules_of
from rmqtx.verdicts.verify.verify import DEFAULT, Verify
from tests.forge import damage
from tests.forge.damage import log_files, queue_files, records_in
from tests.forge.logs import Forge
from tests.forge.records import Message, blank
from tests.forge.stores import copy_of, opened

Row = dict[str, Any]
VERSIONS = ("4.3.0", "4.4.0", "4.9.7", "5.1.4", "5.3.3", "5.5.0")


def foreseen(root: Path, version: str | None = None, level: str = DEFAULT, **conf: str) -> dict[str, Row]:
    """The one row of each kind about the next start, but for what the check does after it."""
    job = Verify(level, version, tuple(conf.items()))
    rows = run_job(job, plan_splits([open_store(root)])).table().to_pylist()
    found = [row for row in rows if row["code"].startswith("start-") and row["code"] != "start-checks-again"]
    assert len({row["code"] for row in found}) == len(found), [(row["code"], row["file"]) for row in found]
    return {row["code"]: row for row in found}


def forged(tmp_path: Path) -> tuple[Path, list[int]]:
    """A store of one file: five half messages, an op that ends the first, its final."""
    forge = Forge(tmp_path, segment_bytes=1 << 16)
    halves = [forge.half(f"T{number}") for number in range(5)]
    final = forge.commit(halves[0])
    op = forge.op(halves[0])
    return forge.write(half_cursor=0, op_cursor=0), [*halves, final, op]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wrong_crc_ends_the_log(tmp_path: Path, version: str) -> None:
    root, offsets = forged(tmp_path)
    damage.flip_byte(log_files(root)[0], offsets[3] + 88)
    rows = foreseen(root, version)
    assert rows.keys() == {"start-cuts-log"}
    row = rows["start-cuts-log"]
    assert row["commit_log_offset"] == row["position_bytes"] == offsets[3]
    assert row["meaning"].startswith("2 half messages are lost")
    assert "1 op message is lost" in row["meaning"]
    assert "1 COMMIT record is lost" in row["meaning"]
    assert "(half messages of T3, T4)" in row["meaning"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wrong_place_is_no_end(tmp_path: Path, version: str) -> None:
    """No broker looks at a record's own offset, so a start goes on where our reading sees damage."""
    root, offsets = forged(tmp_path)
    damage.flip_byte(log_files(root)[0], offsets[3] + 28)
    assert "start-cuts-log" not in foreseen(root, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stray_file(tmp_path: Path, version: str) -> None:
    root, _ = forged(tmp_path)
    damage.foreign_file(root / "commitlog")
    rows = foreseen(root, version)
    assert rows.keys() == (set() if version in ("4.3.0", "4.4.0") else {"start-refused"})


@pytest.mark.parametrize("version", ["4.3.0", "4.4.0", "4.9.2", "4.9.7"])
def test_a_short_queue_file(tmp_path: Path, version: str) -> None:
    """A broker that does not refuse a file of another length leaves it out: 4.3.0 and 4.4.0 did (docs/starts.md)."""
    root, _ = forged(tmp_path)
    file = queue_files(root, HALF_TOPIC)[-1]
    damage.truncate(file, file.stat().st_size // 2)
    rows = foreseen(root, version)
    if version == "4.9.7":
        assert rows.keys() == {"start-refused"}
        return
    row = rows["start-cuts-queue"]
    assert (row["file"], row["position_bytes"], row["expected"].split()[0]) == (str(file), 0, "5")
    assert row["actual"].startswith(f"0: the broker does not load {file.name}")
    assert rows.keys() == {"start-cuts-queue", "start-skips"}


@pytest.mark.parametrize("name", ["00000000000000000000.gz", "README"])
def test_what_stands_before_a_file_of_the_log_hides_it(tmp_path: Path, name: str) -> None:
    """4.3.0 and 4.4.0 ended at 16,048 in such a store, and left the files behind it where they were."""
    root = copy_of("killed-4.4.0", tmp_path)
    hidden = log_files(root)[1:]
    (root / "commitlog" / name).write_bytes(b"an operator's copy")
    rows = run_job(Verify(DEFAULT, "4.4.0"), plan_splits([open_store(root)])).table().to_pylist()
    found = [row for row in rows if row["code"] == "start-leaves-out"]
    assert not deleted(root, "4.4.0")
    if name == "README":  # it sorts last
        assert not found
        return
    used = [file for file in hidden if records_in(file)]
    assert [row["file"] for row in found] == [str(file) for file in used]
    assert found[0]["actual"].startswith(f"the broker does not load {name}")


def test_a_directory_in_the_log(tmp_path: Path) -> None:
    root, _ = forged(tmp_path)
    (root / "commitlog" / "old").mkdir()
    assert foreseen(root, "5.0.0").keys() == {"start-refused"}
    assert foreseen(root, "5.1.0").keys() == set()


def test_an_empty_last_file(tmp_path: Path) -> None:
    root, _ = forged(tmp_path)
    (root / "commitlog" / f"{1 << 16:020d}").touch()
    assert foreseen(root, "5.1.2").keys() == {"start-refused"}
    assert foreseen(root, "5.1.3").keys() == set()


def test_configuration_that_cannot_be_parsed(tmp_path: Path) -> None:
    root, _ = forged(tmp_path)
    file = root / "config" / "consumerOffset.json"
    damage.truncate(file, 20)
    assert "start-refused" not in foreseen(root, "5.3.3")  # without a backup the broker begins with no cursors
    shutil.copy(file, file.with_name(f"{file.name}.bak"))
    assert "start-refused" in foreseen(root, "5.3.3")


@pytest.mark.parametrize(
    ("version", "wanted"),
    [
        ("4.4.0", {"start-skips": 2}),
        ("4.9.7", {"start-enters": 2}),
        ("5.1.4", {"start-skips": 2}),
        ("5.3.3", {"start-skips": 1, "start-shifts": 1}),
    ],
)
def test_records_behind_the_last_slot(tmp_path: Path, version: str, wanted: dict[str, int]) -> None:
    """Two records that were appended to the log and to no queue (docs/formats/recovery.md#appended): each version does
    something else.
    """
    root, offsets = forged(tmp_path)
    data, _ = log_files(root)[0].read_bytes(), None
    end = offsets[-1] + records_in(log_files(root)[0])[-1][1]
    assert not any(data[end:])
    for number in (5, 6):
        message = Message(topic=HALF_TOPIC, queue_offset=number, properties=(("UNIQ_KEY", f"T{number}"),))
        record = message.record(end)
        damage.write_bytes(log_files(root)[0], end, record)
        end += len(record)
    rows = foreseen(root, version)
    assert rows.keys() == wanted.keys()
    for code, count in wanted.items():
        assert ("1 more" in rows[code]["expected"]) == (count == 2)
    if version == "5.1.4":
        assert foreseen(root, version, recheckReputOffsetFromCq="true").keys() == {"start-enters"}
    (root / "abort").touch()
    assert foreseen(root, version).keys() == {"start-enters"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_slot_of_zeros_cuts_its_queue(tmp_path: Path, version: str) -> None:
    root, offsets = forged(tmp_path)
    damage.zero_bytes(queue_files(root, HALF_TOPIC)[0], 40, 20)
    rows = foreseen(root, version)
    assert rows.keys() == {"start-cuts-queue", "start-skips"}
    assert rows["start-cuts-queue"]["actual"] == "2: slot 2 is invalid"
    assert rows["start-skips"]["commit_log_offset"] == offsets[2]
    assert rows["start-skips"]["meaning"].startswith("3 half messages are never checked")
    (root / "abort").touch()
    (root / "checkpoint").write_bytes(bytes(4096))
    assert foreseen(root, version).keys() == {"start-cuts-queue", "start-enters"}


def test_no_blank_record_before_the_next_file(tmp_path: Path) -> None:
    """docs/formats/recovery.md#appended: the walk ends in the old file, and the new one is deleted, by all versions."""
    forge = Forge(tmp_path, segment_bytes=4096)
    while len(forge._data) < 9000:
        forge.half(f"T{len(forge._data)}")
    root = forge.write()
    first = log_files(root)[0]
    place = first.read_bytes().rindex(bytes.fromhex("cbd43194")) - 4
    damage.zero_bytes(first, place, 8)
    later = [file.name for file in log_files(root)[1:]]
    for version in VERSIONS:  # 5.3.2 and later begin in the file where the queues end, and do not come by there
        assert deleted(root, version) == ([] if version in ("5.3.3", "5.5.0") else later)
    (root / "abort").touch()
    (root / "checkpoint").write_bytes(bytes(4096))
    for version in VERSIONS:
        assert deleted(root, version) == later


def deleted(root: Path, version: str) -> list[str]:
    """The names of the files of the log that a start would delete."""
    rows = run_job(Verify(DEFAULT, version), plan_splits([open_store(root)])).table().to_pylist()
    return [Path(row["file"]).name for row in rows if row["code"] == "start-deletes-segment"]


def test_no_log_at_all(tmp_path: Path) -> None:
    root, _ = forged(tmp_path)
    damage.drop(log_files(root)[0])
    assert "start-deletes-queues" not in foreseen(root, "4.4.0")
    assert "start-deletes-queues" in foreseen(root, "4.9.7")


def test_what_only_some_versions_do_names_them(tmp_path: Path) -> None:
    root, offsets = forged(tmp_path)
    damage.zero_bytes(queue_files(root, HALF_TOPIC)[0], 80, 20)
    root.joinpath("abort").unlink(missing_ok=True)
    kinds = possible_rules(broker_settings(open_store(root)))
    assert len(kinds) > 1
    rows = run_job(Verify(), plan_splits([open_store(root)])).table().to_pylist()
    told = [row for row in rows if row["code"].startswith("start-")]
    assert told
    assert all("--broker-version" in row["meaning"] for row in told if row["code"] == "start-enters")
    assert offsets


def test_rocksdb_is_not_foreseen(tmp_path: Path) -> None:
    root, _ = forged(tmp_path)
    damage.drop(root / "consumequeue")
    damage.foreign_file(root / "consumequeue", "CURRENT", b"MANIFEST-000004\n")
    assert "start-unforeseen" in foreseen(root, "5.3.3")
    assert foreseen(root, "5.3.3").keys() <= {"start-unforeseen", "start-refused"}  # the database cannot be opened


def test_the_walk_agrees_with_ours_on_real_records() -> None:
    for name in ("common-4.9.7", "ipv6-5.3.3", "longtopic-5.1.4"):
        segment = opened(name).commit_log[0]
        rules = rules_of((5, 3, 3))
        with segment.open() as file:
            for place, length in records_in(Path(segment.file)):
                found = check_record(file, place, rules)
                assert (found.kind, found.length_bytes) == (RECORD_OK, length)


def test_kinds_of_places(tmp_path: Path) -> None:
    record = Message(properties=(("TAGS", "a"),)).record(0)
    longer = (len(record) + 1).to_bytes(4, "big") + record[4:] + b"x"
    scheduled = Message(topic=SCHEDULE_TOPIC, properties=(("DELAY", "soon"),)).record(0)
    old, new = rules_of((4, 9, 7)), rules_of((5, 3, 3))
    for number, (data, kind) in enumerate(
        [(record, RECORD_OK), (longer, MISMATCH), (scheduled, END), (blank(64), BLANK_OK), (bytes(200), END)]
    ):
        file = tmp_path / f"{number}"
        file.write_bytes(data.ljust(4096, b"\0"))
        with OpenFile(str(file), 4096) as opened_file:
            assert check_record(opened_file, 0, old).kind == kind == check_record(opened_file, 0, new).kind
    file = tmp_path / "long"
    file.write_bytes((5000).to_bytes(4, "big") + blank(64)[4:] + bytes(4000))
    with OpenFile(str(file), file.stat().st_size) as opened_file:
        assert check_record(opened_file, 0, old).kind == BLANK_OK
        assert check_record(opened_file, 0, new).kind == END  # 5.3.2+ look at the length first


def test_a_real_store_cut_in_its_middle(tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path)
    file = log_files(root)[0]
    place, _ = records_in(file)[100]
    damage.zero_bytes(file, place, 8)
    row = foreseen(root, "5.3.3")["start-cuts-log"]
    assert row["commit_log_offset"] == place
    assert re.search(r"\d+ half messages are lost", row["meaning"])


def test_a_start_that_waits_for_a_file_that_is_gone(tmp_path: Path) -> None:
    """4.5.1 to 4.9.8 dispatch what lies behind the queues before they serve: in a gap they wait for ever."""
    root = copy_of("killed-4.9.7", tmp_path)
    damage.drop([file for file in log_files(root) if records_in(file)][-1])
    assert "start-endless" in foreseen(root, "4.9.7")
    for version in ("4.4.0", "5.1.4", "5.3.3"):
        assert "start-endless" not in foreseen(root, version)


@pytest.mark.parametrize(("version", "is_read_again"), [("5.3.3", False), ("5.3.4", True), ("5.5.0", True)])
def test_old_slots_behind_what_was_entered_count_again(tmp_path: Path, version: str, is_read_again: bool) -> None:
    """A start of 5.5.0 left the half queue of this store as long as it was: tests/brokers/starts, "half slot zeroed".

    The last records of the log are halves; they are entered behind the slot that cannot be, and then the file is read
    again from its begin: what stood behind them counts.
    """
    root = copy_of("common-5.5.0", tmp_path)
    damage.zero_bytes(queue_files(root, HALF_TOPIC)[0], 20 * 20, 20)
    rows = foreseen(root, version)
    halves = "queue 0 of RMQ_SYS_TRANS_HALF_TOPIC"
    assert rows["start-shifts"]["expected"] == f"slot 269 of {halves}, and those of 18 more records"
    if is_read_again:
        assert rows.keys() == {"start-shifts", "start-skips"}
        assert rows["start-shifts"]["actual"] == "slots 20 to 38, overwriting those of other records"
        assert rows["start-skips"]["meaning"].startswith("19 half messages are never checked")
        assert rows["start-skips"]["actual"] == "none; the queue continues at 288"
    else:
        assert rows.keys() == {"start-cuts-queue", "start-shifts", "start-skips"}
        assert rows["start-cuts-queue"]["actual"] == "20: slot 20 is invalid"
        assert rows["start-skips"]["meaning"].startswith("249 half messages are never checked")


def test_a_walk_begins_ten_files_back_at_most(tmp_path: Path) -> None:
    """From 5.4.0 on, whatever the checkpoint says: commitLogRecoverMaxNum."""
    assert rules_of((5, 3, 3)).files_back_max is None
    assert rules_of((5, 5, 0)).files_back_max == 10
    assert rules_of((5, 5, 0), {"commitLogRecoverMaxNum": "3"}).files_back_max == 3


@pytest.mark.parametrize(("switch", "is_cut"), [({}, False), ({"forceVerifyPropCRC": "true"}, True)])
def test_torn_properties_end_the_log_only_where_their_crc_is_tested(
    tmp_path: Path, switch: dict[str, str], is_cut: bool
) -> None:
    root = copy_of("propcrc-5.3.3", tmp_path)
    assert "start-cuts-log" not in foreseen(root, "5.3.3", **switch)
    file = next(file for file in log_files(root) if records_in(file))
    place, length = records_in(file)[40]
    damage.zero_bytes(file, place + length - 5, 5)
    rows = foreseen(root, "5.3.3", **switch)
    assert ("start-cuts-log" in rows) == is_cut
    if is_cut:
        assert rows["start-cuts-log"]["commit_log_offset"] == int(file.name) + place


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rocksdb-5.5.0", ("half messages are lost", "op messages are lost", "COMMIT records are lost")),
        ("statetable-3.1.4", ("prepared records are lost", "ROLLBACK records are lost", "COMMIT records are lost")),
    ],
)
def test_what_a_cut_takes_from_the_other_designs_is_named(name: str, words: tuple[str, ...], tmp_path: Path) -> None:
    """They were "other messages", which consumers "never receive"."""
    root = copy_of(name, tmp_path)
    file = max(log_files(root), key=lambda one: len(one.read_bytes().rstrip(b"\0")))
    damage.zero_bytes(file, len(file.read_bytes().rstrip(b"\0")) // 8, 4096)
    row = foreseen(root)["start-cuts-log"]
    for part in words:
        assert re.search(rf"\d+ {part}", row["meaning"]), row["meaning"]
