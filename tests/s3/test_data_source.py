"""The data source over object storage: the same rows, and no object is read where a query is planned."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from rmqtx.readers.store.store import open_store
from tests.s3.conftest import Copied
from tests.s3.server import S3Server
from tests.spark.frames import locally, reader_of, through_the_source

_NAME = "killed-5.3.3"
_TABLES = ["records", "halves", "ops", "queue_slots", "index_entries", "cursors", "transactions"]


@pytest.mark.parametrize("table", _TABLES)
def test_tables_are_those_on_disk(s3: S3Server, copied: Copied, table: str) -> None:
    local, uri = copied(_NAME)
    found, tasks = through_the_source(table=table, path=uri, split_size="64KiB")
    wanted = [str(row).replace(str(local), uri) for row in locally(table, str(local)).to_pylist()]
    assert sorted(map(str, found.to_pylist())) == sorted(wanted)
    assert tasks >= 1


def test_patterns_name_stores_there(s3: S3Server, copied: Copied) -> None:
    local, _ = copied(_NAME)
    uri = s3.upload(local, "patterned/one/store")
    found, _ = through_the_source(table="cursors", path=uri.replace("/one/", "/o*/"))
    assert found.num_rows == locally("cursors", str(local)).num_rows > 0


def test_planning_reads_no_object(s3: S3Server, copied: Copied) -> None:
    uri = s3.upload(copied(_NAME)[0], "planned/store")  # a place that this process has read nothing of
    reader, _, _ = reader_of(table="records", path=uri, split_size="16KiB")
    s3.requests()
    partitions = reader.partitions()
    assert len(partitions) >= sum(segment.size_bytes for segment in open_store(uri).commit_log) / (16 << 10)
    assert _log_reads(s3) == []
    list(reader.read(partitions[0]))
    assert _log_reads(s3)


def _log_reads(s3: S3Server) -> list[str]:
    return [request for request in s3.requests() if request.startswith("GET") and "/commitlog/0" in request]
