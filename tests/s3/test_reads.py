"""Ranges of remote files: the same bytes as on disk in whatever order they are asked for, and few requests."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmqtx.readers.index.index_search import Index
from rmqtx.readers.log.segment_scan import SegmentScan
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.storage import remote_handles
from rmqtx.readers.storage.open_file import portions
from rmqtx.readers.storage.segments import Segment, SegmentedLog
from rmqtx.readers.store.store import Store, open_store
from rmqtx.verdicts.audit.lookups import pending
from rmqtx.verdicts.claims.log_agreement import newest_time_ms
from rmqtx.verdicts.claims.log_claims import queue_claims
from rmqtx.verdicts.evidence import indexed_lookup, lookup_costs
from tests.forge.logs import in_one_file
from tests.forge.records import Message
from tests.forge.stores import copy_of, settings_of
from tests.representatives import rest_is_slow
from tests.s3.server import S3Server

SIZE_BYTES = 21 << 20
DATA_BYTES = 9 << 20


@pytest.fixture(scope="module")
def content() -> bytes:
    """Bytes that tell their place, a hole inside, and preallocated space behind."""
    data = bytearray(random.Random(7).randbytes(DATA_BYTES) + bytes(SIZE_BYTES - DATA_BYTES))
    data[3 << 20 : 4 << 20] = bytes(1 << 20)
    return bytes(data)


@pytest.fixture
def segment(s3: S3Server, content: bytes, tmp_path: Path) -> Segment:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(content)
    (segment,) = open_store(s3.upload(tmp_path, f"evidence/{tmp_path.name}")).commit_log
    assert segment.modified_ns is not None
    s3.requests()
    return segment


@pytest.mark.parametrize("seed", rest_is_slow(range(3), quick=1))
def test_any_order_of_reads_gives_the_bytes(segment: Segment, content: bytes, seed: int) -> None:
    chance = random.Random(seed)
    with segment.open() as file:
        position = 0
        for _ in range(60):
            kind = chance.random()
            length = int(2 ** chance.uniform(0, 23))
            if kind < 0.4:  # go on, a little before where the last one ended
                position = max(0, position - chance.randrange(70_000))
            elif kind < 0.9:
                position = chance.randrange(SIZE_BYTES + 100)
            if chance.random() < 0.3:
                file.prepare((place, 100) for place in sorted(chance.sample(range(SIZE_BYTES), 20)))
            if chance.random() < 0.2:
                file.fetch_ahead(position, chance.choice((length, 4 << 20)))
            assert file.read(position, length) == content[position : position + length]
            assert not content[position : file.next_data(position)].strip(b"\0")
            position += length


@pytest.mark.parametrize("seed", range(3))
def test_runs_of_any_length_are_the_bytes(segment: Segment, content: bytes, seed: int) -> None:
    chance = random.Random(seed)
    with segment.open() as file:
        for _ in range(4):
            pairs = itertools.pairwise(sorted(chance.sample(range(SIZE_BYTES), 80)))
            runs = [(begin, min(end, begin + int(2 ** chance.uniform(1, 23)))) for begin, end in pairs]
            data = bytearray(sum(end - begin for begin, end in runs))
            file.read_runs(runs, memoryview(data))
            assert data == b"".join(content[begin:end] for begin, end in runs)


def test_near_places_are_one_request_and_far_ones_fetch_little(
    s3: S3Server, segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = _fetched(monkeypatch)
    near, far = np.arange(10, 1 << 20, 100_000), np.arange(4 << 20, DATA_BYTES, 600_000)
    log = SegmentedLog((segment,))
    for places, requests, most_bytes in ((near, 1, 1 << 20), (far, len(far), 8192 * len(far))):
        for portion in portions(places, places + 1024, log.limits):
            log.read_runs(portion.begins, portion.ends)
        assert len(fetched) == requests
        assert sum(fetched) <= most_bytes
        fetched.clear()
    log.close()


def test_files_that_are_opened_together_are_fetched_once(s3: S3Server, tmp_path: Path) -> None:
    counts = [100 + 30_000 * number for number in range(5)]
    store = open_store(s3.upload(_with_queues(tmp_path, counts), f"evidence/{tmp_path.name}"))
    s3.requests()
    ends = []
    for topic, queue_id in store.queues_opened_together(store.queues()):
        with open_queue(store, topic, queue_id) as queue:
            end = queue.max_offset
            ends.append((end, queue.read(end - 1, end)[1].tolist()))
    assert ends == [(count, [1 << 40]) for count in counts]
    requests = s3.requests()
    assert sorted(request.split()[1].split("/")[-2] for request in requests if " bytes=" in request) == list("01234")
    assert sum(request.startswith("HEAD") for request in requests) == 5


def _guess(slots: Sequence[int]) -> Callable[[str, int], int]:
    return lambda _, number: 20 * slots[number]


def test_samples_find_the_end_of_a_queue_from_any_guess(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = [0, 1, 100, 3_276, 3_277, 150_000, 299_999, 300_000]
    store = open_store(s3.upload(_with_queues(tmp_path, counts), f"evidence/{tmp_path.name}"))
    guesses = (counts, [one // 2 for one in counts], [one + 9_000 for one in counts], [0] * len(counts))
    for guessed in guesses:
        remote_handles._handles.clear()
        fetched = _fetched(monkeypatch)
        queues = store.queues_opened_together(store.queues(), guessed_ends=_guess(guessed))
        ends = []
        for topic, queue_id in queues:
            with open_queue(store, topic, queue_id) as queue:
                ends.append(queue.max_offset)
        assert ends == counts
        assert sum(fetched) <= len(counts) * (640 << 10)
        monkeypatch.undo()


def test_an_audit_reads_what_samples_left_out(s3: S3Server, tmp_path: Path) -> None:
    root = _with_queues(tmp_path, [100])
    (path,) = (root / "consumequeue" / "orders" / "0").iterdir()
    data = bytearray(path.read_bytes())
    data[5_000_000:5_000_020] = data[:20]
    path.write_bytes(data)
    store = open_store(s3.upload(root, f"evidence/{tmp_path.name}"))
    for by_samples, slot in ((True, 99), (False, 250_000)):
        (claim,) = queue_claims(store, by_samples=by_samples)[0]
        assert claim.slot == ("orders", 0, slot)


def _with_queues(directory: Path, counts: list[int]) -> Path:
    """A store with a queue of each number of slots, in files of the default length."""
    slot = (1 << 40).to_bytes(8, "big") + (200).to_bytes(4, "big") + bytes(8)
    for number, count in enumerate(counts):
        queue = directory / "store" / "consumequeue" / "orders" / str(number)
        queue.mkdir(parents=True)
        (queue / f"{0:020d}").write_bytes((slot * count).ljust(6_000_000, b"\0"))
    (directory / "store" / "commitlog").mkdir()
    (directory / "store" / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
    return directory / "store"


def test_a_reader_that_leaves_out_the_end_shares_what_was_fetched(s3: S3Server, segment: Segment) -> None:
    with segment.open() as file:
        file.read(0, 8)
    s3.requests()
    shorter = replace(segment, size_bytes=40_001)
    with shorter.open() as file:
        assert len(file.read(40_000, 100)) == 1
    with segment.open() as file:
        assert len(file.read(40_000, 100)) == 100
    assert s3.requests() == []


def test_a_scan_reads_each_byte_about_once_and_zeros_only_once(
    s3: S3Server, segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = _fetched(monkeypatch)
    for _ in range(2):
        with segment.open() as file:
            for position in range(0, SIZE_BYTES, 4 << 20):
                file.read(position, (4 << 20) + 64)
    assert SIZE_BYTES <= sum(fetched) <= 1.05 * (SIZE_BYTES + DATA_BYTES + (4 << 20))


def test_preallocated_space_is_read_once(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, places = in_one_file([Message(topic="orders", body=b"x" * 700)] * 4000)
    (segment,) = uploaded_log(s3, tmp_path, data).commit_log
    fetched = _fetched(monkeypatch)
    scan = SegmentScan(segment)
    assert sum(len(block) for block in scan) == len(places)
    assert [(span.kind, span.length_bytes) for span in scan.spans] == [("preallocated", SIZE_BYTES - len(data))]
    assert sum(fetched) <= SIZE_BYTES + (12 << 20)


def test_a_record_that_a_window_cuts_off_takes_no_request_of_its_own(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, places = in_one_file([Message(topic="orders", body=b"x" * 7000)] * 2500)
    (segment,) = uploaded_log(s3, tmp_path, data).commit_log
    fetched = _fetched(monkeypatch)
    scan = SegmentScan(segment, to_position=14 << 20, window_bytes=3 << 20)
    assert sum(len(block) for block in scan) == sum(begin < 14 << 20 for begin, _ in places)
    assert sum(length <= 128 << 10 for length in fetched) <= 1  # nothing is fetched ahead of the second window
    assert len(fetched) <= 8


def test_small_reads_are_kept_and_those_that_are_known_to_come_are_fetched_together(
    s3: S3Server, segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SegmentedLog((segment,))
    offsets = list(range(1000, DATA_BYTES, 500_000))
    begins = np.array(offsets)
    data = log.read_runs(begins, begins + 4096)
    assert len(data) == 4096 * len(offsets)
    assert sum("GET" in request for request in s3.requests()) <= len(offsets)
    fetched = _fetched(monkeypatch)
    for offset in offsets:
        assert len(log.read(offset, 4096)) == 4096
    log.close()
    with segment.open() as file:
        file.read(1000, 8)
    assert fetched == []
    assert s3.requests() == []


def test_a_later_snapshot_never_sees_what_was_kept(s3: S3Server, segment: Segment) -> None:
    with segment.open() as file:
        assert file.read(0, 8) != b"\1" * 8
    s3.put(segment.file.removeprefix("s3://"), b"\1" * segment.size_bytes)
    assert segment.modified_ns is not None
    later = replace(segment, modified_ns=segment.modified_ns + 1_000_000_000)
    with later.open() as file:
        assert file.read(0, 8) == b"\1" * 8


def test_small_splits_do_not_read_large_windows(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, places = in_one_file([Message(topic="orders", body=b"x" * 700)] * 4000)
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    (tmp_path / "store" / "commitlog" / f"{0:020d}").write_bytes(data)
    (segment,) = open_store(s3.upload(tmp_path / "store", f"evidence/{tmp_path.name}")).commit_log
    fetched = _fetched(monkeypatch)
    found = []
    for begin in range(0, segment.size_bytes, 64 << 10):
        scan = SegmentScan(segment, from_position=begin, to_position=begin + (64 << 10))
        found += [offset for block in scan for offset in block.commit_log_offsets.tolist()]
    assert found == [position for position, _ in places]
    assert sum(fetched) <= 2 * segment.size_bytes


def uploaded_log(s3: S3Server, root: Path, data: bytes) -> Store:
    """A store with one file of the log, preallocated behind its records."""
    (root / "commitlog").mkdir()
    (root / "commitlog" / f"{0:020d}").write_bytes(data + bytes(SIZE_BYTES - len(data)))
    return open_store(s3.upload(root, f"evidence/{root.name}"))


def _fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with the length of every range that is fetched."""
    lengths: list[int] = []
    read_into = remote_handles.Handle.read_into

    def counted(self: remote_handles.Handle, position_bytes: int, view: memoryview) -> int:
        lengths.append(len(view))
        return read_into(self, position_bytes, view)

    monkeypatch.setattr(remote_handles.Handle, "read_into", counted)
    return lengths


def test_the_time_of_the_last_record_does_not_read_the_unused_rest(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, _ = in_one_file([Message(topic="orders", body=b"x" * 700)] * 40)
    there = uploaded_log(s3, tmp_path, data)
    here = open_store(tmp_path)
    fetched = _fetched(monkeypatch)
    assert newest_time_ms(there) == newest_time_ms(here) is not None
    assert sum(fetched) <= 3 << 20


def test_whichever_is_cheaper_is_read_and_the_scan_is_announced(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(s3.upload(copy_of("common-5.3.3", tmp_path), f"evidence/{tmp_path.name}"))
    settings = settings_of("common-5.3.3")
    looked_up = pending([store], settings)
    monkeypatch.setattr(lookup_costs, "_SHARE_MAX", 0)
    monkeypatch.setattr(lookup_costs, "_CHEAP_BYTES", 0)
    scanned = pending([store], settings)
    rows = looked_up.table()
    assert rows.equals(scanned.table())
    assert rows.num_rows
    assert [any("look-ups would take about" in note.text for note in one.notes) for one in (looked_up, scanned)] == [
        False, True,
    ]


def test_a_search_of_the_index_goes_on_until_chains_are_complete(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(s3.upload(copy_of("common-5.3.3", tmp_path), f"evidence/{tmp_path.name}"))
    rows = pending([store], settings_of("common-5.3.3")).table()
    assert rows.num_rows
    begins = []
    entries_of = indexed_lookup.entries_of

    def noted(index: Index, keys: list[Any], from_offset: int = 0) -> indexed_lookup.Entries:
        begins.append(from_offset)
        return entries_of(index, keys, from_offset)

    monkeypatch.setattr(indexed_lookup, "entries_of", noted)
    monkeypatch.setattr(indexed_lookup, "_BEFORE_FIRST_BYTES", 0)
    monkeypatch.setattr(indexed_lookup, "about_offset", lambda *_: 1 << 60)
    assert pending([store], settings_of("common-5.3.3")).table().equals(rows)
    assert len(begins) > 1
    assert begins == sorted(begins, reverse=True)
