"""A block is gone and all that follows moved up: no verdict may take the rest of the log for never written."""

from __future__ import annotations

from pathlib import Path

from rmqtx.readers.jobs.job_runner import run_job
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.verify.verify import Verify
from tests.forge.comparing import cited
from tests.forge.damage import log_files, records_in
from tests.forge.stores import copy_of, settings_of

NAME = "common-4.3.0"


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_what_moved_up_is_missing_and_counted(tmp_path: Path) -> None:
    root = copy_of(NAME, tmp_path)
    file = log_files(root)[0]
    data = file.read_bytes()
    place = records_in(file)[10][0]
    before = {row["transaction_id"]: row for row in audit([open_store(root)], settings_of(NAME)).table().to_pylist()}
    file.write_bytes((data[:place] + data[place + 37 :]).ljust(len(data), b"\0"))
    after = audit([open_store(root)], settings_of(NAME)).table().to_pylist()
    assert after
    for row in after:
        assert row["state"] in ("UNDECIDABLE", before[row["transaction_id"]]["state"]), row["reason"]
    assert any(max(cited(before[row["transaction_id"]])) >= place and row["state"] == "UNDECIDABLE" for row in after)
    rows = run_job(Verify(), plan_splits([open_store(root)])).table().to_pylist()
    assert any("op messages and" in row["meaning"] and "UNDECIDABLE" in row["meaning"] for row in rows)


def test_verifying_leaves_no_descriptor_open(tmp_path: Path) -> None:
    root = copy_of(NAME, tmp_path)
    run_job(Verify(), plan_splits([open_store(root)]), processes=1).table()
    before = open_descriptors()
    run_job(Verify(), plan_splits([open_store(root)]), processes=1).table()
    assert open_descriptors() <= before
