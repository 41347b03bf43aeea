"""What is said of a store that is not whole: nothing that only the missing part could bear out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.store.store import OP_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from tests.cli.conftest import Run
from tests.forge.damage import log_files, zero_bytes
from tests.forge.stores import copy_of, settings_of
from tests.verdicts.truth import audited

Row = dict[str, Any]
CLEAN = "common-4.9.7"


def without_an_op(tmp_path: Path, number: int) -> tuple[Path, list[Row]]:
    """A store of which one op message is zeros, and its verdicts."""
    root = copy_of(CLEAN, tmp_path)
    ops = [row for row in scan_records(open_store(root)).table().to_pylist() if row["topic"] == OP_TOPIC]
    zero_bytes(Path(ops[number]["file"]), ops[number]["position_bytes"], ops[number]["length_bytes"])
    return root, audit([open_store(root)], settings_of(CLEAN)).table().to_pylist()


@pytest.mark.parametrize("number", [3, 20, -3])
def test_no_flag_rests_on_an_op_that_may_be_missing(number: int, tmp_path: Path) -> None:
    _, rows = without_an_op(tmp_path, number)
    truth = {row["transaction_id"]: set(row["flags"]) for row in audited(CLEAN)}
    for row in rows:
        assert set(row["flags"]) <= truth[row["transaction_id"]], row["transaction_id"]
        if row["state"] == "COMMITTED" and "commit_without_op" not in truth[row["transaction_id"]]:
            assert "no op message" not in row["reason"]


@pytest.mark.parametrize("eighth", range(7))
def test_no_flag_rests_on_records_that_may_be_missing(eighth: int, tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path)
    records = scan_records(open_store(root)).table().to_pylist()
    part = records[eighth * len(records) // 8 : (eighth + 1) * len(records) // 8]
    for record in part:
        zero_bytes(Path(record["file"]), record["position_bytes"], record["length_bytes"])
    truth = {row["transaction_id"]: row for row in audited(CLEAN)}
    resting = {"commit_without_op", "open_after_decision", "conflict", "commit_after_rollback", "commit_after_discard"}
    for row in audit([open_store(root)], settings_of(CLEAN)).table().to_pylist():
        if row["transaction_id"] in truth:
            more = set(row["flags"]) - set(truth[row["transaction_id"]]["flags"])
            assert not more & resting, f"{row['transaction_id']}: {row['state']} {more}: {row['reason']}"


def test_what_is_undecidable_is_not_nothing_to_do(rmqtx: Run, tmp_path: Path) -> None:
    root, rows = without_an_op(tmp_path, 20)
    (identity, *_) = [row["transaction_id"] for row in rows if row["state"] == "UNDECIDABLE"]
    shown = rmqtx("show", identity, "--store", root).out
    assert "nothing to do" not in shown
    assert "advice  none: first look for the evidence that the reason names" in shown
    assert "first look for the evidence that the reason names" in rmqtx("explain", "none").out


def with_a_counter(root: Path, counted: int) -> None:
    topics = [row["topic"] for row in audited(CLEAN) if row["topic"]]
    table = {topics[0]: {"count": counted, "timeStamp": 0}}
    words = {"transactionCount": table, "dataVersion": {"counter": 1, "timestamp": 0}}
    (root / "config" / "transactionMetrics").write_text(json.dumps(words))


def test_the_log_is_right_only_where_it_was_read(rmqtx: Run, tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path)
    with_a_counter(root, 999)
    assert "the counter is wrong" in rmqtx("audit", root, "--summary").err
    file = log_files(root)[0]
    zero_bytes(file, 0, file.stat().st_size)
    said = rmqtx("audit", root, "--summary").err
    assert "the counter is wrong" not in said
    assert "has 999 open" in said
    assert "nothing to do" not in said
