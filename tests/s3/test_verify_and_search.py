"""Verify and search read a store where it lies: the rows are those on disk."""

from __future__ import annotations

from typing import Any

import pytest

from rmqtx.readers.jobs.job_runner import ScanJob, run_job
from rmqtx.readers.jobs.search import Search, SearchConditions
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.verify.verify import FULL, Verify
from tests.s3.conftest import Copied
from tests.s3.server import S3Server

JOBS: tuple[ScanJob, ...] = (
    Verify(FULL),
    Search(SearchConditions(topic="orders", body=b'"sku":"A'), ("file", "commit_log_offset", "keys", "body")),
)


def rows(job: ScanJob, root: str) -> list[str]:
    found: list[dict[str, Any]] = run_job(job, plan_splits([open_store(root)], split_bytes=65_536)).table().to_pylist()
    return [str(row).replace(root, "ROOT") for row in found]


@pytest.mark.parametrize("job", JOBS, ids=["verify", "search"])
@pytest.mark.parametrize("name", ["killed-4.4.0", "batchcq-5.3.3", "cqext-5.3.3"])
def test_rows_are_those_on_disk(s3: S3Server, copied: Copied, job: ScanJob, name: str) -> None:
    path, uri = copied(name)
    assert rows(job, uri) == rows(job, str(path))
