"""`rmqtx follow`: rows as they come, checkpoints that survive kills, and what it refuses."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.program import RMQTX
from tests.spark.growing import Growing


def rows_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


#: What changes with the clock, or with when a decision was first seen.
#: What happens next is not followed.
NOTHING_NEXT = {
    "discard_at_ms": None, "discard_at": None, "next_event": None, "next_event_at_ms": None, "next_event_at": None,
    "answer_effect": None,
}
NOT_FOLLOWED = {"reason": None, "reason_code": None, **NOTHING_NEXT}


def sorted_rows(text: str) -> list[str]:
    """The rows that a command printed, without their deadlines: what is followed has none."""
    return sorted(json.dumps(row | NOTHING_NEXT) for row in rows_of(text))


def test_until_idle_an_empty_checkpoint_gives_the_audit(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    whole = rmqtx("audit", common, "--format", "jsonl")
    followed = rmqtx("follow", common, "--until-idle", "--checkpoint", checkpoint, "--format", "jsonl")
    assert followed.status == whole.status == 0
    assert sorted_rows(followed.out) == sorted_rows(whole.out)
    again = rmqtx("follow", common, "--until-idle", "--checkpoint", checkpoint, "-v")
    assert (again.status, again.out) == (0, "")
    assert "0 B read; 1 judged: 0 new, 0 changed; 16 PENDING" in again.err
    assert "nothing new or changed" in again.err
    assert "109 transactions followed: 57 COMMITTED, 10 DISCARDED, 16 PENDING, 26 ROLLED_BACK" in again.err


def test_conditions_and_columns_apply_to_what_is_told(rmqtx: Run, common: Path) -> None:
    choice = ("--where", "state = PENDING", "--flagged", "--fields", "transaction_id,flags")
    followed = rmqtx("follow", common, "--until-idle", *choice)
    whole = rmqtx("audit", common, *choice)
    assert sorted(followed.out.splitlines()) == sorted(whole.out.splitlines())
    assert len(followed.out.splitlines()) > 1
    assert "without --checkpoint FILE the next start reads everything again" in followed.err


def test_a_condition_on_causes_lists_what_an_audit_lists(rmqtx: Run, common: Path) -> None:
    causes = {cause for row in rmqtx("audit", common, "--format", "jsonl").rows for cause in row["causes"]}
    assert causes
    for cause in causes:
        choice = ("--where", f"causes = '{cause}'", "--fields", "transaction_id,causes", "--format", "jsonl")
        followed, whole = rmqtx("follow", common, "--until-idle", *choice), rmqtx("audit", common, *choice)
        assert followed.status == whole.status == 0
        assert sorted_rows(followed.out) == sorted_rows(whole.out)
        assert whole.out


def test_fail_on_and_missing_evidence_decide_the_status(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    assert rmqtx("follow", common, "--until-idle", "--fail-on", "state = PENDING", "-q").status == 1
    growing = Growing(common, tmp_path / "copy")  # queues that point behind the end of the log
    growing.write_to((growing.begin + growing.end) // 8)
    result = rmqtx("follow", growing.root, "--until-idle")
    assert result.status == 3
    assert "UNDECIDABLE" in result.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["follow", "STORE", "--engine", "spark"], "No such option: --engine"),
        (["follow", "STORE", "--format", "parquet"], "rmqtx follow cannot write parquet, which needs an end"),
        (["follow", "STORE", "--format", "json"], "use table, jsonl, csv"),
        (["follow", "STORE", "-o", "verdicts.jsonl"], "No such option: -o - redirect the rows: >> FILE"),
        (["follow", "STORE", "--output=verdicts.jsonl"], "No such option: --output - redirect the rows: >> FILE"),
        (["follow", "STORE", "--interval", "10"], "'10' is not a duration"),
        (["follow", "STORE", "--temp-dir", "missing"], "--temp-dir 'missing' is not a directory"),
        (["audit", "STORE", "--follow"], "--follow - use rmqtx follow STORE"),
        (["audit", "STORE", "--until-idle"], "rmqtx follow STORE"),
        (["audit", "--interval", "1s", "STORE"], "rmqtx follow STORE"),
        (["audit", "STORE", "--checkpoint", "c"], "rmqtx follow STORE, or rmqtx table STORE --into TABLE"),
    ],
)
def test_what_cannot_be_followed_is_one_line(rmqtx: Run, common: Path, arguments: list[str], said: str) -> None:
    result = rmqtx(*(str(common) if word == "STORE" else word for word in arguments))
    assert (result.status, result.out) == (2, "")
    assert said in result.err
    assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("option", "text", "column"),
    [
        ("--where", "state = PENDING and not (next_event ~ ask or checks > 3)", "next_event"),
        ("--where", "next_event is null", "next_event"),
        ("--fail-on", "next_event = asked", "next_event"),
        ("--where", "answer_effect != deliver", "answer_effect"),
        ("--where", "next_event_at_ms > 1", "next_event_at_ms"),
        ("--where", "discard_at < 2030-01-01T00:00:00Z", "discard_at_ms"),
        ("--where", "discard_in_ms < 60000", "discard_at_ms"),
        ("--where", "discard_in < 60000", "discard_at_ms"),
        ("--fields", "id,answer_effect", "answer_effect"),
        ("--fields", "id,discard_in", "discard_at_ms"),
    ],
)
def test_columns_that_are_not_followed_are_refused(
    rmqtx: Run, common: Path, option: str, text: str, column: str
) -> None:
    result = rmqtx("follow", common, "--until-idle", option, text)
    assert (result.status, result.out) == (2, "")
    (line,) = result.err.splitlines()
    assert f"{option}: rmqtx follow leaves {column} empty" in line
    assert "run rmqtx audit, which fills this column" in line
    assert rmqtx("audit", common, option, text).status in (0, 1)


def test_every_column_that_follow_leaves_empty_is_refused(rmqtx: Run, common: Path) -> None:
    followed = rmqtx("follow", common, "--until-idle", "--format", "jsonl").rows
    whole = rmqtx("audit", common, "--format", "jsonl").rows
    filled = {name for row in whole for name, value in row.items() if value is not None}
    empty = filled - {name for row in followed for name, value in row.items() if value is not None}
    assert "next_event" in empty
    assert "causes" in filled - empty
    for name in empty:
        assert rmqtx("follow", common, "--until-idle", "--where", f"{name} is not null").status == 2


def test_no_checkpoint_is_written_into_a_store(rmqtx: Run, common: Path) -> None:
    result = rmqtx("follow", common, "--checkpoint", common / "commitlog" / "mine")
    assert result.status == 2
    assert "lies inside the store" in result.err
    assert not (common / "commitlog" / "mine").exists()


def test_a_log_that_is_another_one_ends_it(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    growing = Growing(common, tmp_path / "copy")
    growing.write_to(100_000)
    follow = ("follow", growing.root, "--until-idle", "--checkpoint", tmp_path / "checkpoint")
    rmqtx(*follow)
    growing.write_to(50_000)
    result = rmqtx(*follow)
    assert (result.status, result.out) == (10, "")
    assert "a recovery cut it, or it was replaced" in result.err
    assert f"remove {tmp_path / 'checkpoint'}" in result.err


def begin(growing: Growing, checkpoint: Path, output: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [
        *RMQTX, "follow", str(growing.root), "--checkpoint", str(checkpoint),
        "--interval", "20ms", "--format", "jsonl", "-q", *arguments,
    ]
    with output.open("ab") as stream:
        return subprocess.Popen(command, stdout=stream)


def wait_for_rows(output: Path, more_than: int) -> None:
    deadline = time.monotonic() + 120
    while len(output.read_bytes().splitlines()) <= more_than:
        assert time.monotonic() < deadline, "nothing was told"
        time.sleep(0.01)


def test_killed_again_and_again_it_tells_everything(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    growing = Growing(common, tmp_path / "copy")
    output, checkpoint, chance = tmp_path / "rows.jsonl", tmp_path / "checkpoint", random.Random(7)
    output.touch()
    moments = growing.moments(16, 7)
    for number in range(0, 16, 4):
        told = len(output.read_bytes().splitlines())
        process = begin(growing, checkpoint, output)
        growing.write_to(moments[number])
        wait_for_rows(output, told)
        for moment in moments[number + 1 : number + 4]:
            growing.write_to(moment)
            time.sleep(chance.random() / 10)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        rest = output.read_bytes()
        output.write_bytes(rest[: rest.rfind(b"\n") + 1])  # the row that was being written is told again
    assert begin(growing, checkpoint, output, "--until-idle").wait() == 0
    told_last = {row["transaction_id"]: row for row in rows_of(output.read_text())}
    wanted = rmqtx("audit", growing.root, "--format", "jsonl").rows
    assert len(wanted) == 109
    # A half message whose properties were not written yet was known by its place.
    early = told_last.keys() - {row["transaction_id"] for row in wanted}
    assert {told_last[name]["half_copies"][0]["commit_log_offset"] for name in early} <= {
        copy["commit_log_offset"] for row in wanted for copy in row["half_copies"]
    }
    for row in wanted:
        assert told_last[row["transaction_id"]] | NOT_FOLLOWED == row | NOT_FOLLOWED


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_and_leaves_nothing_behind(
    number: signal.Signals, common: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    growing = Growing(common, tmp_path / "copy")
    growing.write_to(growing.end)
    output, checkpoint = tmp_path / "rows.jsonl", tmp_path / "checkpoint"
    output.touch()
    process = begin(growing, checkpoint, output)
    wait_for_rows(output, 108)
    with closing(sqlite3.connect(f"file:{checkpoint}?mode=ro", uri=True)) as reader:  # others may read it meanwhile
        while not reader.execute("SELECT count(*) FROM verdicts").fetchone()[0]:
            time.sleep(0.01)
    process.send_signal(number)
    assert process.wait(timeout=300) == 130
    assert list(temporary.iterdir()) == []
    assert sorted(path.name for path in tmp_path.glob("checkpoint*")) == ["checkpoint"]
    rows = len(output.read_bytes().splitlines())
    assert begin(growing, checkpoint, output, "--until-idle").wait() == 0
    assert len(output.read_bytes().splitlines()) == rows == 109
