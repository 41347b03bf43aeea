"""Consume queues of a few slots: tags that look like addresses, places without a slot, and the last finding of many."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rmqtx.readers.model.findings import FINDINGS_MAX, Finding
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.queues.consume_queue_extension import Extension
from rmqtx.readers.queues.consume_queue_scan import scan_slots
from rmqtx.readers.queues.slot_files import SlotFiles, places_by_offset
from rmqtx.readers.queues.unit_files import UnitRuns, addressable
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import HALF_TOPIC, open_store
from tests.forge.damage import queue_files
from tests.forge.logs import Forge, java_hash


def test_the_lowest_hash_of_a_tag_is_no_address_in_an_extension_file(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    forge.half("A")
    lowest = java_hash("polygenelubricants")
    assert lowest == -(1 << 31)
    codes, lost = Extension(open_store(forge.write()), HALF_TOPIC, 0).resolve(np.array([lowest, lowest - 1], np.int64))
    assert codes.tolist() == [lowest, lowest - 1]
    assert lost.tolist() == [False, True]


def slots_and_findings(root: Path) -> tuple[list[int], list[tuple[str, str]]]:
    """The places in the slots of a store, and its findings: code and file."""
    reading = scan_slots(open_store(root))
    places = reading.table()["commit_log_offset"].to_pylist()
    return places, [(one.code, Path(one.file or "").name) for one in reading.findings]


def test_a_file_of_a_queue_that_is_made_in_advance_has_no_damage(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    places = [forge.half(name) for name in ("A", "B")]
    root = forge.write()
    (file,) = queue_files(root, HALF_TOPIC)
    for number in (1, 2):
        file.with_name(f"{number * file.stat().st_size:020d}").write_bytes(bytes(file.stat().st_size))
    assert slots_and_findings(root) == (places, [])


def test_a_slot_before_the_begin_of_all_logs_is_damaged(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    places = [forge.half(name) for name in ("A", "B", "C")]
    root = forge.write()
    (file,) = queue_files(root, HALF_TOPIC)
    data = file.read_bytes()
    file.write_bytes(data[:20] + (-1).to_bytes(8, "big", signed=True) + data[28:])
    assert slots_and_findings(root) == ([places[0], places[2]], [("slot-invalid", file.name)])


def test_slots_into_a_missing_file_in_the_middle_of_a_log_did_not_expire(tmp_path: Path) -> None:
    """A broker removes the first files of a log; without another one, records are lost."""
    forge = Forge(tmp_path / "store")
    while len(forge._data) < 3 * 4096:
        forge.half("A")
    root = forge.write()
    first, second, *_ = sorted((root / "commitlog").iterdir())
    second.rename(tmp_path / "aside")
    assert {code for code, _ in slots_and_findings(root)[1]} == {"slot-dangling"}
    first.unlink()
    assert {code for code, _ in slots_and_findings(root)[1]} == {"slot-expired"}


def test_a_place_behind_the_last_slot_has_no_slot(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    places = [forge.half(name) for name in ("A", "B")]
    files = SlotFiles(open_store(forge.write()), ("consumequeue", HALF_TOPIC.encode(), 0))
    assert places_by_offset(files, np.array([*places, places[-1] + 1], np.int64)).tolist() == [0, 1, -1]


def test_slots_are_read_and_reported_only_where_they_are_asked_for(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    places = [forge.half(name) for name in ("A", "B", "C", "D")]
    root = forge.write()
    (file,) = queue_files(root, HALF_TOPIC)
    data = file.read_bytes()
    file.write_bytes(data[:40] + b"\xff" * 20 + data[60:])
    files = SlotFiles(open_store(root), ("consumequeue", HALF_TOPIC.encode(), 0))
    assert files.read(1, 2)["commit_log_offset"].tolist() == places[1:2]
    with open_queue(open_store(root), HALF_TOPIC, 0) as queue:
        assert queue.offsets_at(np.array([0, 1], np.int64)).tolist() == places[:2]
        assert queue.findings == []
        assert queue.offsets_at(np.array([2], np.int64)).tolist() == [-1]
        assert [one.code for one in queue.findings] == ["slot-invalid"]


def test_only_the_last_finding_of_a_file_covers_what_is_not_listed() -> None:
    findings: list[Finding] = []
    runs = UnitRuns("store", "file", "slot-invalid", "a slot", findings)
    for number in range(FINDINGS_MAX + 5):
        runs.add_range(40 * number, 40 * number + 20)
    runs.close()
    words = "more damage from here on, not listed one by one"
    assert [one.actual for one in findings] == [*[None] * (FINDINGS_MAX - 1), words]
    assert findings[-1].length_bytes == 40 * 5 + 20


def test_files_up_to_the_last_offset_of_64_bits_count() -> None:
    """A broker does not start on a file with a name beyond it; one before it has slots like any other."""
    last = Segment("queue/last", (1 << 63) - 201, 200)
    beyond = Segment("queue/beyond", (1 << 63) - 200, 200)
    assert addressable((last, beyond)) == (last,)
