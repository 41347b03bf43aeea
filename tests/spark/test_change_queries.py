"""The stream of changed verdicts, without Spark: whatever the store, the limit and the kills, its sum is an audit."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from rmqtx.readers.model.errors import BadRequest, FileChanged, UnwritableFile
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from rmqtx.spark_tasks.source import change_reader
from rmqtx.verdicts.follow.checkpoint_db import FollowDatabase
from rmqtx.verdicts.follow.follower import Follower
from tests.forge import damage
from tests.forge.logs import Forge
from tests.forge.stores import copy_of
from tests.spark.change_queries import ChangeQuery, KilledError
from tests.spark.frames import reader_of
from tests.spark.growing import Growing
from tests.verdicts.follow.test_follow import rolling, set_cursors


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    return Growing(rolling(tmp_path / "whole", 1, halves=20), tmp_path / "copy")


def query_of(growing: Growing, tmp_path: Path, **options: str) -> ChangeQuery:
    return ChangeQuery([growing.root], tmp_path / "changes.sqlite", options)


def test_the_sum_of_the_changes_is_an_audit_at_each_moment(growing: Growing, tmp_path: Path) -> None:
    query = query_of(growing, tmp_path, max_rows_per_batch="7")
    counts = []
    for moment in growing.moments(6, 2):
        growing.write_to(moment)
        set_cursors(growing.root, moment // 700, moment // 2000)
        counts.append(query.run())
        rows = query.assert_is_audit()
    assert max(counts) > 2
    assert {row["change"] for row in rows} >= {"new", "state", "details"}
    assert max(len(some) for some in query.sink.values()) == 7
    assert query.run() == 0


def test_expired_files_take_their_transactions_with_them(growing: Growing, tmp_path: Path) -> None:
    query = query_of(growing, tmp_path)
    for number, moment in enumerate(growing.moments(6, 5)):
        growing.write_to(moment)
        files = damage.log_files(growing.root)
        for file in files[: max(0, min(number, len(files) - 1))]:
            file.unlink()
        query.run()
    assert sum(row["change"] == "gone" for row in query.assert_is_audit()) > 3


class Moments:
    """Kills a query at the moment of a number: between two calls of Spark, or at a COMMIT of the checkpoint."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left, original = 1 << 30, FollowDatabase.transaction

        @contextmanager
        def counted(database: FollowDatabase) -> Iterator[None]:
            with original(database):
                yield
                self()
            self()

        monkeypatch.setattr(FollowDatabase, "transaction", counted)

    def __call__(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KilledError


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_kills_repeat_and_lose_nothing(
    every: int, growing: Growing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments, chance, number, kills = Moments(monkeypatch), random.Random(3), 0, 0
    growing.write_to(growing.end // 3)
    query = query_of(growing, tmp_path, max_rows_per_batch="9")
    query.moment = moments
    for end in (growing.end // 3, growing.end // 2, growing.end):
        growing.write_to(end)
        number, is_killed = 0, True
        while is_killed:
            set_cursors(growing.root, chance.randrange(30), chance.randrange(6))
            moments.left = number
            is_killed = query.killed()
            kills, number = kills + is_killed, number + every
        query.assert_is_audit()
    assert kills > 30 / every


def test_the_first_batch_is_repeated_after_a_kill(growing: Growing, tmp_path: Path) -> None:
    growing.write_to(growing.end)
    query = query_of(growing, tmp_path, max_rows_per_batch="9")
    reader = query.reader()
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    reader.stop()
    again = query.reader()
    partitions = again.partitions(again.initialOffset(), end)
    assert [len(rows) for part in partitions for rows in again.read(part)] == [9]
    again.stop()


def test_another_brokers_copy_is_an_error_that_names_both(tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path / "s")
    query = ChangeQuery([root], tmp_path / "changes.sqlite")
    query.run()
    rows = query.assert_is_audit()
    size, file = open_store(root).commit_log[0].size_bytes, damage.log_files(root)[0]
    cases = (0, "offset .*, no record is there now, in a log of"), (64, "all records here are later ones, of")
    for begin, said in cases:
        file.unlink()
        other = Forge(root, segment_bytes=size, begin_offset=begin * size)
        other.half("another")
        file = damage.log_files(other.write())[0]
        with pytest.raises(FileChanged, match=rf"a record of 127.0.0.1:10911 was at .*{said} 10.0.0.1:10911"):
            query.run()
    assert query.rows() == rows


def test_checkpoints_that_do_not_belong_together_are_refused(
    growing: Growing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = query_of(growing, tmp_path, max_rows_per_batch="5")
    growing.write_to(growing.end // 2)
    query.run()
    early = tmp_path / "early.sqlite"
    shutil.copy(query.checkpoint, early)
    growing.write_to(growing.end)
    query.run()
    rows = query.assert_is_audit()

    # an older copy of the file
    older = ChangeQuery(query.roots, early, query.options, query.batches, query.committed_count)
    with pytest.raises(FileChanged, match="are not of the same moment"):
        older.run()
    # a new file
    new = ChangeQuery(query.roots, tmp_path / "new", query.options, query.batches, query.committed_count)
    with pytest.raises(FileChanged, match="the file is another one, or another query uses it"):
        new.run()
    # `rmqtx follow` with the file of a stream
    stores = [open_store(growing.root)]
    database = FollowDatabase(str(query.checkpoint), stores)
    with pytest.raises(BadRequest, match="is the checkpoint of a stream"):
        next(Follower(database).step(stores, broker_settings).batches)
    # a second query at the same time
    monkeypatch.setattr(change_reader, "_WAIT_SECONDS", 0)
    with pytest.raises(BadRequest, match="is in use"):
        query.run()
    database.close()
    # a new query with the file of another one begins with everything, and the other one cannot go on
    again = ChangeQuery(query.roots, query.checkpoint)
    again.run()
    assert {row["change"] for row in again.assert_is_audit()} == {"new"}
    with pytest.raises(FileChanged, match="another query uses it"):
        query.run()
    assert query.rows() == rows


def test_a_wrong_query_is_one_line(growing: Growing, tmp_path: Path) -> None:
    root = str(growing.root)
    with pytest.raises(BadRequest, match=r"is only a stream - use spark\.readStream"):
        reader_of(table="verdict_changes", path=root, checkpoint=str(tmp_path / "c"))
    with pytest.raises(BadRequest, match="needs a file for what was read"):
        ChangeQuery([growing.root], tmp_path / "c", {"checkpoint": ""}).run()
    with pytest.raises(BadRequest, match="lies inside the store"):
        ChangeQuery([growing.root], growing.root / "c").run()
    folder = re.escape(str(tmp_path / "a b"))
    for checkpoint, said in (
        (str(tmp_path / "a b" / "c"), f"No such file or directory - make its folder: mkdir -p '{folder}'"),
        (str(tmp_path), "Is a directory - give a file in this folder"),
        ("s3://bucket/c", "a checkpoint is a file on a disk of this machine: give its path, not a URI"),
    ):
        with pytest.raises(UnwritableFile, match=said):
            query_of(growing, tmp_path, checkpoint=checkpoint).run()
    with pytest.raises(BadRequest, match="'0' rows are not a batch"):
        query_of(growing, tmp_path, max_rows_per_batch="0").run()
