"""Batches of a stream, without Spark: together they are the whole log, whatever the moments and the limits."""

from __future__ import annotations

import json
import mmap
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from rmqtx.readers.jobs.growing_logs import Offsets, blocks_between, initial_offsets, latest_offsets, splits_between
from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.model.errors import BadRequest, FileChanged
from rmqtx.readers.store.store import Store, open_store
from rmqtx.spark_tasks.data_source import RmqtxDataSource
from rmqtx.spark_tasks.source.stream_reader import RmqtxStreamReader
from tests.forge import damage
from tests.forge.logs import Forge, in_one_file
from tests.forge.records import Message
from tests.forge.stores import copy_of, unpacked
from tests.spark.frames import locally
from tests.spark.growing import Growing
from tests.spark.test_data_source import counted_bytes, with_stale_tail


def offsets_between(stores: list[Store], start: Offsets, end: Offsets, split_bytes: int) -> list[tuple[str, int]]:
    return [
        (split.store.root, offset)
        for split in splits_between(stores, start, end, split_bytes)
        for block in blocks_between(split)
        for offset in block.commit_log_offsets.tolist()
    ]


def drained(
    roots: list[Path], start: Offsets, max_bytes: int | None, split_bytes: int = 4096
) -> tuple[list[tuple[str, int]], Offsets]:
    """What the batches from `start` on give until nothing new is there, and where they end."""
    found: list[tuple[str, int]] = []
    while True:
        stores = [open_store(root) for root in roots]
        end = json.loads(json.dumps(latest_offsets(stores, start, max_bytes)))
        assert all(end[root] >= place for root, place in start.items())
        if end == start:
            return found, start
        found += offsets_between(stores, start, end, split_bytes)
        start = end


def wanted(root: Path) -> list[tuple[str, int]]:
    offsets = scan_records(open_store(root), columns=["commit_log_offset"]).table()["commit_log_offset"].to_pylist()
    return [(str(root), offset) for offset in offsets]


@pytest.mark.parametrize(
    ("name", "max_bytes"),
    [
        ("common-5.3.3", None), ("common-5.3.3", 20_000), ("killed-5.5.0", 50_000), ("killed-5.5.0", 1 << 20),
        ("multipath-4.9.7", 10_000), ("poison-4.3.0", 1), ("ipv6-5.1.4", 5000), ("busystop-4.3.0", 100_000),
    ],
)
def test_batches_of_a_store_are_its_records(name: str, max_bytes: int | None) -> None:
    root = unpacked(name)
    found, _ = drained([root], initial_offsets([open_store(root)]), max_bytes)
    assert found == wanted(root)


@pytest.mark.parametrize("seed", range(6))
def test_a_log_that_grows_is_given_once_and_never_torn(tmp_path: Path, seed: int) -> None:
    growing = Growing(_rolling(tmp_path / "whole"), tmp_path / "copy")
    start = initial_offsets([open_store(growing.root)])
    found: list[tuple[str, int]] = []
    for moment in growing.moments(12, seed):
        growing.write_to(moment)
        part, start = drained([growing.root], start, [None, 300, 4000][seed % 3])
        left = [place for place in wanted(growing.root) if place not in set(found)]
        assert part in (left, left[:-1])  # the properties of the last record may not be written yet
        assert start[str(growing.root)] <= moment
        found += part
    assert [offset for _, offset in found] == [offset for _, offset in wanted(growing.whole)]


def _rolling(root: Path) -> Path:
    forge = Forge(root)
    for number in range(80):
        half = forge.half(f"T{number}")
        if number % 3:
            forge.op(half)
    forge.write()
    assert len(open_store(root).commit_log) > 4
    return root


def test_a_real_log_that_grows(tmp_path: Path) -> None:
    growing = Growing(unpacked("killed-5.3.3"), tmp_path / "copy")
    start = initial_offsets([open_store(growing.root)])
    found: list[tuple[str, int]] = []
    for moment in growing.moments(8, 3):
        growing.write_to(moment)
        part, start = drained([growing.root], start, 20_000)
        found += part
    assert [offset for _, offset in found] == [offset for _, offset in wanted(growing.whole)]


def test_several_stores_share_a_batch(tmp_path: Path) -> None:
    roots = [copy_of(name, tmp_path / name) for name in ("poison-4.3.0", "common-5.1.4")]
    start = initial_offsets([open_store(root) for root in roots])
    end = latest_offsets([open_store(root) for root in roots], start, 20_000)
    assert all(0 < end[str(root)] - start[str(root)] < 15_000 for root in roots)
    found, _ = drained(roots, start, 20_000)
    assert sorted(found) == sorted(wanted(roots[0]) + wanted(roots[1]))
    with pytest.raises(FileChanged, match="no longer exists"):
        latest_offsets([open_store(roots[0])], start)
    # a store that joins begins at its begin
    assert set(latest_offsets([open_store(root) for root in roots], {str(roots[0]): 0})) == set(map(str, roots))


@pytest.mark.parametrize("max_bytes", [None, 500])
@pytest.mark.parametrize("is_rolled", [False, True])
def test_what_a_recovery_cut_off_is_never_streamed(tmp_path: Path, is_rolled: bool, max_bytes: int | None) -> None:
    root, offsets = with_stale_tail(tmp_path, is_rolled=is_rolled)
    found, end = drained([Path(root)], {root: 0}, max_bytes, split_bytes=999)
    assert [offset for _, offset in found] == offsets
    assert drained([Path(root)], end, max_bytes)[0] == []


@pytest.mark.parametrize("max_bytes", [None, 400, 3000])
def test_damage_is_passed_over_and_stops_nothing(tmp_path: Path, max_bytes: int | None) -> None:
    root = copy_of("common-5.3.3", tmp_path / "s")
    damage.write_bytes(damage.log_files(root)[0], 20_000, b"\xff" * 9000)
    found, _ = drained([root], {str(root): 0}, max_bytes)
    assert found == wanted(root)
    assert len(found) < locally("records", str(unpacked("common-5.3.3"))).num_rows


def test_files_that_expired_before_they_were_read(tmp_path: Path) -> None:
    root = _rolling(tmp_path / "s")
    store = open_store(root)
    start = {str(root): store.commit_log[1].base_offset}
    end = latest_offsets([store], start, None)
    Path(store.commit_log[1].file).unlink()
    for segments_gone in (1, 2):
        now = open_store(root)
        with pytest.raises(FileChanged, match="no longer exist, and the stream has not read them"):
            latest_offsets([now], start, None)
        with pytest.raises(FileChanged, match="no longer exist"):
            splits_between([now], start, end, 4096)
        rest = [place for place in wanted(root) if place[1] >= start[str(root)]]
        latest = latest_offsets([now], start, None, skips_lost=True)
        splits = splits_between([now], start, latest, 4096, skips_lost=True)
        found = [offset for split in splits for block in blocks_between(split) for offset in block.commit_log_offsets]
        assert found == [offset for _, offset in rest]
        Path(store.commit_log[0].file).unlink(missing_ok=segments_gone == 2)


def test_a_log_that_was_cut_back_and_written_again_is_an_error(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "s")
    for _ in range(5):
        forge.append(Message(body=bytes(100)))
    root = forge.write()
    _, start = drained([root], {str(root): 0}, None)
    again = Forge(tmp_path / "again")
    for _ in range(4):
        again.append(Message(body=bytes(100)))
    again.append(Message(body=bytes(300)))
    file = damage.log_files(again.write())[0]
    damage.log_files(root)[0].write_bytes(file.read_bytes())
    with pytest.raises(FileChanged, match="was truncated and written again"):
        latest_offsets([open_store(root)], start, None)
    shorter = Forge(tmp_path / "shorter")
    for number in range(4):
        shorter.append(Message(body=bytes(100 - number)))
    damage.log_files(root)[0].write_bytes(damage.log_files(shorter.write())[0].read_bytes())
    with pytest.raises(FileChanged, match="was truncated and written again"):
        latest_offsets([open_store(root)], start, None)
    with pytest.raises(FileChanged, match="ends before the place that the stream has read to"):
        latest_offsets([open_store(root)], {str(root): 1 << 20}, None)


def test_a_stream_may_begin_inside_a_log() -> None:
    root = unpacked("common-5.3.3")
    offsets = [offset for _, offset in wanted(root)]
    for begin in (0, offsets[7], offsets[7] + 1, offsets[-1]):
        found, _ = drained([root], initial_offsets([open_store(root)], begin), 30_000)
        assert [offset for _, offset in found] == [offset for offset in offsets if offset >= begin]
    end = drained([root], {str(root): 0}, None)[1][str(root)]
    assert initial_offsets([open_store(root)], end) == {str(root): end}
    for behind in (end + 1, 1 << 40):
        with pytest.raises(BadRequest, match="the commit log ends before"):
            initial_offsets([open_store(root)], behind)


def test_nothing_new_is_told_without_reading_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "s"
    (root / "commitlog").mkdir(parents=True)
    data, _ = in_one_file(Message(body=bytes(500)) for _ in range(100))
    file = root / "commitlog" / f"{0:020d}"
    file.write_bytes(data.ljust(8 << 20, b"\0"))
    store = replace(open_store(root), used_by_process=1)
    end = latest_offsets([store], {str(root): 0}, None)
    assert end == {str(root): len(data)}
    read = counted_bytes(monkeypatch)
    assert latest_offsets([store], end, None) == end
    assert read[0] < 300_000
    with file.open("r+b") as written:
        written.seek(len(data))
        written.write(Message(body=bytes(500)).record(len(data)))
    assert latest_offsets([store], end, None)[str(root)] > len(data)


def stream(**options: str) -> RmqtxStreamReader:
    source = RmqtxDataSource(options)
    reader = source.streamReader(source.schema())
    assert isinstance(reader, RmqtxStreamReader)
    return reader


def test_the_reader_keeps_its_bounds_and_its_target(tmp_path: Path) -> None:
    growing = Growing(unpacked("common-5.3.3"), tmp_path / "copy")
    offsets = [offset for _, offset in wanted(growing.whole)]
    growing.write_to(offsets[200])
    reader = stream(path=str(growing.root), **{"from": str(offsets[5]), "max_bytes_per_batch": "2000B"})
    root = str(growing.root)
    assert reader.initialOffset() == {root: offsets[5]}
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(2000)
    reader.prepareForTriggerAvailableNow()
    growing.write_to(offsets[300])
    place, rows = reader.initialOffset(), 0
    while (following := reader.latestOffset(place, limit)) != place:
        assert following[root] - place[root] < 4000
        partitions = reader.partitions(place, following)
        rows += sum(len(batch) for partition in partitions for batch in reader.read(partition))
        place = following
    assert (rows, place) == (195, {root: offsets[200]})  # what came after the query began is another query's
    assert stream(path=root).latestOffset(place, ReadAllAvailable()) == {root: offsets[300]}
    assert reader.partitions(place, place) == []
    bounded = stream(path=root, to=str(offsets[100]))
    assert bounded.latestOffset({root: 0}, ReadAllAvailable()) == {root: offsets[100]}


def test_only_records_are_a_stream() -> None:
    with pytest.raises(BadRequest, match="cannot be streamed - tables that can be streamed: halves, ops, records"):
        stream(path="/s", table="cursors")


def test_a_log_that_is_written_while_it_is_read(tmp_path: Path) -> None:
    """A broker writes through a mapped file, some bytes at a time; another process may see any of it."""
    whole = _rolling(tmp_path / "whole")
    growing = Growing(whole, tmp_path / "copy")
    writer = threading.Thread(target=_write_slowly, args=(whole, growing.root))
    writer.start()
    found: list[tuple[str, int]] = []
    start = initial_offsets([open_store(growing.root)])
    batches = 0
    while True:
        is_last = not writer.is_alive()
        part, start = drained([growing.root], start, None)
        found += part
        batches += bool(part)
        if is_last:
            break
    writer.join()
    assert batches > 3
    assert [offset for _, offset in found] == [offset for _, offset in wanted(whole)]


def _write_slowly(whole: Path, root: Path) -> None:
    for segment in open_store(whole).commit_log:
        data = Path(segment.file).read_bytes()
        there = root / Path(segment.file).relative_to(whole)
        if not there.exists():
            there.write_bytes(bytes(len(data)))
        with there.open("r+b") as file, mmap.mmap(file.fileno(), len(data)) as mapped:
            for begin in range(0, len(data), 37):
                mapped[begin : begin + 37] = data[begin : begin + 37]
                time.sleep(0.001)
