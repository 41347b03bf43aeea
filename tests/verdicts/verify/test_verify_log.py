"""What a verification says of a damaged commit log: the damage and nothing else."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from rmqtx.readers.log.record_layout import AT, COMMIT, TRANSACTION_MASK
from rmqtx.readers.queues.consume_queue import SLOT
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC
from rmqtx.verdicts.verify.verify import FULL, QUICK
from tests.forge import damage
from tests.forge.damage import log_files, queue_files, records_in
from tests.forge.stores import copy_of
from tests.representatives import rest_is_slow
from tests.verdicts.verifying import SEGMENTS, Row, findings, the_one


def body_of(root: Path, number: int) -> tuple[Path, int, int]:
    """File, and position and length of the body, of a record."""
    file = log_files(root)[0]
    place, _ = records_in(file)[number]
    data = file.read_bytes()
    length = int.from_bytes(data[place + AT["body_length_bytes"] :][:4], "big")
    return file, place + 88, length


def topic_of(file: Path, place: int) -> bytes:
    data = file.read_bytes()
    at = place + 88 + int.from_bytes(data[place + AT["body_length_bytes"] :][:4], "big")
    return data[at + 1 : at + 1 + data[at]]


def first_of(root: Path, topic: str) -> int:
    """Number of the first record of a topic, or of the first of any other for `""`."""
    file = log_files(root)[0]
    for number, (place, _) in enumerate(records_in(file)):
        mine = topic_of(file, place).decode()
        if mine == topic or (not topic and mine not in (HALF_TOPIC, OP_TOPIC)):
            return number
    raise AssertionError(topic)


@pytest.mark.parametrize(("topic", "code"), [("", "record-body-crc"), (HALF_TOPIC, "record-body-crc"),
                                             (OP_TOPIC, "op-unreadable")])
def test_a_byte_of_a_body(copy: Path, topic: str, code: str) -> None:
    number = first_of(copy, topic)
    file, place, _ = body_of(copy, number)
    damage.flip_byte(file, place)
    record, length = records_in(file)[number]
    row = the_one(findings(copy))
    assert (row["code"], row["file"], row["position_bytes"], row["length_bytes"]) == (code, str(file), record, length)
    assert findings(copy, QUICK) == []


def test_a_word_that_a_decision_repeats(copy: Path) -> None:
    """No checksum and no queue has the producer group; a COMMIT record repeats that of its half message."""
    file = log_files(copy)[0]
    data = file.read_bytes()
    commit = first_commit(file)
    half = int.from_bytes(data[commit + AT["prepared_transaction_offset"] :][:8], "big")
    damage.flip_byte(file, data.index(b"PGROUP\x01", half) + len(b"PGROUP\x01"))
    row = the_one(findings(copy))
    assert (row["code"], row["position_bytes"]) == ("words-contradict", commit)
    assert findings(copy, split_bytes=499) == [row]
    assert findings(copy, QUICK) == []


def first_commit(file: Path) -> int:
    data = file.read_bytes()
    kinds = {place: int.from_bytes(data[place + AT["sys_flag"] :][:4], "big") for place, _ in records_in(file)}
    return next(place for place, kind in kinds.items() if kind & TRANSACTION_MASK == COMMIT)


def test_a_decision_that_names_no_record(copy: Path) -> None:
    file = log_files(copy)[0]
    commit = first_commit(file)
    damage.flip_byte(file, commit + AT["prepared_transaction_offset"] + 7)
    row = the_one(findings(copy))
    assert (row["code"], row["position_bytes"]) == ("end-names-nothing", commit)
    assert findings(copy, split_bytes=499) == [row]
    assert findings(copy, QUICK) == []


def test_a_page_of_zeros(copy: Path) -> None:
    file = log_files(copy)[0]
    damage.zero_bytes(file, 4096, 4096)
    rows = findings(copy)
    # The page may begin in properties, whose keys the index still has.
    known = {"record-damaged", "record-properties", "half-unreadable", "index-mismatch"}
    assert {row["code"] for row in rows} <= known
    places = [(row["position_bytes"], row["position_bytes"] + row["length_bytes"]) for row in rows]
    assert min(begin for begin, _ in places) <= 4096
    assert max(end for _, end in places) >= 8192
    assert sorted(map(str, findings(copy, split_bytes=499))) == sorted(map(str, rows))


@pytest.mark.parametrize(
    ("field", "value", "width", "code"),
    [
        ("sys_flag", 0x4000_0000, 4, "record-header"),
        ("prepared_transaction_offset", 1 << 40, 8, "record-header"),
        ("born_port", -1, 4, "record-header"),
        ("reconsume_times", -1, 4, "record-header"),
        ("store_time_ms", 1 << 60, 8, "record-header"),
        ("body_crc", -1, 4, "record-header"),
        ("queue_offset", 77, 8, "slot-mismatch"),
        ("queue_id", 3, 4, "slot-mismatch"),
    ],
)
def test_a_header_field(copy: Path, field: str, value: int, width: int, code: str) -> None:
    number = first_of(copy, HALF_TOPIC) + 1
    file = log_files(copy)[0]
    place, length = records_in(file)[number]
    damage.write_bytes(file, place + AT[field], value.to_bytes(width, "big", signed=True))
    rows = [row for row in findings(copy) if row["code"] not in ("store-time-backwards", "record-body-crc")]
    row = the_one(rows)
    assert row["meaning"].startswith("by the queue 1 half message should be there") == (code == "slot-mismatch")
    assert row["code"] == code
    assert row["commit_log_offset"] in (place, None)
    if code == "record-header":
        assert (row["file"], row["position_bytes"], row["length_bytes"]) == (str(file), place, length)
        assert row["actual"] == f"{field} {value}"
    else:
        assert row["file"] == str(queue_files(copy, HALF_TOPIC)[0])
        assert row["length_bytes"] == SLOT.size_bytes


def test_a_word_of_the_properties(copy: Path) -> None:
    """Only the index knows what an id was."""
    number = first_of(copy, HALF_TOPIC)
    file = log_files(copy)[0]
    place, length = records_in(file)[number]
    at = file.read_bytes().index(b"UNIQ_KEY\x01", place, place + length) + 20
    damage.flip_byte(file, at, 1)
    rows = findings(copy)
    assert {row["code"] for row in rows} == {"index-mismatch"}
    assert {row["commit_log_offset"] for row in rows} == {place}


def test_properties_that_are_none(copy: Path) -> None:
    number = first_of(copy, HALF_TOPIC)
    file = log_files(copy)[0]
    place, length = records_in(file)[number]
    at = file.read_bytes().index(b"WAIT\x01", place, place + length) + 4
    damage.write_bytes(file, at, b"x")
    assert findings(copy) == []
    row = the_one(findings(copy, FULL))
    assert (row["code"], row["position_bytes"]) == ("record-properties", place)


def test_a_property_crc(tmp_path: Path) -> None:
    root = copy_of("propcrc-5.3.3", tmp_path)
    file = log_files(root)[0]
    place, length = records_in(file)[3]
    damage.flip_byte(file, place + AT["flag"])  # which nothing else knows
    row = the_one(findings(root))
    assert (row["code"], row["position_bytes"], row["length_bytes"]) == ("record-property-crc", place, length)


def test_a_clock_that_was_set_back(copy: Path) -> None:
    file = log_files(copy)[0]
    place, _ = records_in(file)[5]
    before = int.from_bytes(file.read_bytes()[place + AT["store_time_ms"] :][:8], "big")
    damage.write_bytes(file, place + AT["store_time_ms"], (before - 3_600_000).to_bytes(8, "big"))
    row = the_one(findings(copy))
    assert (row["code"], row["commit_log_offset"], row["actual"]) == (
        "store-time-backwards", place, str(before - 3_600_000),
    )
    assert sorted(map(str, findings(copy, split_bytes=499))) == [str(row)]


def test_the_last_files_are_gone(tmp_path: Path) -> None:
    root = copy_of(SEGMENTS, tmp_path)
    files = sorted(log_files(root), key=lambda file: file.name)
    for file in files[-3:]:
        damage.drop(file)
    rows = findings(root)
    codes = {row["code"] for row in rows}
    assert {"slot-dangling", "checkpoint-ahead"} <= codes
    assert codes <= {"slot-dangling", "checkpoint-ahead", "log-missing"}, codes


def test_a_file_in_the_middle_is_gone(tmp_path: Path) -> None:
    root = copy_of(SEGMENTS, tmp_path)
    file = sorted(log_files(root), key=lambda file: file.name)[2]
    damage.drop(file)
    row = the_one(findings(root))
    assert (row["code"], row["commit_log_offset"]) == ("segment-gap", int(file.name))
    assert [row["code"] for row in findings(root, QUICK)] == ["segment-gap"]


def test_a_stray_file(copy: Path) -> None:
    damage.foreign_file(copy / "commitlog")
    row = the_one(findings(copy))
    assert (row["code"], row["file"]) == ("stray-file", str(copy / "commitlog" / "notes.txt"))


def offsets_named(row: Row) -> set[int]:
    """Commit-log offsets that a finding speaks of."""
    words = " ".join(str(row[name]) for name in ("commit_log_offset", "expected", "actual"))
    return {int(word) for word in re.findall(r"\d+", words)}


@pytest.mark.parametrize(
    ("name", "count"),
    rest_is_slow([("killed-4.3.0", 30), ("common-5.3.3", 120), ("killed-4.3.0", 120)], quick=0, slow=1),
)
def test_any_byte_of_any_record(name: str, count: int, tmp_path: Path) -> None:
    """One wrong byte is one kind of finding, about its record; not every byte can be known to be wrong."""
    root = copy_of(name, tmp_path)
    chance = random.Random(name)
    before = {str(row) for row in findings(root)}
    places = [(file, *place) for file in log_files(root) for place in records_in(file)]
    found = 0
    for number in range(count):
        file, place, length = chance.choice(places)
        data = file.read_bytes()
        inside = chance.randrange(88) if number % 2 else chance.randrange(length)
        damage.flip_byte(file, place + inside, chance.randint(1, 255))
        rows = [row for row in findings(root) if str(row) not in before]
        file.write_bytes(data)
        assert len({row["code"] for row in rows}) <= 1, (inside, rows)
        found += bool(rows)
        offset = int(file.name) + place
        slots = {number for _, number in slots_of(root, offset)}
        for row in rows:
            is_slot = row["code"].startswith("slot") and row["position_bytes"] in slots
            assert offset in offsets_named(row) or is_slot, (offset, inside, row)
    assert found > count / 2


def slots_of(root: Path, offset: int) -> list[tuple[Path, int]]:
    """File and position of the slots that point at a record."""
    wanted = offset.to_bytes(8, "big")
    return [
        (file, place)
        for file in queue_files(root)
        for place in range(0, len(file.read_bytes().rstrip(b"\0")), SLOT.size_bytes)
        if file.read_bytes()[place : place + 8] == wanted
    ]
