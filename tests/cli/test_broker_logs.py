"""`--broker-logs` of diagnose and show: lines in the timeline, causes, hostile text, statuses, errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker_logs import forge
from tests.cli.conftest import Run

MINUTE_MS = 60_000


@pytest.fixture
def discarded(rmqtx: Run, common: Path) -> dict[str, Any]:
    """A transaction that was discarded after its checks, and was never decided."""
    rows = json.loads(rmqtx("audit", common, "--where", "state = DISCARDED", "--format", "json").out)
    found: dict[str, Any] = next(
        row for row in rows
        if not row["op_marks"] and not row["final_records"] and row["half_copies"][-1]["checks_count"]
    )
    return found


def logs_of(row: dict[str, Any], folder: Path, *, group: str | None = None) -> Path:
    copies = [copy for copy in row["half_copies"] if copy["checks_count"]]
    lines = [forge.no_producer(copy["store_time_ms"], group or row["producer_group"]) for copy in copies]
    begin, end = copies[0]["store_time_ms"] - MINUTE_MS, copies[-1]["store_time_ms"] + MINUTE_MS
    return forge.written(folder, [forge.round_begins(begin), *lines, forge.round_begins(end)])


def causes(rmqtx: Run, *arguments: object) -> dict[tuple[str, str], int]:
    rows = json.loads(rmqtx("diagnose", *arguments, "--format", "json").out)
    return {(row["cause"], row["strength"]): row["transactions_count"] for row in rows}


def test_the_logs_decide_a_cause(rmqtx: Run, common: Path, discarded: dict[str, Any], tmp_path: Path) -> None:
    logs, word = logs_of(discarded, tmp_path), "producer-not-connected"
    of_one = (common, "--broker-version", "5.3.3", "--transaction", discarded["transaction_id"])
    assert (word, "could_explain") in causes(rmqtx, *of_one)
    assert causes(rmqtx, *of_one, "--broker-logs", logs)[word, "explains"] == 1
    result = rmqtx("diagnose", *of_one, "--broker-logs", logs)
    assert result.status == 0
    assert "the broker logs show their zone: +08:00" in result.err
    assert f"--broker-logs {logs}" in result.err.partition("next: rmqtx show")[2]


def test_the_logs_decide_the_column(rmqtx: Run, common: Path, discarded: dict[str, Any], tmp_path: Path) -> None:
    arguments = ("audit", common, "--broker-version", "5.3.3", "--format", "json")
    logs = logs_of(discarded, tmp_path)
    for more, expected in (((), "producer-not-connected?"), (("--broker-logs", logs), "producer-not-connected")):
        rows = json.loads(rmqtx(*arguments, "--where", f"id = {discarded['transaction_id']}", *more).out)
        assert expected in rows[0]["causes"]
    with_logs = json.loads(rmqtx(*arguments, "--broker-logs", logs).out)
    without = json.loads(rmqtx(*arguments).out)
    for row in (*with_logs, *without):
        row["causes"] = [one for one in row["causes"] if not one.startswith("producer-")]
    assert with_logs == without
    only = rmqtx(*arguments, "--broker-logs", logs, "--fields", "state,causes", "--format", "csv").out.splitlines()
    assert only[0] == "state,causes"
    assert sum(line.startswith("DISCARDED,") and "producer-not-connected" in line for line in only) >= 1


def test_the_timeline_has_the_lines(rmqtx: Run, common: Path, discarded: dict[str, Any], tmp_path: Path) -> None:
    logs = logs_of(discarded, tmp_path)
    result = rmqtx("show", discarded["transaction_id"], common, "--broker-logs", logs, "--format", "json")
    (row,) = json.loads(result.out)
    lines = [event for event in row["timeline"] if event["event"] == "broker log"]
    asked = [copy for copy in discarded["half_copies"] if copy["checks_count"]]
    assert [event["log_line"] for event in lines] == list(range(2, len(asked) + 2))
    assert {event["log_file"] for event in lines} == {str(logs / "transaction.log")}
    assert lines[0]["log_text"] == f"Check transaction failed, channel is null. groupId={discarded['producer_group']}"
    assert [event["time_ms"] for event in lines] == [copy["store_time_ms"] // 1000 * 1000 for copy in asked]
    page = rmqtx("show", discarded["transaction_id"], common, "--broker-logs", logs, "--no-pager").out
    meaning = "no producer of the group was connected: no process was asked (transaction.log line"
    assert page.count(meaning) == len(asked)
    assert "explains producer-not-connected" in page


def test_without_logs_the_timeline_has_no_column_for_them(rmqtx: Run, common: Path, discarded: dict[str, Any]) -> None:
    (row,) = json.loads(rmqtx("show", discarded["transaction_id"], common, "--format", "json").out)
    assert not [name for event in row["timeline"] for name in event if name.startswith("log_")]


def test_text_of_a_log_runs_no_control_sequence(
    rmqtx: Run, common: Path, discarded: dict[str, Any], tmp_path: Path
) -> None:
    offset = discarded["half_copies"][0]["commit_log_offset"]
    hostile = f"MsgExt:MessageExt [queueOffset=1, commitLogOffset={offset}, \x1b[2J\x07\u202eevil\u2028]"
    logs = forge.written(tmp_path, [forge.line(discarded["half_store_time_ms"], hostile)])
    arguments = ("show", discarded["transaction_id"], common, "--broker-logs", logs)
    for more in (("--no-pager", "--wide"), ("--format", "json"), ("--format", "csv")):
        result = rmqtx(*arguments, *more)
        assert not {"\x1b", "\x07", "\u202e", "\u2028"} & set(result.out + result.err)
        assert "discarded it after its last check" in result.out


def test_a_log_that_cannot_be_read_is_3_if_it_would_decide(
    rmqtx: Run, common: Path, discarded: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "transaction.1.log.gz").write_bytes(b"no archive")
    of_one = ("diagnose", common, "--broker-version", "5.3.3", "--transaction", discarded["transaction_id"])
    result = rmqtx(*of_one, "--broker-logs", tmp_path)
    assert result.status == 3
    assert "warning: " in result.err
    logs_of(discarded, tmp_path)
    result = rmqtx(*of_one, "--broker-logs", tmp_path)
    assert result.status == 0
    assert "transaction.1.log.gz: read up to line 0" in result.err


def test_each_store_has_its_logs(
    rmqtx: Run, common: Path, discarded: dict[str, Any], corpus_store: Callable[[str], Path], tmp_path: Path
) -> None:
    other = corpus_store("common-5.1.4")
    mine, empty = logs_of(discarded, tmp_path / "mine"), logs_of(discarded, tmp_path / "other", group="nobody")
    arguments = ("diagnose", common, other, "--broker-version", "5.3.3", "--format", "json")
    found = json.loads(rmqtx(*arguments, "--broker-logs", mine, "--broker-logs", empty).out)
    rows = [row for row in found if row["cause"] == "producer-not-connected"]
    proven = [row["store"] for row in rows if row["strength"] == "explains"]
    assert proven == [str(common)]
    result = rmqtx(*arguments, "--broker-logs", mine)
    assert result.status == 2
    assert "give --broker-logs once for each" in result.err


def test_errors_show_what_to_type(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    for more, text in (
        (("--broker-logs", tmp_path), "--broker-logs ~/logs/rocketmqlogs"),
        (("--broker-logs", tmp_path / "no"), "no such directory"),
        (("--log-zone", "UTC"), "--log-zone needs --broker-logs"),
        (("--broker-logs", tmp_path, "--log-zone", "Mars"), "write it like Asia/Shanghai, +08:00 or UTC"),
    ):
        result = rmqtx("diagnose", common, *more)
        assert result.status == 2
        assert text in result.err
