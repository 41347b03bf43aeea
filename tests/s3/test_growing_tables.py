"""Tables of verdicts on object storage: committed by one request, and old parts of a log are not read again."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from rmqtx.readers.model.errors import FileChanged
from rmqtx.verdicts.follow.checkpoint_db import FollowDatabase
from rmqtx.verdicts.growing.grow import grow
from rmqtx.verdicts.growing.tables import TableName, opened_table
from tests.forge.stores import settings_of, unpacked
from tests.s3.conftest import Run
from tests.s3.server import S3Server
from tests.spark.growing import Growing
from tests.verdicts.growing.grown import GrownTable

NAME = "multipath-5.1.4"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_table_grows_in_a_bucket(kind: str, s3: S3Server, tmp_path: Path) -> None:
    if kind == "delta":
        pytest.importorskip("deltalake")
    growing = Growing(unpacked(NAME), tmp_path / "copy")
    s3._file_system().create_dir(f"verdicts-{kind}")
    table = TableName(kind, f"s3://verdicts-{kind}/orders/table")
    grown = GrownTable([growing.root], table, tmp_path / "checkpoint", settings_of(NAME))
    for moment in growing.moments(6, 2):
        growing.write_to(moment)
        s3.requests()
        grown.step()
        written = [line for line in s3.requests() if line.startswith(("PUT", "POST"))]
        grown.assert_current()
        if kind == "parquet":
            assert f"/verdicts-{kind}/orders/table/_rmqtx/manifest.json" in written[-1]  # the commit is the last
            assert sum("manifest.json" in line for line in written[:-3]) == 0


@pytest.mark.slow
def test_a_step_reads_only_what_is_new(s3: S3Server, rmqtx: Run, tmp_path: Path) -> None:
    growing = Growing(unpacked(NAME), tmp_path / "copy")
    name = f"growing/store-{tmp_path.name}"
    before = 0
    for moment in growing.moments(5, 2):
        growing.write_to(moment)
        uri = s3.upload(growing.root, name)
        s3.requests()
        done = rmqtx("table", uri, "--into", tmp_path / "table")
        assert done.status in (0, 3), done.err
        read = Counter[str]()
        for line in s3.requests():
            match = re.search(r"GET /(\S*/commitlog\S*/(\d{20})) bytes=(\d+)-(\d+)", line)
            if match and int(match[2]) + int(match[4]) < before - 2 * 65536:
                read[match[1]] += int(match[4]) - int(match[3]) + 1
        assert read.total() < 65536, read  # the record that proves that the log is the same
        before = moment


def test_a_manifest_of_another_run_is_not_replaced(s3: S3Server, tmp_path: Path) -> None:
    growing = Growing(unpacked(NAME), tmp_path / "copy")
    s3._file_system().create_dir("verdicts-twice")
    table = TableName("parquet", "s3://verdicts-twice/table")
    grown = GrownTable([growing.root], table, tmp_path / "checkpoint", settings_of(NAME))
    other = GrownTable([growing.root], table, tmp_path / "other", settings_of(NAME))
    growing.write_to(growing.end // 2)
    grown.step()
    growing.write_to(growing.end)
    with opened_table(table) as opened:  # as the other run begins
        assert opened.step_of(str(growing.root)) is not None
        grown.step()
        database = FollowDatabase(str(other.checkpoint), other.stores())
        with pytest.raises(FileChanged, match="was changed by another run while this one wrote"):
            grow(opened, database, other.stores(), other.settings)
        database.close()
    grown.assert_current()
    other.step()
    other.assert_current()
    assert grown.step().is_compared  # the other run has written this store
    grown.assert_current()
