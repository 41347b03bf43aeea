"""Consume queues against the commit logs that brokers built them from, and against forged bytes."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.model.errors import UnreadableFile
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.queues.consume_queue import BATCH_SLOT, PRE_BLANK_LENGTH, SLOT, open_queue
from rmqtx.readers.queues.consume_queue_extension import EXTENSION_UNIT
from rmqtx.readers.queues.consume_queue_scan import scan_slots
from rmqtx.readers.queues.unit_files import BLOCK_UNITS
from rmqtx.readers.storage.open_file import OpenFile
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, Store, open_store
from tests.brokers import corpus
from tests.forge.stores import copy_of, opened
from tests.representatives import each_store

FILE_SLOTS = 100


def slots(*entries: tuple[int, int, int]) -> bytes:
    return b"".join(
        SLOT.pack(commit_log_offset=offset, record_length_bytes=length, tags_code=tags)
        for offset, length, tags in entries
    )


def records(first: int, count: int) -> bytes:
    """Slots of records of 100 bytes that follow one another."""
    return slots(*((number * 100, 100, number) for number in range(first, first + count)))


def store_with(tmp_path: Path, files: dict[int, bytes], kind: str = "consumequeue", log_bytes: int = 1 << 20) -> Store:
    directory = tmp_path / kind / "orders" / "3"
    directory.mkdir(parents=True, exist_ok=True)
    for base, data in files.items():
        (directory / f"{base:020}").write_bytes(data)
    log = tmp_path / "commitlog"
    log.mkdir(exist_ok=True)
    with (log / f"{0:020}").open("wb") as file:
        file.truncate(log_bytes)
    return open_store(tmp_path)


def read(reading: Reading) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = reading.table().to_pylist()
    for coverage in reading.coverage:
        assert min(coverage.decoded_bytes, coverage.filler_bytes, coverage.damaged_bytes, coverage.unread_bytes) >= 0
    return rows


def codes(reading: Reading) -> list[str]:
    return [finding.code for finding in reading.findings]


@pytest.mark.parametrize("name", each_store(corpus.corpus_names()))
def test_every_slot_of_a_real_store_points_at_its_record(name: str) -> None:
    store = opened(name)
    reading = scan_slots(store)
    rows = read(reading)
    log = scan_records(store).table()
    found = {row["commit_log_offset"]: row for row in log.to_pylist()}
    assert reading.findings == []
    assert sum(coverage.unread_bytes + coverage.damaged_bytes for coverage in reading.coverage) == 0
    for row in rows:
        record = found[row["commit_log_offset"]]
        assert record["length_bytes"] == row["record_length_bytes"]
        if str(row["topic"]).startswith("%LMQ%"):  # a further slot of a record of another topic
            assert record["topic"] in (*corpus.recipe(name)["topics"], HALF_TOPIC)
            continue
        assert record["topic"] == row["topic"]
        if row["kind"] == "simple":
            assert (record["queue_id"], record["queue_offset"]) == (row["queue_id"], row["queue_offset"])


@pytest.mark.parametrize("name", each_store(corpus.corpus_names()))
def test_random_access_gives_what_the_scan_gives(name: str) -> None:
    store = opened(name)
    for topic in (HALF_TOPIC, OP_TOPIC):
        rows = read(scan_slots(store, topic=topic, queue_id=0))  # a diverted half (4.x) goes to others
        with open_queue(store, topic, 0) as queue:
            numbers, offsets, lengths, tags = queue.read(0, queue.max_offset + 10)
            assert numbers.tolist() == [row["queue_offset"] for row in rows]
            assert offsets.tolist() == [row["commit_log_offset"] for row in rows]
            assert lengths.tolist() == [row["record_length_bytes"] for row in rows]
            assert tags.tolist() == [row["tags_code"] for row in rows]
            assert offsets.dtype == np.dtype(np.int64)
            assert lengths.dtype == np.dtype(np.int32)
            assert queue.exists == bool(rows)
            assert queue.max_offset == len(rows)


def test_places_of_single_slots_are_those_of_a_range(tmp_path: Path) -> None:
    data = bytearray(records(0, 4 * FILE_SLOTS))
    data[7 * 20] |= 0x80  # a negative offset
    data[150 * 20 + 8] |= 0x80  # a negative length
    data[250 * 20 + 12 : 250 * 20 + 20] = (-(1 << 63)).to_bytes(8, "big", signed=True)  # an address in the extension
    size = FILE_SLOTS * 20
    store = store_with(tmp_path, {base: bytes(data[base : base + size]) for base in range(0, 4 * size, size)})
    with open_queue(store, "orders", 3) as queue:
        numbers, places, _, _ = queue.read(0, 4 * FILE_SLOTS)
        known = dict(zip(numbers.tolist(), places.tolist(), strict=True))
        findings, queue.findings = queue.findings, []
        asked = np.array([-3, 0, 6, 7, 8, 99, 100, 150, 250, 251, 399, 400, 9999], np.int64)
        assert queue.offsets_at(asked).tolist() == [known.get(number, -1) for number in asked.tolist()]
        assert set(queue.findings) == set(findings)
        assert queue.offsets_at(asked[:0]).tolist() == []
        assert queue.offsets_at(np.array([5, 5, 6])).tolist() == [500, 500, 600]


def test_tags_codes_behind_extension_addresses_are_the_tags_hashes() -> None:
    rows = read(scan_slots(opened("cqext-4.9.7")))
    ops = {row["tags_code"] for row in rows if row["topic"] == OP_TOPIC}
    assert ops == {100}
    assert any(row["extension_address"] is not None for row in rows)


def test_batch_slots_stand_for_several_messages() -> None:
    batches = [row for row in read(scan_slots(opened("batchcq-5.3.3"))) if row["kind"] == "batch"]
    assert batches
    by_queue: Counter[object] = Counter()
    for row in batches:
        assert row["queue_offset"] == by_queue[row["queue_id"]]
        by_queue[row["queue_id"]] += int(str(row["batch_size"]))
    assert max(int(str(row["batch_size"])) for row in batches) > 1


def test_zeros_behind_the_last_slot_are_space_and_zeros_before_it_are_damage(tmp_path: Path) -> None:
    whole = records(0, FILE_SLOTS)
    hole = whole[: 5 * 20] + bytes(3 * 20) + whole[8 * 20 :]
    last = records(FILE_SLOTS, 10).ljust(FILE_SLOTS * 20, b"\0")
    store = store_with(tmp_path, {0: hole, FILE_SLOTS * 20: last, FILE_SLOTS * 40: bytes(FILE_SLOTS * 20)})
    reading = scan_slots(store)
    rows = read(reading)
    assert len(rows) == FILE_SLOTS - 3 + 10
    finding = reading.findings[0]
    assert (codes(reading), finding.position_bytes, finding.length_bytes) == (["slot-invalid"], 100, 60)
    assert [coverage.damaged_bytes for coverage in reading.coverage] == [60, 0, 0]
    assert [coverage.filler_bytes for coverage in reading.coverage] == [0, 90 * 20, FILE_SLOTS * 20]
    with open_queue(store, "orders", 3) as queue:
        assert queue.max_offset == FILE_SLOTS + 10
        assert queue.read(4, 9)[0].tolist() == [4, 8]
        assert [f.code for f in queue.findings] == ["slot-invalid"]


def test_pre_blank_slots_are_filler_in_front_of_the_queue(tmp_path: Path) -> None:
    data = slots(*[(0, PRE_BLANK_LENGTH, 0)] * 7) + records(7, 5)
    store = store_with(tmp_path, {2000: data.ljust(2000, b"\0")})
    reading = scan_slots(store)
    rows = read(reading)
    assert [row["kind"] for row in rows] == ["pre-blank"] * 7 + ["simple"] * 5
    assert rows[0]["commit_log_offset"] is None
    assert rows[7]["queue_offset"] == 107
    assert reading.coverage[0].filler_bytes == 2000 - 5 * 20
    with open_queue(store, "orders", 3) as queue:
        assert (queue.first_offset, queue.min_offset, queue.max_offset) == (100, 107, 112)
        assert queue.read(0, 999)[0].tolist() == [107, 108, 109, 110, 111]


def test_slots_outside_the_log_are_told_once_for_each_run(tmp_path: Path) -> None:
    store = store_with(tmp_path, {0: records(0, 20)}, log_bytes=1000)
    reading = scan_slots(store)
    assert len(read(reading)) == 20
    assert codes(reading) == ["slot-dangling"]
    assert (reading.findings[0].position_bytes, reading.findings[0].length_bytes) == (200, 200)


def test_the_smallest_offset_is_the_first_whose_record_the_log_can_hold(tmp_path: Path) -> None:
    store_with(tmp_path, {0: records(0, 100), 2000: records(100, 50).ljust(2000, b"\0")}, log_bytes=20_000)
    (tmp_path / "commitlog" / f"{0:020}").rename(tmp_path / "commitlog" / f"{12_340:020}")
    with open_queue(open_store(tmp_path), "orders", 3) as queue:
        assert (queue.min_offset, queue.max_offset) == (124, 150)
        assert [queue.offset_of(offset) for offset in (0, 1, 100, 101, 14_900, 14_901)] == [0, 1, 1, 2, 149, 150]


def test_a_search_passes_over_damaged_slots(tmp_path: Path) -> None:
    data = bytearray(records(0, 1000))
    data[400 * 20 : 700 * 20] = bytes(300 * 20)
    with open_queue(store_with(tmp_path, {0: bytes(data)}), "orders", 3) as queue:
        assert queue.offset_of(39_000) == 390
        assert queue.offset_of(50_000) == 700
        assert queue.offset_of(70_001) == 701


def test_bounds_leave_the_rest_unread(tmp_path: Path) -> None:
    store = store_with(tmp_path, {0: records(0, 100), 2000: records(100, 50).ljust(2000, b"\0")})
    reading = scan_slots(store, from_queue_offset=95, to_queue_offset=103)
    assert [row["queue_offset"] for row in read(reading)] == list(range(95, 103))
    assert [(c.decoded_bytes, c.unread_bytes) for c in reading.coverage] == [(100, 1900), (60, 1940)]
    assert read(scan_slots(store, topic="others")) == []
    assert read(scan_slots(store, queue_id=2)) == []


def test_bounds_on_batch_queues_keep_batches_that_reach_into_them(tmp_path: Path) -> None:
    data = b"".join(
        BATCH_SLOT.pack(commit_log_offset=n * 100, record_length_bytes=100, first_queue_offset=n * 10, batch_size=10)
        for n in range(5)
    )
    store = store_with(tmp_path, {0: data.ljust(46 * 20, b"\0")}, "batchconsumequeue")
    reading = scan_slots(store, from_queue_offset=19, to_queue_offset=30)
    assert [row["queue_offset"] for row in read(reading)] == [10, 20]
    assert reading.coverage[0].unread_bytes == 3 * 46


def test_a_length_that_is_no_multiple_is_accounted_for(tmp_path: Path) -> None:
    reading = scan_slots(store_with(tmp_path, {0: records(0, 3) + b"\0\0\7"}))
    assert len(read(reading)) == 3
    assert (reading.coverage[0].damaged_bytes, codes(reading)) == (3, ["slot-invalid"])


def test_a_missing_file_is_a_gap_of_the_queue(tmp_path: Path) -> None:
    store = store_with(tmp_path, {0: records(0, 100), 4000: records(200, 100)})
    reading = scan_slots(store)
    assert len(read(reading)) == 200
    assert codes(reading) == ["queue-gap"]
    with open_queue(store, "orders", 3) as queue:
        assert queue.max_offset == 300
        assert queue.read(98, 202)[0].tolist() == [98, 99, 200, 201]
        assert [finding.code for finding in queue.findings] == ["queue-gap"]


def test_a_file_name_that_is_no_place_in_a_queue_is_left_out(tmp_path: Path) -> None:
    store = store_with(tmp_path, {0: records(0, 10), 7: records(10, 10)})
    reading = scan_slots(store)
    assert len(read(reading)) == 0  # 7 lies inside the first file, which is cut there
    assert "slot-invalid" in codes(reading)
    assert reading.coverage[-1].damaged_bytes == 200


@pytest.mark.parametrize("base", [10**20 - 20, 2**63 - 8])
def test_a_file_name_that_is_no_offset_is_a_stray_file(tmp_path: Path, base: int) -> None:
    store = store_with(tmp_path, {0: records(0, 10), base: records(10, 10)})
    reading = scan_slots(store)
    assert len(read(reading)) == 10
    assert codes(reading) == ["stray-file"]
    with open_queue(store, "orders", 3) as queue:
        assert queue.max_offset == 10


def test_a_queue_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    with open_queue(store_with(tmp_path, {}), "nothing", 0) as queue:
        assert not queue.exists
        assert (queue.min_offset, queue.max_offset, len(queue.read(0, 10)[0])) == (0, 0, 0)


def test_an_extension_address_that_leads_nowhere_leaves_the_tag_unknown(tmp_path: Path) -> None:
    addresses = [-(2**63), -(2**63) + 20, -(2**63) + 4000]
    data = slots(*((n * 100, 100, address) for n, address in enumerate(addresses)))
    store = store_with(tmp_path, {0: data})
    unit = EXTENSION_UNIT.pack(length_bytes=20, tags_code=100, store_time_ms=5)
    store_with(tmp_path, {0: unit + bytes(20)}, "consumequeue_ext")
    reading = scan_slots(store)
    rows = read(reading)
    assert [row["tags_code"] for row in rows] == [100, None, None]
    assert [row["extension_address"] for row in rows] == [0, 20, 4000]
    assert codes(reading) == ["slot-invalid"]
    with open_queue(store, "orders", 3) as queue:
        assert queue.read(0, 3)[3].tolist() == [100, *addresses[1:]]


def test_an_extension_file_that_cannot_be_read_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the tags of its slots are unknown, and the reading still ends with status 0."""
    addresses = [-(2**63), 77, -(2**63) + 20]
    store = store_with(tmp_path, {0: slots(*((n * 100, 100, address) for n, address in enumerate(addresses)))})
    unit = EXTENSION_UNIT.pack(length_bytes=20, tags_code=100, store_time_ms=5)
    store_with(tmp_path, {0: unit + unit}, "consumequeue_ext")
    assert [row["tags_code"] for row in read(scan_slots(store))] == [100, 77, 100]
    opened_file = Segment.open

    def fails(segment: Segment) -> OpenFile:
        if "consumequeue_ext" in str(segment.file):
            raise UnreadableFile(f"cannot open {segment.file}: permission denied", file=segment.file)
        return opened_file(segment)

    monkeypatch.setattr(Segment, "open", fails)
    reading = scan_slots(store)
    assert [row["tags_code"] for row in read(reading)] == [None, 77, None]
    assert "unreadable-file" in codes(reading)
    with open_queue(store, "orders", 3) as queue:
        assert queue.read(0, 3)[3].tolist() == addresses
        assert [finding.code for finding in queue.findings] == ["unreadable-file"]


def test_batches_stay_small_and_findings_few(tmp_path: Path) -> None:
    count = BLOCK_UNITS + 1000
    data = np.frombuffer(records(0, count), SLOT.dtype).copy()
    data["record_length_bytes"][::2] = -1
    reading = scan_slots(store_with(tmp_path, {0: data.tobytes()}, log_bytes=count * 100))
    assert max(batch.num_rows for batch in reading) <= BLOCK_UNITS
    assert len(reading.findings) <= 100
    assert reading.coverage[0].damaged_bytes == count // 2 * 20
    last = reading.findings[-1]
    assert last.position_bytes is not None
    assert last.length_bytes is not None
    assert last.position_bytes + last.length_bytes == (count - 1) * 20


@pytest.mark.parametrize("seed", range(20))
def test_damage_of_any_kind_is_counted_and_never_raises(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    name = chance.choice(["cqext-4.9.7", "batchcq-5.3.3", "common-5.3.3"])
    root = copy_of(name, tmp_path)
    files = sorted(path for kind in ("consumequeue", "consumequeue_ext", "batchconsumequeue")
                   for path in (root / kind).rglob("*") if path.is_file())
    for file in files:
        data = bytearray(file.read_bytes())
        for _ in range(chance.randrange(30)):
            data[chance.randrange(min(len(data), 2000))] = chance.randrange(256)
        cut = chance.choice([len(data), len(data), chance.randrange(len(data)), 0])
        file.write_bytes(data[:cut])
    chance.choice(files).unlink()
    store = open_store(root)
    reading = scan_slots(store)
    rows = read(reading)
    assert sum(coverage.decoded_bytes for coverage in reading.coverage) == sum(
        int(str(row["length_bytes"])) for row in rows if row["kind"] != "pre-blank"
    )
    assert sum(coverage.unread_bytes for coverage in reading.coverage) == 0
    for topic in (HALF_TOPIC, OP_TOPIC):
        with open_queue(store, topic, 0) as queue:
            assert queue.first_offset <= queue.min_offset <= queue.max_offset
            queue.read(0, queue.max_offset)
