"""What a verification says: nothing of a sound store, and of a damaged one the damage and nothing else."""

from __future__ import annotations

import json
import random
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from readers import workers
from readers.consume_queue import SLOT
from readers.findings import KINDS
from readers.index import ENTRY
from readers.index_search import open_index
from readers.job_runner import run_job
from readers.reading import Reading
from readers.record_layout import AT
from readers.splits import plan_splits
from readers.store import CHECK_GROUP, HALF_TOPIC, OP_TOPIC, open_store
from readers.verify import DEFAULT, FULL, QUICK, Verify
from tests.brokers import corpus
from tests.forge import damage
from tests.forge.damage import log_files, queue_files, records_in
from tests.forge.logs import Forge
from tests.forge.records import Message
from tests.forge.stores import contents, copy_of, opened, unpacked

Row = dict[str, Any]
CLEAN = "common-4.9.7"
"""Stopped cleanly, one log file."""
SEGMENTS = "multipath-4.9.7"
"""Stopped cleanly, several log files in two directories."""
LEVELS = (QUICK, DEFAULT, FULL)


def verified(root: Path, level: str = DEFAULT, split_bytes: int = 1 << 27) -> Reading:
    return run_job(Verify(level), plan_splits([open_store(root)], split_bytes=split_bytes))


def findings(root: Path, level: str = DEFAULT, split_bytes: int = 1 << 27) -> list[Row]:
    """The rows, but for what comes of them: at a start (test_recovery.py), and in the check (test_check_stops.py)."""
    rows = every_finding(root, level, split_bytes)
    return [row for row in rows if not row["code"].startswith("start-") and row["code"] != "check-stopped"]


def every_finding(root: Path, level: str = DEFAULT, split_bytes: int = 1 << 27) -> list[Row]:
    """The rows; every one is of a kind that is registered, and every byte is accounted for."""
    reading = verified(root, level, split_bytes)
    rows: list[Row] = reading.table().to_pylist()
    assert {row["code"] for row in rows} <= KINDS.keys()
    assert [part.unread_bytes for part in reading.coverage] == [0] * len(reading.coverage)
    return rows


def worse_than_notes(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["severity"] != "note"]


def the_one(rows: list[Row]) -> Row:
    """The one finding there is."""
    assert len(rows) == 1, [(row["code"], row["expected"], row["actual"]) for row in rows]
    return rows[0]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return copy_of(CLEAN, tmp_path)


# ---- sound stores


@pytest.mark.parametrize("name", corpus.corpus_names())
def test_a_sound_store_has_no_finding_but_notes(name: str) -> None:
    for level in LEVELS:
        rows = every_finding(unpacked(name), level)
        # Their check stops: nothing is damaged, and no broker of their version gets past it.
        is_stopped = name.startswith("poison") and level != QUICK
        assert [row["code"] for row in worse_than_notes(rows)] == ["check-stopped"] * is_stopped
        told = {row["code"] for row in rows} - {"check-stopped"}
        late = {"slot-pending", "start-enters", "start-deletes-index"}
        assert told <= {"store-time-backwards", "body-stream", *late}, told
        if told & late:  # only a killed broker leaves records behind
            assert name.startswith("killed")


@pytest.mark.parametrize("split_bytes", [65_536, 7001])
def test_splits_change_nothing(split_bytes: int) -> None:
    for name in corpus.corpus_names():
        whole, pieces = (every_finding(unpacked(name), FULL, size) for size in (1 << 30, split_bytes))
        assert sorted(map(str, pieces)) == sorted(map(str, whole)), name


def test_processes_change_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    root = copy_of(SEGMENTS, tmp_path)
    damage.zero_bytes(queue_files(root, HALF_TOPIC)[0], 40, 40)
    one = every_finding(root, split_bytes=7001)
    monkeypatch.setattr(workers, "ONE_PROCESS_BYTES_MAX", 0)
    two = run_job(Verify(), plan_splits([open_store(root)], split_bytes=7001), processes=2).table().to_pylist()
    assert two == one != []


def test_nothing_is_written(copy: Path) -> None:
    before = contents(copy)
    findings(copy, FULL)
    assert contents(copy) == before


# ---- the commit log


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


def test_a_page_of_zeros(copy: Path) -> None:
    file = log_files(copy)[0]
    damage.zero_bytes(file, 4096, 4096)
    rows = findings(copy)
    assert {row["code"] for row in rows} == {"record-damaged"}
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
    assert row["meaning"].startswith("1 half should stand there") == (code == "slot-mismatch")
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


@pytest.mark.parametrize("name", ["common-5.3.3", "killed-4.3.0"])
def test_any_byte_of_any_record(name: str, tmp_path: Path) -> None:
    """One wrong byte is one kind of finding, about its record; not every byte can be known to be wrong."""
    root = copy_of(name, tmp_path)
    chance = random.Random(name)
    before = {str(row) for row in findings(root)}
    places = [(file, *place) for file in log_files(root) for place in records_in(file)]
    found = 0
    for number in range(120):
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
    assert found > 70


def slots_of(root: Path, offset: int) -> list[tuple[Path, int]]:
    """File and position of the slots that point at a record."""
    wanted = offset.to_bytes(8, "big")
    return [
        (file, place)
        for file in queue_files(root)
        for place in range(0, len(file.read_bytes().rstrip(b"\0")), SLOT.size_bytes)
        if file.read_bytes()[place : place + 8] == wanted
    ]


# ---- consume queues


def used_queues(root: Path, kind: str = "consumequeue") -> list[Path]:
    """Queue files with a used slot."""
    return [file for file in sorted((root / kind).rglob("0" * 20)) if file.read_bytes().strip(b"\0")]


def wrong_offset(slot: bytes) -> bytes:
    return SLOT.pack(**{**SLOT.unpack(slot), "commit_log_offset": SLOT.unpack(slot)["commit_log_offset"] + 1})


def wrong_length(slot: bytes) -> bytes:
    return SLOT.pack(**{**SLOT.unpack(slot), "record_length_bytes": SLOT.unpack(slot)["record_length_bytes"] + 1})


def wrong_tag(slot: bytes) -> bytes:
    return SLOT.pack(**{**SLOT.unpack(slot), "tags_code": SLOT.unpack(slot)["tags_code"] + 1})


def outside(slot: bytes) -> bytes:
    return SLOT.pack(**{**SLOT.unpack(slot), "commit_log_offset": 1 << 40})


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (wrong_offset, "slot-mismatch"), (wrong_length, "slot-mismatch"), (wrong_tag, "slot-mismatch"),
        (outside, "slot-dangling"), (lambda _: bytes(20), "slot-invalid"), (lambda _: b"\xff" * 20, "slot-invalid"),
    ],
)
@pytest.mark.parametrize("number", [0, 3])
def test_a_slot(copy: Path, change: Callable[[bytes], bytes], code: str, number: int) -> None:
    file = queue_files(copy, HALF_TOPIC)[0]
    slot = file.read_bytes()[number * 20 :][:20]
    damage.write_bytes(file, number * 20, change(slot))
    for split_bytes in (1 << 27, 7001, 499):
        row = the_one(findings(copy, split_bytes=split_bytes))
        assert (row["code"], row["file"], row["position_bytes"], row["length_bytes"]) == (
            code, str(file), number * 20, 20,
        )


def test_two_slots_are_swapped(copy: Path) -> None:
    file = queue_files(copy, HALF_TOPIC)[0]
    data = file.read_bytes()
    damage.write_bytes(file, 40, data[60:80] + data[40:60])
    row = the_one(findings(copy))
    assert (row["code"], row["position_bytes"], row["length_bytes"]) == ("slot-mismatch", 40, 40)


def test_the_last_slots_are_missing(copy: Path) -> None:
    """In a store that was stopped they must be there; a broker that was killed had not entered them yet."""
    file = queue_files(copy, HALF_TOPIC)[0]
    used = len(file.read_bytes().rstrip(b"\0")) // 20 + 1  # the half queue's tags may end in zeros
    slots = [SLOT.unpack(file.read_bytes()[n * 20 :][:20]) for n in range(used) if n * 20 + 20 <= file.stat().st_size]
    real = [slot for slot in slots if slot["record_length_bytes"]]
    damage.zero_bytes(file, (len(real) - 2) * 20, 40)
    rows = [row for row in findings(copy) if not row["code"].startswith("cursor")]
    row = the_one(rows)
    assert (row["code"], row["commit_log_offset"]) == ("slot-missing", real[-2]["commit_log_offset"])
    assert "and of 1 more" in row["expected"]
    (copy / "abort").write_bytes(b"")
    (row,) = [row for row in findings(copy) if not row["code"].startswith("cursor")]
    assert (row["code"], row["severity"]) == ("slot-pending", "note")


def test_a_queue_is_missing(copy: Path) -> None:
    directory = queue_files(copy, OP_TOPIC)[0].parent
    damage.drop(directory)
    row = the_one(findings(copy))
    assert (row["code"], row["file"]) == ("queue-missing", str(directory))


def test_queues_of_another_log(copy: Path, tmp_path: Path) -> None:
    """However many slots are wrong, they are few findings."""
    one, other = queue_files(copy, HALF_TOPIC)[0], queue_files(copy, OP_TOPIC)[0]
    damage.swap(one, other)
    rows = findings(copy)
    wrong = [row for row in rows if row["file"] in (str(one), str(other))]
    assert {row["code"] for row in wrong} == {"slot-mismatch"}
    assert len(rows) < 40


@pytest.mark.parametrize("name", ["batchcq-5.3.3", "cqext-5.3.3"])
def test_slots_of_other_queues(name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    kind, size = ("batchconsumequeue", 46) if name.startswith("batch") else ("consumequeue", 20)
    file = used_queues(root, kind)[0]
    damage.write_bytes(file, 8, (1).to_bytes(4, "big"))  # a record of one byte
    row = the_one(findings(root))
    assert (row["code"], row["file"], row["position_bytes"], row["length_bytes"]) == (
        "slot-mismatch", str(file), 0, size,
    )


@pytest.mark.parametrize("name", ["common-4.3.0", "common-5.5.0", "killed-5.1.4", "delayed-5.1.4"])
def test_any_byte_of_any_slot(name: str, tmp_path: Path) -> None:
    """One wrong byte of a slot is one finding, there."""
    root = copy_of(name, tmp_path)
    chance = random.Random(name)
    files = used_queues(root)
    for _ in range(60):
        file = chance.choice(files)
        data = file.read_bytes()
        used = -(-len(data.rstrip(b"\0")) // 20)
        place = chance.randrange(used * 20)
        number = place // 20
        mask = chance.randint(1, 255)
        if SLOT.unpack(data[number * 20 :][:20])["record_length_bytes"] == 0:
            continue
        damage.flip_byte(file, place, mask)
        rows = worse_than_notes(findings(root, split_bytes=chance.choice((1 << 27, 7001))))
        damage.write_bytes(file, 0, data)
        if "SCHEDULE" in str(file) and place % 20 >= 12 and not rows:
            continue  # how long a message is delayed is configuration
        row = the_one(rows)
        assert row["file"] == str(file), (place, mask, row)
        assert row["position_bytes"] == number * 20, (place, mask, row)


# ---- index, checkpoint, cursors, ops


@pytest.mark.parametrize("name", ["common-4.3.0", "common-5.3.3", "common-5.5.0"])
def test_any_byte_of_an_index_entry(name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    chance = random.Random(name)
    (index,) = open_index(opened(name)).files[:1]
    file = root / "index" / Path(index.segment.file).name
    data = file.read_bytes()
    for _ in range(40):
        number = chance.randrange(1, index.entries_count + 1)
        inside = chance.randrange(12)  # hash and offset; time and chain say nothing of the record
        damage.flip_byte(file, index.entry_position(number) + inside, chance.randint(1, 255))
        rows = findings(root, split_bytes=chance.choice((1 << 27, 7001)))
        damage.write_bytes(file, 0, data)
        assert rows, (number, inside)
        assert {row["code"] for row in rows} <= {"index-mismatch", "index-damaged"}, (number, inside, rows)
        assert {row["file"] for row in rows} == {str(file)}
        at = index.entry_position(number)
        assert any(row["position_bytes"] <= at < row["position_bytes"] + row["length_bytes"] for row in rows)


def test_an_entry_is_gone(copy: Path) -> None:
    """The entry of another record in its place: the one that is lost is missed."""
    index = open_index(open_store(copy)).files[0]
    file = Path(index.segment.file)
    place = index.entry_position(10)
    twin = file.read_bytes()[index.entry_position(9) :][: ENTRY.size_bytes - 4]
    lost = ENTRY.unpack(file.read_bytes()[place:][: ENTRY.size_bytes])["commit_log_offset"]
    damage.write_bytes(file, place, twin)
    rows = [row for row in findings(copy) if row["code"] != "index-damaged"]
    row = the_one(rows)
    assert (row["code"], row["commit_log_offset"]) == ("index-missing", lost)


def test_a_checkpoint_ahead_of_the_log(copy: Path) -> None:
    file = copy / "checkpoint"
    time = int.from_bytes(file.read_bytes()[:8], "big")
    damage.write_bytes(file, 0, (time + 86_400_000).to_bytes(8, "big"))
    row = the_one(findings(copy))
    assert (row["code"], row["file"], row["position_bytes"]) == ("checkpoint-ahead", str(file), 0)


@pytest.mark.parametrize(("group", "code"), [(CHECK_GROUP, "cursor-beyond-end"),
                                             ("", "group-cursor-beyond-end")])
def test_a_cursor_beyond_its_queue(group: str, code: str, tmp_path: Path) -> None:
    forge = Forge(tmp_path)
    forge.op(forge.half("A"))
    forge.write(half_cursor=99 if group else 1, op_cursor=1)
    file = tmp_path / "config" / "consumerOffset.json"
    if not group:
        text = file.read_text("utf-8").replace(f"{OP_TOPIC}@CID_RMQ_SYS_TRANS", f"{OP_TOPIC}@shop").replace("1}", "99}")
        file.write_text(text.replace("{0:99}", "{0:1}", 1), "utf-8")
    row = the_one(findings(tmp_path))
    assert row["code"] == code
    assert row["actual"] == "99"


def test_an_op_number_that_no_half_has(tmp_path: Path) -> None:
    forge = Forge(tmp_path)
    half = forge.half("A")
    op = forge.op(half)
    root = forge.write(half_cursor=1, op_cursor=1)
    assert findings(root) == []
    file = log_files(root)[0]
    data = file.read_bytes()
    damage.write_bytes(file, op + 88, b"7")
    damage.write_bytes(file, op + AT["body_crc"], (zlib.crc32(b"7") & 0x7FFFFFFF).to_bytes(4, "big"))
    row = the_one(findings(root))
    assert (row["code"], row["commit_log_offset"], row["actual"]) == ("op-beyond-end", op, "7")
    assert len(data) == file.stat().st_size


def test_records_of_an_older_design_are_told_once(tmp_path: Path) -> None:
    forge = Forge(tmp_path)
    places = [forge.half(name) for name in "ABC"]
    root = forge.write()
    file = log_files(root)[0]
    for place in places[1:]:
        damage.write_bytes(file, place + AT["sys_flag"], (4).to_bytes(4, "big"))
    told = [row for row in findings(root, split_bytes=99) if row["code"] == "older-design"]
    assert the_one(told)["commit_log_offset"] == places[1]


def test_cursors_that_cannot_be_read(copy: Path) -> None:
    file = copy / "config" / "consumerOffset.json"
    file.write_text(json.dumps({"offsetTable": 7}), "utf-8")
    assert "config-damaged" in {row["code"] for row in findings(copy)}


def test_queues_in_rocksdb_that_cannot_be_read_are_said_to_be_unchecked(tmp_path: Path) -> None:
    forge = Forge(tmp_path)
    forge.half("A")
    root = forge.write()
    damage.drop(root / "consumequeue")
    damage.foreign_file(root / "consumequeue", "CURRENT", b"MANIFEST-000004\n")
    for level, told in ((QUICK, ("queues-unchecked", "note")), (DEFAULT, ("database-unread", "warning"))):
        row = the_one(findings(root, level))
        assert (row["code"], row["severity"]) == told


def light(forge: Forge, places: str) -> int:
    """A record that is in two light queues beside its own."""
    words = (("INNER_MULTI_DISPATCH", "%LMQ%one,%LMQ%two"), ("INNER_MULTI_QUEUE_OFFSET", places), ("TAGS", "t"))
    return forge.append(Message(properties=words))


def test_light_queues(tmp_path: Path) -> None:
    forge = Forge(tmp_path)
    records = [light(forge, "0,0"), light(forge, "1,1")]
    root = forge.write()
    own = root / "consumequeue" / "orders" / "0" / ("0" * 20)
    for name in ("%LMQ%one", "%LMQ%two"):
        (root / "consumequeue" / name / "0").mkdir(parents=True)
        (root / "consumequeue" / name / "0" / ("0" * 20)).write_bytes(own.read_bytes())
    for split_bytes in (1 << 27, 99):
        assert findings(root, split_bytes=split_bytes) == []
    file = root / "consumequeue" / "%LMQ%two" / "0" / ("0" * 20)
    damage.zero_bytes(file, 20, 20)
    row = the_one(findings(root))
    assert (row["code"], row["commit_log_offset"]) == ("slot-missing", records[1])
    assert "%LMQ%two" in row["expected"]


def test_a_running_broker_is_ahead_of_what_was_read(copy: Path) -> None:
    """Queues are read later than the log: what they know more is no finding, and neither is a slot that is to come."""
    store = replace(open_store(copy), used_by_process=1)
    file = queue_files(copy, HALF_TOPIC)[0]
    data = file.read_bytes()
    used = next(n for n in range(len(data) // 20) if not data[n * 20 :][:20].strip(b"\0"))
    new = SLOT.pack(commit_log_offset=1 << 30, record_length_bytes=300, tags_code=0)
    damage.write_bytes(file, used * 20, new)
    assert run_job(Verify(), plan_splits([store])).table().num_rows == 0
    assert {row["code"] for row in findings(copy)} == {"slot-dangling", "log-missing"}  # once it has stopped it is
    damage.write_bytes(file, (used - 1) * 20, bytes(40))
    rows = run_job(Verify(), plan_splits([store])).table().to_pylist()
    assert {row["code"] for row in worse_than_notes(rows)} <= {"cursor-beyond-end"}
    assert [row["code"] for row in rows if row["code"].startswith("slot")] == ["slot-pending"]


def test_whatever_is_damaged_is_no_error(tmp_path: Path) -> None:
    for number, (name, wound) in enumerate(damage.RANDOM.items()):
        root = copy_of("killed-5.1.4", tmp_path / f"{number}")
        wound(root, random.Random(name))
        for level in LEVELS:
            rows = run_job(Verify(level), plan_splits([open_store(root)], split_bytes=7001)).table().to_pylist()
            assert {row["code"] for row in rows} <= KINDS.keys()
