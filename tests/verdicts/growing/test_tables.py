"""What a table of verdicts is to its readers and to other runs: one version, or the one before."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqtx.readers.model.errors import BadRequest, FileChanged, UnwritableFile
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.follow.checkpoint_db import FollowDatabase
from rmqtx.verdicts.follow.follower import Follower
from rmqtx.verdicts.growing import parquet_table, table_manifest
from rmqtx.verdicts.growing.grow import grow
from rmqtx.verdicts.growing.tables import TableName, opened_table, table_files, table_name
from tests.forge.logs import Forge
from tests.forge.stores import copy_of, settings_of, unpacked
from tests.spark.growing import Growing
from tests.verdicts.follow.test_follow import by_default, rolling
from tests.verdicts.growing.grown import KINDS, GrownTable, key_of, named, table_rows

NAME = "common-5.3.3"


@pytest.fixture(params=[KINDS[0], *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[1:])])
def grown(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GrownTable:
    table = named(request.param, tmp_path, monkeypatch)
    return GrownTable([tmp_path / "copy"], table, tmp_path / "checkpoint", settings_of(NAME))


def test_a_log_that_was_cut_back(grown: GrownTable) -> None:
    growing = Growing(unpacked(NAME), Path(grown.roots[0]))
    growing.write_to(growing.end)
    grown.step_and_compare()
    before = grown.rows()
    growing.write_to((growing.begin + growing.end) // 2)
    for _ in range(2):
        with pytest.raises(FileChanged, match=r"a recovery cut it, or it was replaced.*remove .*checkpoint"):
            grown.step()
    assert grown.rows() == before
    grown.checkpoint.unlink()  # as the message says
    done = grown.step_and_compare()
    assert done.is_compared
    closed = Counter(row["closed_by"] for row in grown.rows())
    assert closed["gone"] > 5
    assert closed["state"] > 5
    growing.write_to(growing.end)
    assert not grown.step_and_compare().is_compared


def test_what_the_checkpoint_did_without_the_table_is_compared(grown: GrownTable) -> None:
    growing = Growing(unpacked(NAME), Path(grown.roots[0]))
    moments = growing.moments(4, 3)
    growing.write_to(moments[0])
    assert grown.step_and_compare().is_compared  # the first time
    growing.write_to(moments[1])
    stores = grown.stores()
    database = FollowDatabase(str(grown.checkpoint), stores)
    list(Follower(database).step(stores, grown.settings).batches)  # rmqtx follow with the same checkpoint
    database.close()
    growing.write_to(moments[2])
    assert grown.step_and_compare().is_compared
    saved = grown.checkpoint.with_name("saved")
    shutil.copy(grown.checkpoint, saved)
    growing.write_to(moments[3])
    assert not grown.step_and_compare().is_compared
    shutil.copy(saved, grown.checkpoint)  # from a backup: the table has a later step
    assert grown.step_and_compare().is_compared


def test_two_stores_have_a_checkpoint_each_and_one_table(
    grown: GrownTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown.roots = [copy_of(NAME, tmp_path / "first")]
    grown.step()
    other = GrownTable([tmp_path / "other"], grown.table, tmp_path / "second", settings_of(NAME))
    growing = Growing(unpacked(NAME), tmp_path / "other")
    for moment in growing.moments(3, 1):
        growing.write_to(moment)
        other.step()
        assert not grown.step().is_compared
    stores = [*grown.stores(), *other.stores()]
    found = Counter(row["store"] for row in grown.rows() if row["valid_to"] is None)
    assert found == {store.root: len(other.audited([store])) for store in stores}


def test_rows_that_another_program_removed_are_written_again(tmp_path: Path) -> None:
    root = tmp_path / "copy"
    grown = GrownTable([root], TableName("parquet", str(tmp_path / "table")), tmp_path / "checkpoint", by_default)
    growing = Growing(rolling(tmp_path / "whole"), root)
    growing.write_to(growing.end // 2)
    grown.step()
    path = tmp_path / "table" / "_rmqtx" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"] = [file for file in manifest["files"] if not file["is_open"]]
    path.write_text(json.dumps(manifest))
    growing.write_to(growing.end)
    with pytest.raises(FileChanged, match=r"lacks \d+ current rows that rmqtx wrote.*run again"):
        grown.step()
    assert grown.step().is_compared
    grown.assert_current()


# -- readers ----------------------------------------------------------------------------------------------------------


def read_on(name: TableName, ended: Any, found: Any) -> None:
    """Read the table again and again; report the states of its current rows, and how many rows it has."""
    while not ended.is_set():
        rows = table_rows(name).select(["state", "valid_to"]).to_pylist()
        states = Counter(row["state"] for row in rows if row["valid_to"] is None)
        found.put((tuple(sorted(states.items())), len(rows)))


@pytest.mark.slow
def test_readers_find_one_version_before_during_and_after_each_commit(grown: GrownTable, tmp_path: Path) -> None:
    growing = Growing(rolling(tmp_path / "whole", 2), Path(grown.roots[0]))
    grown.settings = by_default
    moments = growing.moments(7, 5)
    growing.write_to(moments[0])
    grown.step()
    context = multiprocessing.get_context("spawn")
    ended, found = context.Event(), context.Queue()
    readers = [context.Process(target=read_on, args=(grown.table, ended, found)) for _ in range(2)]
    for reader in readers:
        reader.start()
    versions = set()
    seen = [found.get(timeout=120)]
    for moment in moments:
        growing.write_to(moment)
        grown.step()
        rows = grown.rows()
        states = Counter(row["state"] for row in rows if row["valid_to"] is None)
        versions.add((tuple(sorted(states.items())), len(rows)))
        seen.append(found.get(timeout=120))
    ended.set()
    while any(reader.is_alive() for reader in readers) or not found.empty():
        while not found.empty():
            seen.append(found.get())
        time.sleep(0.05)
    assert all(reader.exitcode == 0 for reader in readers)
    assert len(set(seen)) > 2
    assert set(seen) <= versions


# -- the files of a Parquet table ------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> tuple[GrownTable, Growing]:
    growing = Growing(rolling(tmp_path / "whole", 1, halves=20), tmp_path / "copy")
    table = TableName("parquet", str(tmp_path / "table"))
    return GrownTable([growing.root], table, tmp_path / "checkpoint", by_default), growing


def names_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")}


def test_replaced_files_stay_for_a_day(
    small: tuple[GrownTable, Growing], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown, growing = small
    growing.write_to(growing.end // 2)
    grown.step()
    first = names_of(tmp_path / "table")
    growing.write_to(growing.end)
    grown.step()
    assert first < names_of(tmp_path / "table")
    assert first - set(table_files_below(grown.table))
    leftover = tmp_path / "table" / "day=2026-01-31" / "part-00000099-0000-killed.parquet"
    leftover.parent.mkdir()
    leftover.write_bytes(b"of a run that was killed")
    other = tmp_path / "table" / "day=2026-01-31" / "notes.txt"
    other.write_text("of somebody else")
    monkeypatch.setattr(parquet_table, "RETENTION_MS", -1)
    shrink(growing)
    grown.step()
    grown.assert_current()
    assert not leftover.exists()
    assert other.exists()
    assert first - names_of(tmp_path / "table")
    assert set(table_files_below(grown.table)) <= names_of(tmp_path / "table")


def table_files_below(name: TableName) -> list[str]:
    return [file.removeprefix(f"{name.place}/") for file in table_files(name)]


def shrink(growing: Growing) -> None:
    """The broker deletes the first file."""
    files = sorted((growing.root / "commitlog").iterdir())
    files[0].unlink()


def test_small_files_are_joined(small: tuple[GrownTable, Growing], monkeypatch: pytest.MonkeyPatch) -> None:
    grown, growing = small
    monkeypatch.setattr(parquet_table, "_JOINED_MIN", 3)
    monkeypatch.setattr(parquet_table, "_OPEN_JOINED_MIN", 2)
    most = 0
    for moment in growing.moments(9, 2):
        growing.write_to(moment)
        grown.step_and_compare()
        most = max(most, len(table_files(grown.table)))
    assert most <= 6


def test_a_large_step_is_several_files(
    small: tuple[GrownTable, Growing], monkeypatch: pytest.MonkeyPatch
) -> None:
    grown, growing = small
    monkeypatch.setattr("rmqtx.verdicts.growing.parquet_table.ROWS_MAX", 7)
    growing.write_to(growing.end)
    grown.step_and_compare()
    assert len(table_files(grown.table)) > 3
    assert all(pq.read_metadata(file).num_rows <= 7 for file in table_files(grown.table))


def test_a_column_that_an_older_version_did_not_write_is_null(
    small: tuple[GrownTable, Growing], tmp_path: Path
) -> None:
    grown, growing = small
    growing.write_to(growing.end // 2)
    grown.step()
    for file in table_files(grown.table):
        pq.write_table(pq.ParquetFile(file).read().drop_columns(["reason_code"]), file)
    growing.write_to(growing.end)
    grown.step()
    assert {row["reason_code"] is None for row in grown.rows()} == {True, False}


@pytest.mark.slow
def test_a_column_that_an_older_version_did_not_write_is_null_in_iceberg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = named("iceberg", tmp_path, monkeypatch)
    grown = GrownTable([tmp_path / "copy"], table, tmp_path / "checkpoint", settings_of(NAME))
    growing = Growing(unpacked(NAME), tmp_path / "copy")
    growing.write_to((growing.begin + growing.end) // 2)
    grown.step()
    place = table.place.partition(".")
    with pytest.importorskip("pyiceberg.catalog").load_catalog(place[0]).load_table(place[2]).update_schema() as schema:
        schema.delete_column("causes")
    growing.write_to(growing.end)
    grown.step()
    assert {row["causes"] is None for row in grown.rows()} == {True, False}


def test_one_run_writes_at_a_time(small: tuple[GrownTable, Growing]) -> None:
    grown, growing = small
    growing.write_to(growing.end)
    with opened_table(grown.table), pytest.raises(BadRequest, match="another rmqtx writes into"):
        grown.step()
    grown.step()


def test_what_is_not_a_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(BadRequest, match="is not empty and not a table"), opened_table(table_name(f"{tmp_path}/other")):
        pass
    with pytest.raises(BadRequest, match="is a file"), opened_table(table_name(f"{tmp_path}/other/notes.txt")):
        pass
    with pytest.raises(BadRequest, match="is not a table of verdicts"):
        table_files(table_name(f"{tmp_path}/none"))
    manifest = tmp_path / "forged" / "_rmqtx" / "manifest.json"
    manifest.parent.mkdir(parents=True)
    facts = {"format": "rmqtx verdicts", "format_version": 1, "version": 1, "made_at_ms": 1, "steps": {}, "states": {},
             "files": [], "retired": [{"name": "../other/part-x.parquet", "since_ms": 0}]}
    manifest.write_text(json.dumps(facts))
    with pytest.raises(Exception, match="a file of this table"):
        table_files(table_name(f"{tmp_path}/forged"))
    manifest.write_text(json.dumps({**facts, "retired": [], "format_version": table_manifest.FORMAT_VERSION + 1}))
    with pytest.raises(BadRequest, match="of another version"):
        table_files(table_name(f"{tmp_path}/forged"))
    pytest.importorskip("deltalake").write_deltalake(str(tmp_path / "delta"), pa.table({"x": [1]}))
    with pytest.raises(BadRequest, match="is not a table of verdicts"):
        table_files(table_name(f"delta:{tmp_path}/delta"))


@pytest.mark.parametrize("text", ["iceberg:verdicts", "iceberg:prod.verdicts", "iceberg:prod..verdicts"])
def test_a_name_that_is_no_table_is_one_line(text: str) -> None:
    with pytest.raises(BadRequest, match=r"names no Iceberg table - write iceberg:CATALOG.NAMESPACE.TABLE"):
        table_name(text)


def test_hostile_names_in_a_store_are_values(grown: GrownTable) -> None:
    forge = Forge(Path(grown.roots[0]))
    hostile = ["' OR 1=1 --", 'x"y', "a\0b", "day=../..", "%", "ü\u202e"]
    for number, text in enumerate(hostile):
        forge.half(f"{text}{number}", group=text)
    forge.write()
    grown.settings = by_default
    grown.step_and_compare()
    for half in range(len(hostile)):
        forge.commit(forge.half(f"{hostile[half]}{half}", group=hostile[half]))
    forge.write()
    grown.step_and_compare()
    assert {key_of(row)[2] for row in grown.rows()} >= {"' OR 1=1 --", 'x"y'}
    assert open_store(grown.roots[0]).root


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_two_runs_that_write_at_the_same_time(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = named(kind, tmp_path, monkeypatch)
    growing = [Growing(unpacked(NAME), tmp_path / name) for name in ("first", "second")]
    first, second = (
        GrownTable([one.root], table, tmp_path / f"{one.root.name}.checkpoint", settings_of(NAME)) for one in growing
    )
    outcomes = Counter[str]()
    for moments in zip(*(one.moments(5, seed) for seed, one in enumerate(growing)), strict=True):
        for one, moment in zip(growing, moments, strict=True):
            one.write_to(moment)
        database = FollowDatabase(str(first.checkpoint), first.stores())
        with opened_table(table) as opened:  # the first run begins, the second one begins and ends
            second.step()
            try:
                grow(opened, database, first.stores(), first.settings)
            except UnwritableFile:
                outcomes["later"] += 1
        database.close()
        outcomes["completed"] += first.step().was_completed
        for run in (first, second):
            rows = [row for row in run.rows() if row["store"] == str(run.roots[0]) and row["valid_to"] is None]
            assert {key_of(row): row["state"] for row in rows} == {
                key_of(row): row["state"] for row in run.audited(run.stores())
            }
            assert len({key_of(row) for row in rows}) == len(rows)
    assert outcomes["later"] == outcomes["completed"]
