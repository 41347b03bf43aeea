"""Stores with transactions in RocksDB at the command line: what is not known is said to be so, and nothing else."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from rmqtx_cli.options.engine import EngineOptions
from rmqtx_cli.sources.spark_engine import SparkEngine
from tests.cli.conftest import Run
from tests.forge.stores import copy_of, unpacked

needs_rocksdict = pytest.mark.skipif(
    importlib.util.find_spec("rocksdict") is None, reason="rocksdict is not here (pip install rocksdict)"
)


@pytest.fixture
def without_table(tmp_path: Path) -> Path:
    root = copy_of("rocksdb-5.5.0", tmp_path)
    shutil.rmtree(root / "rocksdbstore")
    return root


def test_pending_counts_apart_what_only_the_table_would_tell(rmqtx: Run, tmp_path: Path) -> None:
    root = copy_of("rocksdb-both-5.5.0", tmp_path)
    shutil.rmtree(root / "rocksdbstore")
    op_topic = b"RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
    (log,) = (root / "commitlog").iterdir()
    log.write_bytes(log.read_bytes().replace(op_topic, op_topic.replace(b"OP", b"NO")))  # decided, and not ended
    told = rmqtx("pending", root).err
    assert "the RocksDB table, which was not read, decides whether the broker checks them again" in told
    assert "will be checked again" not in told


@needs_rocksdict
def test_pending_says_nothing_of_what_is_ended(rmqtx: Run) -> None:
    assert "checked again" not in rmqtx("pending", unpacked("rocksdb-5.5.0")).err


def test_a_database_that_is_gone_is_named_in_a_line(rmqtx: Run, without_table: Path) -> None:
    for command in ("pending", "audit", "verify"):
        result = rmqtx(command, without_table)
        lines = [line for line in f"{result.out}{result.err}".splitlines() if f"{without_table}/rocksdbstore" in line]
        assert len(lines) == 1, command
        assert "database-unread" in lines[0]


def test_the_summary_counts_records_in_the_queues_of_both_designs_and_none_where_queues_are_no_files(
    rmqtx: Run,
) -> None:
    said = rmqtx("audit", unpacked("rocksdb-both-5.5.0"), "--summary").err
    assert "in the queues of the check" in said
    assert "70 half records of" in said  # 58 of the half topic
    assert "in the queues of the check" not in rmqtx("audit", unpacked("rocksdb-queues-5.5.0"), "--summary").err


def test_stores_does_not_say_that_nothing_was_discarded(rmqtx: Run) -> None:
    page = rmqtx("stores", unpacked("rocksdb-killed-5.5.0")).out
    assert "discarded   0 copies; what RocksDB drops has no copy" in page
    assert "the RocksDB table is as old as its last flush" in page
    assert "as old as its last flush" not in rmqtx("stores", unpacked("rocksdb-5.5.0")).out


def test_ops_in_rocksdb_are_listed_with_what_they_end(rmqtx: Run) -> None:
    lines = rmqtx("decode", "op", unpacked("rocksdb-5.5.0"), "--where", "half_commit_log_offset = 524").out
    assert lines.splitlines()[1].split()[-2:] == ["offset", "524"]


def test_what_spark_was_still_giving_ends_before_its_session() -> None:
    ended = []

    def given() -> Iterator[pa.RecordBatch]:
        try:
            yield pa.record_batch({"a": [1]})
            yield pa.record_batch({"a": [2]})
        finally:
            ended.append("cleared up")

    engine = SparkEngine(EngineOptions(), None)  # type: ignore[arg-type]  # it asks no session for anything here
    assert next(engine.watched(given()))["a"].to_pylist() == [1]
    engine.close()
    assert ended == ["cleared up"]


@needs_rocksdict
@pytest.mark.parametrize("hurt", [
    Path.unlink, lambda file: (file.unlink(), file.mkdir()), lambda file: (file.unlink(), file.symlink_to(file.name)),
])
def test_a_database_that_cannot_be_opened_has_a_next_step(
    rmqtx: Run, tmp_path: Path, hurt: Callable[[Path], object]
) -> None:
    root = copy_of("rocksdb-5.5.0", tmp_path)
    hurt(root / "rocksdbstore" / "CURRENT")
    result = rmqtx("decode", "rocksdb", root)
    assert result.status == 10
    assert " - " in result.err.splitlines()[-1]
