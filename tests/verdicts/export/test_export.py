"""Exports: every row of the log once, whatever was killed in between, and no file outside the directory."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyarrow import fs

from rmqtx.readers.jobs.job_runner import run_job
from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.log.transaction_records import scan_halves, scan_ops
from rmqtx.readers.model.errors import BadRequest, BadText, UnwritableFile
from rmqtx.readers.model.tables import ALL_TABLES
from rmqtx.readers.store.store import Store, open_store
from rmqtx.readers.traces import scan_traces
from rmqtx.verdicts.export import export, export_manifest, folder, partition_files
from rmqtx.verdicts.export.export import EXPORTED, ExportJob
from rmqtx.verdicts.export.export_manifest import Done, Range, opened_directory
from rmqtx.verdicts.export.folder import STATE_DIRECTORY
from rmqtx.verdicts.export.partition_files import ArrowForm, FileForm, ParquetForm, PartitionFiles
from rmqtx.verdicts.export.partitions import PARTITIONINGS, UNKNOWN, escaped_name
from tests.custody_read import custody_of
from tests.field import field_stores
from tests.forge.stores import WITH_SEVERAL_SEGMENTS, contents, copy_of, opened, unpacked

COLUMNS = ("store", "file", "position_bytes", "commit_log_offset", "topic", "store_time_ms", "keys", "body")
SETTINGS = {"table": "records"}
SPLIT = 64 << 10


def run(
    store: Store, to: Path, *, split_bytes: int = SPLIT, table: str = "records", columns: tuple[str, ...] = COLUMNS,
    form: FileForm | None = None,
) -> pa.Table:
    """An export as the command makes it; gives the rows of EXPORTED."""
    with opened_directory(to, {"table": table}, [store]) as done:
        job = ExportJob(table, columns, str(to), form or ParquetForm(), done)
        return run_job(job, plan_splits([store], split_bytes=split_bytes)).table()


def rows_of(to: Path, kind: str = "parquet", columns: tuple[str, ...] = COLUMNS) -> pa.Table:
    """What a reader of the directory finds."""
    table = ds.dataset(to, format=kind, partitioning="hive").to_table()
    return table.select(columns).sort_by([("store", "ascending"), ("commit_log_offset", "ascending")])


def wanted(store: Store) -> pa.Table:
    return scan_records(store, with_body=True).table().select(COLUMNS)


def same(found: pa.Table, expected: pa.Table) -> bool:
    return bool(found.cast(expected.schema).equals(expected))


@pytest.mark.parametrize("name", [*WITH_SEVERAL_SEGMENTS[:3], "common-5.3.3", "longtopic-5.3.3"])
def test_every_record_is_exported_once(name: str, tmp_path: Path) -> None:
    store = opened(name)
    before = contents(unpacked(name))
    files = run(store, tmp_path / "to")
    assert same(rows_of(tmp_path / "to"), wanted(store))
    assert sum(files["rows_count"].to_pylist()) == len(wanted(store))
    again = run(store, tmp_path / "to", split_bytes=SPLIT * 3)  # other splits, and nothing is left for them
    assert again.num_rows == 0
    assert same(rows_of(tmp_path / "to"), wanted(store))
    assert contents(unpacked(name)) == before


@pytest.mark.parametrize("split_bytes", [700, 5_000, 1 << 30])
def test_the_size_of_splits_changes_no_row(split_bytes: int, tmp_path: Path) -> None:
    store = opened("fifteen-5.3.3")
    run(store, tmp_path / "to", split_bytes=split_bytes)
    assert same(rows_of(tmp_path / "to"), wanted(store))


def test_rows_describe_their_files(tmp_path: Path) -> None:
    store = opened("common-5.3.3")
    files = run(store, tmp_path / "to")
    assert files.schema.equals(EXPORTED)
    for row in files.to_pylist():
        path = tmp_path / "to" / row["file"]
        assert path.stat().st_size == row["size_bytes"]
        table = ds.dataset(path).to_table()
        assert table.num_rows == row["rows_count"]
        assert set(table["topic"].to_pylist()) == {row["topic"]}
        facts = custody_of(table.schema)
        assert facts is not None
        assert (facts["segment"], facts["from_position"]) == (row["segment"], row["from_position"])


@pytest.mark.parametrize(("table", "scan"), [("halves", scan_halves), ("ops", scan_ops)])
def test_halves_and_ops(table: str, scan: Any, tmp_path: Path) -> None:
    store = opened("common-5.3.3")
    columns = tuple(ALL_TABLES[table].names)
    run(store, tmp_path / "to", table=table, columns=columns, form=ArrowForm())
    assert same(rows_of(tmp_path / "to", "arrow", columns), scan(store).table())


def test_lines_of_traces(tmp_path: Path) -> None:
    root = field_stores("trace-dropped-5.3.3", tmp_path) / "store"
    columns = tuple(ALL_TABLES["traces"].names)
    files = run(open_store(root), tmp_path / "to", table="traces", columns=columns)
    expected = scan_traces(open_store(root)).table()
    places = [("commit_log_offset", "ascending"), ("line_number", "ascending")]
    assert same(rows_of(tmp_path / "to", columns=columns).sort_by(places), expected.sort_by(places))
    assert sum(files["rows_count"].to_pylist()) == expected.num_rows
    assert set(files["topic"].to_pylist()) == set(expected["topic"].to_pylist())


# -- a log that grows


def cut(root: Path, at: int) -> None:
    """The log as it was when it ended at an offset: zeros behind it, and no file that begins later."""
    for segment in open_store(root).commit_log:
        path = Path(segment.file)
        if segment.base_offset >= at:
            path.unlink()
        elif segment.end_offset > at:
            with path.open("r+b") as file:
                file.truncate(at - segment.base_offset)
                file.truncate(segment.size_bytes)


@pytest.mark.parametrize("name", [WITH_SEVERAL_SEGMENTS[0], "common-5.3.3"])
@pytest.mark.parametrize("split_bytes", [20_000, 1 << 30])
def test_a_later_run_adds_only_what_the_log_has_grown_by(name: str, split_bytes: int, tmp_path: Path) -> None:
    whole = wanted(opened(name))
    ends = whole["commit_log_offset"].to_pylist()
    root = tmp_path / "store"
    counts = []
    for at in (ends[len(ends) // 3], ends[len(ends) // 2], ends[-1] + (1 << 40)):
        copy_of(name, tmp_path)
        cut(root, at)
        counts.append(sum(run(open_store(root), tmp_path / "to", split_bytes=split_bytes)["rows_count"].to_pylist()))
    assert counts == [len(ends) // 3, len(ends) // 2 - len(ends) // 3, len(ends) - len(ends) // 2]
    found = rows_of(tmp_path / "to")
    assert found["commit_log_offset"].to_pylist() == ends
    assert found["body"].to_pylist() == whole["body"].to_pylist()


def test_a_torn_record_is_exported_when_it_is_whole(tmp_path: Path) -> None:
    root = copy_of("fifteen-5.3.3", tmp_path)
    offsets = wanted(opened("fifteen-5.3.3"))["commit_log_offset"].to_pylist()
    cut(root, offsets[-1] + 60)
    assert sum(run(open_store(root), tmp_path / "to")["rows_count"].to_pylist()) == len(offsets) - 1
    copy_of("fifteen-5.3.3", tmp_path)
    assert sum(run(open_store(root), tmp_path / "to")["rows_count"].to_pylist()) == 1
    assert rows_of(tmp_path / "to")["commit_log_offset"].to_pylist() == offsets


# -- runs that are killed


class Killed(BaseException):
    """Nothing catches it, as nothing catches SIGKILL."""


@pytest.mark.parametrize("place", ["before the names", "before the manifest"])
@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_killed_export_goes_on_where_it_stopped(
    place: str, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(WITH_SEVERAL_SEGMENTS[0])
    written = 0
    real = export_manifest.write_manifest if place == "before the names" else folder.write_json

    def dying(*arguments: Any) -> None:
        nonlocal written
        is_manifest = place == "before the names" or arguments[0].parent.name == "manifests"
        if is_manifest and written == after:
            raise Killed
        written += is_manifest
        real(*arguments)

    with monkeypatch.context() as patched:
        if place == "before the names":
            patched.setattr(export, "write_manifest", dying)
        else:
            patched.setattr(export_manifest, "write_json", dying)
        patched.setattr(export_manifest, "_remove_temporary", lambda directory: None)  # it was killed
        with pytest.raises(Killed):
            run(store, tmp_path / "to", split_bytes=20_000)
    done = len(list((tmp_path / "to" / STATE_DIRECTORY / "manifests").glob("*.json")))
    assert done == after
    run(store, tmp_path / "to", split_bytes=30_000)
    assert same(rows_of(tmp_path / "to"), wanted(store))
    assert not list((tmp_path / "to").rglob(".*.tmp"))


def test_an_error_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(partition_files._ArrowFile, "write", full)
    with pytest.raises(UnwritableFile, match="No space left on device"):
        run(opened("fifteen-5.3.3"), tmp_path / "to")
    assert not [path for path in (tmp_path / "to").rglob("*part-*") if path.is_file()]


# -- directories


def test_two_stores_share_a_directory(tmp_path: Path) -> None:
    first, second = opened("fifteen-5.3.3"), opened("fifteen-5.1.4")
    run(first, tmp_path / "to")
    run(second, tmp_path / "to")
    found = rows_of(tmp_path / "to")
    assert len(found) == len(wanted(first)) + len(wanted(second))


def test_another_store_at_the_same_path_is_refused(tmp_path: Path) -> None:
    copy_of("fifteen-5.3.3", tmp_path)
    run(open_store(tmp_path / "store"), tmp_path / "to")
    copy_of("common-5.3.3", tmp_path)
    with pytest.raises(BadRequest, match="is not the file that was exported here"):
        run(open_store(tmp_path / "store"), tmp_path / "to")


def test_what_is_no_export_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "precious").write_text("x")
    with pytest.raises(BadRequest, match="is not empty and not an export by rmqtx"):
        run(opened("fifteen-5.3.3"), tmp_path / "to")
    with pytest.raises(BadRequest, match="is a file"):
        run(opened("fifteen-5.3.3"), tmp_path / "to" / "precious")
    run(opened("fifteen-5.3.3"), tmp_path / "other")
    with pytest.raises(BadRequest, match="contains an export with table records, not halves"):
        run(opened("fifteen-5.3.3"), tmp_path / "other", table="halves", columns=("keys",))


def test_other_columns_are_named(tmp_path: Path) -> None:
    def take(*columns: str, to: str = "to") -> None:
        with opened_directory(tmp_path / to, {"columns": list(columns)}, []):
            pass

    take(*(f"a{number}" for number in range(7)), to="many")
    with pytest.raises(BadRequest, match=r"an export with other columns \(also a0, a1, a2, a3, a4 and 2 more\)"):
        take(to="many")
    take("keys", "topic")
    for columns, difference in (
        (("keys", "store"), "also topic; not store"), (("keys",), "also topic"),
        (("topic", "keys"), "in another order"),
    ):
        with pytest.raises(BadRequest, match=rf"an export with other columns \({difference}\)"):
            take(*columns)


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    run(opened("fifteen-5.3.3"), tmp_path)
    with (tmp_path / STATE_DIRECTORY / "lock").open("w") as lock:
        fcntl.flock(lock.fileno(), fcntl.LOCK_EX)
        with pytest.raises(BadRequest, match="another export into"):
            run(opened("fifteen-5.3.3"), tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"store": "x"})])
def test_a_spoilt_manifest_is_reported(text: str, tmp_path: Path) -> None:
    run(opened("fifteen-5.3.3"), tmp_path)
    next((tmp_path / STATE_DIRECTORY / "manifests").glob("*.json")).write_text(text)
    with pytest.raises(BadText, match="is not a valid manifest of an export"):
        run(opened("fifteen-5.3.3"), tmp_path)


def test_only_data_files_that_no_manifest_names_are_half_written(tmp_path: Path) -> None:
    top, elsewhere = tmp_path / "top", tmp_path / "elsewhere"
    for path in ("day=1/part-1", "day=1/part-2", "day=1/.part-3.tmp", "day=1/notes.txt", "_rmqtx/part-4"):
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).touch()
    elsewhere.mkdir()
    (elsewhere / "part-5").touch()
    (top / "day=2").symlink_to(elsewhere)
    found = folder.half_written(fs.LocalFileSystem(), str(top), {"day=1/part-1"})
    assert sorted(found) == [f"{top}/day=1/.part-3.tmp", f"{top}/day=1/part-2"]


def test_what_others_put_beside_the_rows_stays(tmp_path: Path) -> None:
    run(opened("fifteen-5.3.3"), tmp_path)
    note = tmp_path / "README"
    note.write_text("whose this is")
    run(opened("fifteen-5.3.3"), tmp_path)
    assert note.exists()


# -- partitions


HOSTILE = [
    "../../etc", "/etc/passwd", "a/b", "..", ".", "a=b", "%41", "A%", "x\ny", "\x1b[31m", "主题", "é", "\u202eabc",
    "a" * 300, "主" * 200, "a" * 299 + "b", UNKNOWN,
]


def test_no_name_leads_out_of_the_directory(tmp_path: Path) -> None:
    times = [1_700_000_000_000 + number for number in range(len(HOSTILE))]
    rows = pa.RecordBatch.from_pydict({"topic": HOSTILE, "store_time_ms": times})
    files = PartitionFiles(tmp_path / "to", "x", ParquetForm(), rows.schema, PARTITIONINGS["records"])
    files.write(rows)
    written = files.close()
    assert len({file.temporary for file in written}) == len(HOSTILE)
    for file in written:
        path = tmp_path / "to" / file.temporary
        assert path.resolve().is_relative_to((tmp_path / "to").resolve())
        assert len(path.relative_to(tmp_path / "to").parts) == 3
        assert all(len(part.encode()) <= 255 for part in path.parts)
        path.rename(path.with_name(f"{file.rows_count}.parquet"))
    assert len(list(tmp_path.iterdir())) == 1
    assert sorted(ds.dataset(tmp_path / "to").to_table()["topic"].to_pylist()) == sorted(HOSTILE)


def test_readers_find_the_name_in_the_directory() -> None:
    assert escaped_name("orders_v1.2-x") == "orders_v1.2-x"
    assert escaped_name("a/b c=%") == "a%2Fb%20c%3D%25"
    assert escaped_name("主题") == "主题"
    assert escaped_name("a" * 300) != escaped_name("a" * 299 + "b")


def test_days_are_those_of_the_store_time_in_utc() -> None:
    times = [0, 86_399_999, 86_400_000, None, -1, 1 << 62, 253_402_300_799_999]
    rows = pa.RecordBatch.from_pydict({"topic": ["t"] * 7, "store_time_ms": pa.array(times, pa.int64())})
    found = {part.directory: len(own) for part, own in PARTITIONINGS["records"].split(rows)}
    assert found == {
        "topic=t/day=1970-01-01": 2, "topic=t/day=1970-01-02": 1, f"topic=t/day={UNKNOWN}": 3,
        "topic=t/day=9999-12-31": 1,
    }


def test_few_files_are_open_and_little_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_files, "_OPEN_FILES_MAX", 2)
    monkeypatch.setattr(partition_files, "_WAITING_BYTES_MAX", 1)
    topics = [f"t{number % 7}" for number in range(700)]
    rows = pa.RecordBatch.from_pydict({"topic": topics, "store_time_ms": [1] * 700, "n": range(700)})
    files = PartitionFiles(tmp_path, "x", ParquetForm(), rows.schema, PARTITIONINGS["records"])
    for first in range(0, 700, 70):
        files.write(rows.slice(first, 70))
        assert len(files._open) <= 2
    written = files.close()
    assert sum(file.rows_count for file in written) == 700
    assert len({file.name for file in written}) == len(written)
    numbers = [n for file in written for n in ds.dataset(tmp_path / file.temporary).to_table()["n"].to_pylist()]
    assert sorted(numbers) == list(range(700))


# -- gaps


def known(begin: int, end: int, last: int | None = None) -> Range:
    return Range("s", 0, begin, end, last, 1, 1, "")


def test_gaps_are_what_no_range_covers() -> None:
    done = Done({("s", 0): [known(0, 10, 8), known(10, 20, 15), known(30, 40, None)]})
    assert list(done.gaps("s", 0, 0, 20)) == []
    assert list(done.gaps("s", 0, 5, 50)) == [(20, 30, 15), (40, 50, 40)]
    assert list(done.gaps("s", 0, 20, 25)) == [(20, 25, 15)]
    assert list(done.gaps("s", 1, 0, 5)) == [(0, 5, 0)]
    assert list(done.gaps("t", 0, 0, 5)) == [(0, 5, 0)]
