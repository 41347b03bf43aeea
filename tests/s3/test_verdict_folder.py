"""A folder of verdicts on object storage: whole, or not there."""

from __future__ import annotations

import json

import pyarrow.dataset as ds
import pytest
from pyarrow import fs

from tests.s3.conftest import Copied, Run
from tests.s3.server import S3Server


@pytest.mark.slow
def test_an_audit_is_written_beside_the_stores(s3: S3Server, copied: Copied, rmqtx: Run) -> None:
    _, uri = copied("common-5.3.3")
    place = f"{uri.rpartition('/')[0]}/verdicts/"
    done = rmqtx("audit", uri, "-o", place, "--partition-by", "day,state")
    assert done.status == 0, done.err
    system, top = fs.FileSystem.from_uri(place.rstrip("/"))
    found = {info.path.removeprefix(f"{top}/") for info in system.get_file_info(fs.FileSelector(top, recursive=True))
             if info.is_file}
    parts = {name for name in found if name.startswith("transactions/day=")}
    assert found - parts == {"_SUCCESS", "coverage.parquet", "findings.parquet", "provenance.json"}
    rows = ds.dataset(f"{top}/transactions", filesystem=system, partitioning="hive", format="parquet").to_table()
    with system.open_input_stream(f"{top}/_SUCCESS") as stream:
        success = json.loads(stream.read())
    assert success["rows_count"] == rows.num_rows > 0
    assert success["files_count"] == len(parts)
    refused = rmqtx("audit", uri, "-o", place)
    assert refused.status == 2
    assert "is not empty" in refused.err
