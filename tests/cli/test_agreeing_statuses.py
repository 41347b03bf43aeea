"""Status 0 is a promise: what one command knows about a store, no other one leaves out. Each case differed once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.forge.damage import drop, log_files
from tests.forge.stores import copy_of

PENDING = ("pending", "--all-open", "--format", "jsonl", "--broker-version")


@pytest.mark.parametrize(
    ("name", "files", "status"), [("multipath-5.3.3", 3, 0), ("multipath-4.9.7", 3, 3), ("killed-5.3.3", 3, 3)]
)
def test_pending_with_and_without_scan_where_old_log_files_have_expired(
    rmqtx: Run, tmp_path: Path, name: str, files: int, status: int
) -> None:
    """What the check has passed is not pending, whatever has left the log: a scan counted it. What the check reads
    again and nobody can decide was listed by both ways, and only a scan ended with 3.
    """
    root = copy_of(name, tmp_path)
    for file in log_files(root)[:files]:
        drop(file)
    version = name.rpartition("-")[2]
    fast, scanned = (rmqtx(*PENDING, version, root, *more) for more in ((), ("--scan",)))
    assert (fast.status, scanned.status, fast.out) == (status, status, scanned.out)
    for one in (fast, scanned):
        assert ("error: undecidable" in one.err) == (status == 3)
    assert rmqtx("audit", root, "--broker-version", version).status == 3
