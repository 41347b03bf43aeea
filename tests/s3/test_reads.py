"""Ranges of remote files: the same bytes as on disk in whatever order they are asked for, and few requests."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from readers.log.segment_scan import SegmentScan
from readers.storage import remote_reads
from readers.storage.segments import Segment, SegmentedLog
from readers.store.store import open_store
from tests.forge.logs import in_one_file
from tests.forge.records import Message
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


@pytest.mark.parametrize("seed", range(3))
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
            assert file.read(position, length) == content[position : position + length]
            assert not content[position : file.next_data(position)].strip(b"\0")
            position += length


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
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(data + bytes(SIZE_BYTES - len(data)))
    (segment,) = open_store(s3.upload(tmp_path, f"evidence/{tmp_path.name}")).commit_log
    fetched = _fetched(monkeypatch)
    scan = SegmentScan(segment)
    assert sum(len(block) for block in scan) == len(places)
    assert [(span.kind, span.length_bytes) for span in scan.spans] == [("preallocated", SIZE_BYTES - len(data))]
    assert sum(fetched) <= SIZE_BYTES + (12 << 20)


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


def _fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with the length of every range that is fetched."""
    lengths: list[int] = []
    fill = remote_reads._Handle.fill

    def counted(self: remote_reads._Handle, position_bytes: int, length_bytes: int, end: bytes) -> bytes:
        lengths.append(length_bytes)
        return fill(self, position_bytes, length_bytes, end)

    monkeypatch.setattr(remote_reads._Handle, "fill", counted)
    return lengths
