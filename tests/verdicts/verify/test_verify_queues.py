"""What a verification says of damaged consume queues: the damage and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.queues.consume_queue import SLOT
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from tests.forge import damage
from tests.forge.damage import queue_files
from tests.forge.stores import copy_of, settings_of
from tests.fuzz.rounds import alarm
from tests.representatives import rest_is_slow
from tests.verdicts.verifying import findings, the_one, worse_than_notes

_NOW_MS = 1_795_900_000_000


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
        (wrong_offset, "slot-mismatch"), (wrong_length, "slot-mismatch"), (wrong_tag, "slot-tags-mismatch"),
        (outside, "slot-invalid"), (lambda _: bytes(20), "slot-invalid"), (lambda _: b"\xff" * 20, "slot-invalid"),
    ],
)
@pytest.mark.parametrize("number", rest_is_slow([3, 0], quick=1))
@pytest.mark.parametrize("split_bytes", rest_is_slow([1 << 27, 7001, 499]))
def test_a_slot(copy: Path, change: Callable[[bytes], bytes], code: str, number: int, split_bytes: int) -> None:
    file = queue_files(copy, HALF_TOPIC)[0]
    slot = file.read_bytes()[number * 20 :][:20]
    damage.write_bytes(file, number * 20, change(slot))
    row = the_one(findings(copy, split_bytes=split_bytes))
    assert (row["code"], row["file"], row["position_bytes"], row["length_bytes"]) == (code, str(file), number * 20, 20)


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
    rows = findings(copy)
    assert [(row["code"], row["file"]) for row in rows] == [
        ("queue-missing", str(directory)), ("cursor-beyond-end", str(directory)),
    ]


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


@pytest.mark.parametrize(
    ("name", "count"),
    rest_is_slow([
        ("killed-5.1.4", 20), ("killed-5.1.4", 60), ("common-4.3.0", 60), ("common-5.5.0", 60), ("delayed-5.1.4", 60),
    ], quick=0, slow=1),
)
def test_any_byte_of_any_slot(name: str, count: int, tmp_path: Path) -> None:
    """One wrong byte of a slot is one finding, there."""
    root = copy_of(name, tmp_path)
    chance = random.Random(name)
    files = used_queues(root)
    for _ in range(count):
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


@pytest.mark.parametrize("topic", ["", HALF_TOPIC])
def test_deleted_queues_of_a_killed_broker_are_missing(topic: str, tmp_path: Path) -> None:
    """Only what lies behind all queues is not dispatched yet: its queue may have no file."""
    root = copy_of("killed-5.3.3", tmp_path)
    damage.drop(root / "consumequeue" / topic)
    assert "queue-missing" in {row["code"] for row in findings(root)}


@pytest.mark.parametrize("name", ["cqext-4.9.7", "cqext-5.3.3"])
def test_the_extension_of_the_queues_is_missing(name: str, tmp_path: Path) -> None:
    """A broker sends such messages unfiltered, and its check reads no tags code: no record is lost."""
    root = copy_of(name, tmp_path)
    before = audit([open_store(root)], settings_of(name), at_ms=_NOW_MS).table()
    damage.drop(root / "consumequeue_ext")
    rows = worse_than_notes(findings(root))
    assert {row["code"] for row in rows} == {"slot-tags-mismatch"}
    assert all("which has no unit there" in row["actual"] for row in rows)
    after = audit([open_store(root)], settings_of(name), at_ms=_NOW_MS)
    assert after.table().equals(before)
    assert "slot-tags-mismatch" not in {finding.code for finding in after.findings}


@pytest.mark.parametrize("topic", ["orders", HALF_TOPIC])
def test_a_file_with_a_far_name_costs_no_time(topic: str, tmp_path: Path) -> None:
    """Billions of slots lie between it and the file before, and `verify` read them all (agreement, seed 15)."""
    root = copy_of("common-5.3.3", tmp_path)
    file = queue_files(root, topic)[0]
    file.with_name(f"{239_913_430_920:020d}").write_bytes(file.read_bytes()[: SLOT.size_bytes])
    with alarm(20):
        found = worse_than_notes(findings(root))
    assert {"queue-gap", "slot-invalid"} <= {row["code"] for row in found}
    [hole] = [row for row in found if row["code"] == "slot-invalid" and row["file"] == str(file)]
    assert hole["position_bytes"] + hole["length_bytes"] == 239_913_430_920
