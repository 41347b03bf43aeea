"""What is lost while a job runs, an executor or a file: the answer is right or says what is missing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqtx.readers.log.splits import WorkDivision
from rmqtx.readers.store.store import open_store
from rmqtx.spark_tasks.jobs.audit import audit
from rmqtx.verdicts.audit import local_audit
from tests.forge.stores import WITH_SEVERAL_SEGMENTS, copy_of, opened, settings_of
from tests.spark.test_audit import answers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def without_root(found: dict[str, list[str]], root: Path | str) -> dict[str, list[str]]:
    """The same with the store's place left out, and the deadlines, which depend on when a store is read."""
    return {
        name: [re.sub(r'"(discard|next_event)_at_ms": \w+', "", line.replace(str(root), "STORE")) for line in lines]
        for name, lines in found.items()
    }


@pytest.mark.slow
@pytest.mark.usefixtures("at_the_real_moment")
def test_a_killed_executor() -> None:
    """Two executors, results through the driver; what the lost one had is read again by the other."""
    name = "common-5.3.3"
    program = subprocess.run(
        [sys.executable, "-m", "tests.spark.lost_executor", name],
        capture_output=True, text=True, check=False, timeout=600, cwd=Path(__file__).parents[2],
    )
    assert program.returncode == 0, program.stderr[-2000:]
    found = json.loads(program.stdout)
    assert found.pop("killed") == 1
    root = json.loads(found["coverage"][0])["store"]
    store = opened(name)
    wanted = answers(local_audit.audit([store], settings_of(name)))
    assert without_root(found, root) == without_root(wanted, store.root)


def test_a_segment_that_is_removed_after_the_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    name = WITH_SEVERAL_SEGMENTS[0]
    root = copy_of(name, tmp_path)
    before = answers(local_audit.audit([open_store(root)], settings_of(name)))
    store = open_store(root)
    removed = store.commit_log[1].file
    Path(removed).unlink()
    found = answers(audit(spark, [store], settings_of(name), work=WorkDivision(16 << 10)))
    assert found == answers(local_audit.audit([store], settings_of(name)))
    assert any("unreadable-file" in line and removed in line for line in found["findings"])
    undecidable = [row for row in found["rows"] if '"state": "UNDECIDABLE"' in row]
    assert undecidable
    assert not [row for row in before["rows"] if '"state": "UNDECIDABLE"' in row]
