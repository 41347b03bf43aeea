"""Verifications of stores, and what tests ask of what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rmqtx.readers.jobs.job_runner import run_job
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.model.findings import KINDS
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.verify.verify import DEFAULT, FULL, QUICK, Verify

Row = dict[str, Any]
CLEAN = "common-4.9.7"
"""Stopped cleanly, one log file."""
SEGMENTS = "multipath-4.9.7"
"""Stopped cleanly, several log files in two directories."""
LEVELS = (QUICK, DEFAULT, FULL)


def verified(root: Path, level: str = DEFAULT, split_bytes: int = 1 << 27) -> Reading:
    """What is said of a store."""
    return run_job(Verify(level), plan_splits([open_store(root)], split_bytes=split_bytes))


def findings(root: Path, level: str = DEFAULT, split_bytes: int = 1 << 27) -> list[Row]:
    """The rows, but for what comes of them: at a start (test_recovery.py), and in the check (test_check_stops.py)."""
    rows = every_finding(root, level, split_bytes)
    return [row for row in rows if not row["code"].startswith("start-") and row["code"] != "check-stopped"]


def every_finding(root: Path, level: str = DEFAULT, split_bytes: int = 1 << 27) -> list[Row]:
    """The rows; every one is of a kind that is registered, and every byte is accounted for."""
    reading = verified(root, level, split_bytes)
    rows: list[Row] = reading.table().to_pylist()
    assert {row["code"] for row in rows} <= KINDS.keys()
    assert [part.unread_bytes for part in reading.coverage] == [0] * len(reading.coverage)
    return rows


def worse_than_notes(rows: list[Row]) -> list[Row]:
    """Errors and warnings."""
    return [row for row in rows if row["severity"] != "note"]


def the_one(rows: list[Row]) -> Row:
    """The one finding there is."""
    assert len(rows) == 1, [(row["code"], row["expected"], row["actual"]) for row in rows]
    return rows[0]
