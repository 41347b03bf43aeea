"""The unused rest of a segment: read once, holes not at all, each byte that is not zero found; and the progress."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from rmqtx.readers.jobs.job_runner import shown_to
from rmqtx.readers.log.commit_log import scan_segments
from rmqtx.readers.log.segment_scan import SegmentScan
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.reading import Coverage
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.storage.open_file import OpenFile
from rmqtx.readers.store.store import HALF_TOPIC, Store, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.verify.time_budget import verify_within
from rmqtx.verdicts.verify.verify import Verify
from tests.forge.logs import in_one_file
from tests.forge.records import Message
from tests.forge.stores import copy_of, settings_of

MIB = 1 << 20
_Task = TypeVar("_Task")
_Result = TypeVar("_Result")
DATA, _ = in_one_file([Message(topic="orders", body=b"x" * 900)] * 300)


def store_of(root: Path, size_bytes: int, *, has_holes: bool = False) -> Store:
    (root / "commitlog").mkdir(exist_ok=True)
    path = root / "commitlog" / f"{0:020d}"
    path.write_bytes(DATA if has_holes else DATA + bytes(size_bytes - len(DATA)))
    with path.open("r+b") as file:
        file.truncate(size_bytes)
    return open_store(root)


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with the length of each read."""
    lengths: list[int] = []
    read = OpenFile.read

    def counted(self: OpenFile, position_bytes: int, length_bytes: int) -> bytes:
        data = read(self, position_bytes, length_bytes)
        lengths.append(len(data))
        return data

    monkeypatch.setattr(OpenFile, "read", counted)
    return lengths


def test_it_is_read_once(tmp_path: Path, read_bytes: list[int]) -> None:
    (segment,) = store_of(tmp_path, 20 * MIB).commit_log
    read_bytes.clear()
    scan = SegmentScan(segment, window_bytes=MIB)
    assert sum(len(block) for block in scan) == 300
    assert [(span.kind, span.position_bytes) for span in scan.spans] == [("preallocated", len(DATA))]
    assert sum(read_bytes) <= 21 * MIB


@pytest.mark.parametrize("split_bytes", [MIB, 16 * MIB])
def test_a_plan_reads_it_once_however_short_its_splits_are(
    tmp_path: Path, read_bytes: list[int], split_bytes: int
) -> None:
    """The split in which the data ends searched the rest for a record, and the splits after it read it again."""
    store = store_of(tmp_path, 40 * MIB)
    next_file = tmp_path / "commitlog" / f"{40 * MIB:020d}"  # the broker makes it in advance
    next_file.write_bytes(bytes(20 * MIB))
    store = open_store(tmp_path)
    read_bytes.clear()
    plan = plan_splits([store], split_bytes=split_bytes)
    found = [(sum(len(block) for block in scan), scan.spans) for scan in (split.scan() for split in plan)]
    assert sum(count for count, _ in found) == 300
    assert [(span.kind, span.position_bytes) for _, spans in found for span in spans] == [
        ("preallocated", len(DATA)), ("preallocated", 0)
    ]
    assert sum(split.to_position - split.from_position for split in plan) == plan.total_bytes == 60 * MIB
    assert sum(read_bytes) <= (60 + 17) * MIB, "both files, and a first window of each"


def test_splits_are_short_where_data_is(tmp_path: Path) -> None:
    store = store_of(tmp_path, 4 * MIB)
    sizes = plan_splits([store], split_bytes=100_000).sizes_bytes.tolist()
    assert sizes[:-1] == [100_000] * (len(sizes) - 1)
    assert len(DATA) // 100_000 < len(sizes) <= len(DATA) // 100_000 + 2


def test_another_scan_of_the_store_does_not_read_it_again(tmp_path: Path, read_bytes: list[int]) -> None:
    store = store_of(tmp_path, 20 * MIB)
    first, second = (collections.Counter[str]() for _ in range(2))
    for found in (first, second):
        read_bytes.clear()
        coverage: list[Coverage] = []
        found["records"] = sum(len(block) for block in scan_segments(store, [], coverage))
        found["filler"] = coverage[0].filler_bytes
    assert first == second == {"records": 300, "filler": 20 * MIB - len(DATA)}
    assert sum(read_bytes) <= 9 * MIB, "the window with the data"


@pytest.mark.parametrize("position", [len(DATA), 5 * MIB])
def test_of_a_running_broker_it_is_read_again(tmp_path: Path, position: int) -> None:
    """What is written into it meanwhile is found."""
    store = replace(store_of(tmp_path, 20 * MIB), used_by_process=1)
    findings: list[Finding] = []
    assert sum(len(block) for block in scan_segments(store, findings, [])) == 300
    assert findings == []
    with Path(store.commit_log[0].file).open("r+b") as file:
        file.seek(position)
        file.write(b"\1")
    assert sum(len(block) for block in scan_segments(store, findings, [])) == 300
    assert len(findings) == 1


def test_the_rest_of_a_queue_is_read_once(tmp_path: Path, read_bytes: list[int]) -> None:
    root = copy_of("common-5.3.3", tmp_path)
    files = [path for path in (root / "consumequeue").glob("*/*/*") if path.is_file()]
    for path in files:
        path.write_bytes(path.read_bytes().ljust(6_000_000, b"\0"))  # no hole
    read_bytes.clear()
    audit([open_store(root)], settings_of("common-5.3.3"), processes=1).table()
    assert sum(read_bytes) <= 1.2 * 6_000_000 * len(files)


def test_bytes_after_the_last_slot_of_a_queue_are_found_each_time(tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path)
    path = root / "consumequeue" / HALF_TOPIC / "0" / f"{0:020d}"
    data = path.read_bytes()
    used = len(data.rstrip(b"\0"))
    path.write_bytes(data[:used].ljust(used // 20 * 20 + 200_000, b"\0") + b"\xff" * 20 + bytes(400_000))
    store = open_store(root)
    for _ in range(3):
        with open_queue(store, HALF_TOPIC, 0) as queue:
            assert queue.has_bytes_after_end
            assert queue.max_offset == -(-used // 20)


def test_holes_are_not_read(tmp_path: Path, read_bytes: list[int]) -> None:
    store = store_of(tmp_path, 1024 * MIB, has_holes=True)
    read_bytes.clear()
    for split in plan_splits([store]):
        assert sum(len(block) for block in split.scan()) == (300 if not split.number else 0)
    assert sum(read_bytes) <= 10 * MIB


@pytest.mark.parametrize("has_holes", [False, True])
@pytest.mark.parametrize(
    "position",
    [len(DATA), len(DATA) + 1, len(DATA) + 4096, (64 << 10) + len(DATA), 4 * MIB, 4 * MIB + len(DATA) + 1, 9 * MIB - 1],
)
def test_one_byte_in_it_is_found(tmp_path: Path, position: int, has_holes: bool) -> None:
    (segment,) = store_of(tmp_path, 9 * MIB, has_holes=has_holes).commit_log
    with Path(segment.file).open("r+b") as file:
        file.seek(position)
        file.write(b"\1")
    scan = SegmentScan(segment)
    assert sum(len(block) for block in scan) == 300
    wrong = scan.spans[0]
    assert wrong.kind in ("damaged", "torn", "foreign")
    assert (wrong.position_bytes, wrong.length_bytes) == (len(DATA), position + 1 - len(DATA))


def test_progress_goes_on_within_a_split_and_ends_with_the_last(tmp_path: Path) -> None:
    plan = plan_splits([store_of(tmp_path, 20 * MIB)], split_bytes=16 * MIB)
    seen: list[tuple[int, int]] = []
    with shown_to(lambda done, total: seen.append((done, total)), plan) as read:
        assert read is not None
        for split in plan:
            for _ in split.scan():
                pass
            read.ended(split)
    done = [one for one, _ in seen]
    assert {total for _, total in seen} == {20 * MIB}
    assert done == sorted(done)
    assert (done[0], done[-1], done[-2]) == (0, 20 * MIB, 20 * MIB - 1)
    assert max(after - before for before, after in itertools.pairwise(done)) <= 5 * MIB
    count = len(seen)
    for split in plan:
        assert list(split.scan()) is not None
    assert len(seen) == count, "nothing is shown after the block"


def test_a_verification_with_a_time_limit_shows_it_too(tmp_path: Path) -> None:
    store = store_of(tmp_path, 20 * MIB)
    seen: list[int] = []

    def results(function: Callable[[_Task], _Result], tasks: Sequence[_Task], total_bytes: int) -> list[_Result]:
        assert total_bytes >= 0
        return [function(task) for task in tasks]

    verify_within(
        Verify(), [store], 60, {}, results, split_bytes=32 * MIB, progress=lambda done, _: seen.append(done)
    )
    assert len(set(seen)) > 4
    assert seen[-1] == 20 * MIB
