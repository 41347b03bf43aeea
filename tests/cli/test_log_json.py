"""`--log-json`: every line on stderr is an object with the documented fields, and `exit` is the last."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.model import exit_status
from rmqtx_cli.commands.by_name import GROUPS, in_group
from rmqtx_cli.main import ended, status_of
from rmqtx_cli.words import log_json
from rmqtx_cli.words.command_names import LINES
from tests.cli.program import WARM
from tests.forge.stores import copy_of, unpacked

DEAD = ("--broker", "127.0.0.1:1")
ID = "FD0000000000000000000000000000021A584E0E2F2A6837E18C0031"
_ACT = (ID, *DEAD, "--yes", "--reason", "a test")
#: A command line of each command; S is a store, T a directory of the test.
LINES_OF: dict[str, tuple[str, ...]] = {
    "pending": ("S",), "show": (ID, "--store", "S"), "audit": ("S", "--summary"), "diagnose": ("S",),
    "report": ("S", "-o", "T/report.html"), "producers": DEAD, "stores": ("S",), "search": ("S", "--key", "x"),
    "simulate": ("S",), "explain": ("PENDING",), "verify": ("S",), "salvage": ("S", "--to", "T/salvaged"),
    "rebuild": ("S", "--to", "T/rebuilt"), "undo": ("T/none.undo",), "commit": _ACT, "rollback": _ACT,
    "discard": _ACT, "resume": _ACT, "close": _ACT, "redeliver": _ACT,
    "plan": ("rollback", ID, "--store", "S", "--reason", "a test", "-o", "T/plan.json"),
    "triage": ("S", "-o", "T/plan.json"), "apply": ("T/none.json", *DEAD), "answer": ("--group", "shop", *DEAD),
    "hold": (*DEAD, "--for", "1h"), "drain": DEAD, "release": DEAD, "holds": DEAD, "receipts": (),
    "check": ("S",), "watch": ("T/none", "--plain"), "follow": ("S", "--until-idle"),
    "exporter": ("T/none", "--interval", "1ms"), "probe": DEAD,
    "export": ("halves", "S", "--to", "T/exported"), "table": ("S", "--into", "T/table"), "diff": ("S", "S"),
    "reconcile": ("S", "--ledger", "T/none.csv"), "bundle": (ID, "--store", "S", "-o", "T/bundle"),
    "prove": ("T/none.json", "--store", "S"), "sql": ("SELECT 1", "S"),
    "mcp": ("T/none",), "schema": ("epochs",), "doctor": ("--frob",), "spark-archive": ("--frob",),
    **{f"{group} {one.NAME}": ("S",) for group in GROUPS for one in in_group(group)},
}


def objects(text: str) -> list[dict[str, Any]]:
    """The objects of a log: only objects, of known types and exactly their fields."""
    found = [json.loads(line) for line in text.splitlines()]
    for one in found:
        assert list(one) == ["v", "type", "time", *log_json.FIELDS[one["type"]]]
        assert one["v"] == log_json.VERSION
    assert [one["type"] for one in found].index("exit") == len(found) - 1
    assert found[0]["type"] == "start"
    return found


def test_the_table_has_every_command() -> None:
    commands = {*LINES, *(f"{name} {one.NAME}" for name in GROUPS for one in in_group(name))} - {*GROUPS}
    assert {*LINES_OF} == commands


@pytest.fixture
def err(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.CaptureFixture[str]]:
    """stderr as a process has it: with a descriptor."""
    with os.fdopen(os.dup(2), "w", buffering=1) as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        yield capfd
        monkeypatch.undo()


@pytest.fixture(scope="module")
def store() -> Path:
    return unpacked("common-5.3.3")


@pytest.mark.parametrize("command", LINES_OF)
def test_every_line_is_an_object(
    command: str, store: Path, tmp_path: Path, err: pytest.CaptureFixture[str]
) -> None:
    places = {"S": str(store), "T": str(tmp_path)}
    words = [places.get(word, word.replace("T/", f"{tmp_path}/")) for word in LINES_OF[command]]
    arguments = [*command.split(), *words, "--log-json"]
    err.readouterr()
    status = ended(arguments, lambda: status_of(arguments))
    sys.stdout.flush()
    found = objects(err.readouterr().err)
    is_check = command in ("check", "probe")
    word, meaning = exit_status.worded(status, is_check=is_check)
    assert {name: found[-1][name] for name in ("status", "word", "meaning")} == {
        "status": status, "word": word, "meaning": meaning
    }
    assert status != exit_status.BUG, found
    failed = status not in (exit_status.DONE, exit_status.FINDINGS, exit_status.INCOMPLETE)
    if failed and not is_check:
        assert [one for one in found if one["type"] == "error"]
    assert not [one for one in found if one["type"] == "output"], "text that no function of `say` printed"


def rmqtx(*arguments: object, **named: Any) -> subprocess.CompletedProcess[str]:
    words = [*WARM, *map(str, arguments), "--log-json"]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=100, **named)


def test_a_log_has_progress_findings_and_the_next_command(tmp_path: Path) -> None:
    store = copy_of("common-5.3.3", tmp_path)
    segment = next((store / "commitlog").iterdir())
    data = bytearray(segment.read_bytes())
    data[5000:5400] = b"\xff" * 400
    segment.write_bytes(data)
    done = rmqtx("audit", store)
    found = objects(done.stderr)
    progress = [one for one in found if one["type"] == "progress" and one["phase"] == "auditing"]
    assert progress[-1]["done_bytes"] == progress[-1]["total_bytes"] == len(data)
    assert progress[-1]["left_seconds"] == 0
    rows = [one["rows"] for one in found if one["type"] == "progress" and one["rows"] is not None]
    assert rows[-1] == len(done.stdout.splitlines()) - 1
    finding = next(one for one in found if one["type"] == "finding")
    assert (finding["severity"], finding["file"]) == ("error", str(segment))
    assert (done.returncode, found[-1]["status"], found[-1]["word"]) == (3, 3, "incomplete")
    (following, *_) = [one["arguments"] for one in found if one["type"] == "next" and one["arguments"]]
    again = rmqtx(*following[1:])
    assert objects(again.stderr)[-1]["word"] in ("done", "incomplete")


def test_a_wrong_command_line_and_a_missing_store_are_objects(tmp_path: Path) -> None:
    for arguments, word in (
        (("frob",), "usage"), (("pending", "--frob"), "usage"), (("pending", tmp_path / "none"), "unreadable"),
        ((), "usage"),
    ):
        found = objects(rmqtx(*arguments).stderr)
        assert [one["type"] for one in found] == ["start", "error", "exit"]
        assert found[-1]["word"] == word
    assert objects(rmqtx("pending", "--help").stderr)[-1]["word"] == "done"


def test_a_closed_pipe_an_interrupt_and_a_closed_stderr(store: Path) -> None:
    words = [sys.executable, "-m", "rmqtx_cli.main"]
    with subprocess.Popen(
        [*words, "decode", "commitlog", str(store), "--log-json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        found = objects(process.stderr.read().decode())
    assert (process.returncode, found[-1]["word"]) == (0, "done")
    for number in (signal.SIGINT, signal.SIGTERM):
        with subprocess.Popen(
            [*words, "watch", str(store), "--plain", "--log-json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline()
            process.send_signal(number)
            found = objects(process.stderr.read().decode())
        assert process.returncode == found[-1]["status"]
    silent = subprocess.run([*words, "pending", str(store), "--log-json"], stderr=None, stdout=subprocess.PIPE,
                            preexec_fn=lambda: os.close(2), check=False)
    assert silent.returncode == 0


def test_what_a_library_prints_is_an_object(err: pytest.CaptureFixture[str]) -> None:
    def run() -> int:
        sys.stderr.write("one\ntwo \x1b[31m")
        sys.stderr.flush()
        print("three", file=sys.stderr)
        return 0

    assert ended(["pending", "--log-json"], run) == 0
    assert [one["text"] for one in objects(err.readouterr().err)[1:-1]] == ["one", "two \x1b[31m", "three"]


def test_an_interrupt_is_the_last_object(err: pytest.CaptureFixture[str]) -> None:
    def run() -> int:
        raise KeyboardInterrupt

    assert ended(["audit", "--log-json"], run) == exit_status.INTERRUPTED
    assert objects(err.readouterr().err)[-1]["word"] == "interrupted"


def test_the_page_describes_every_object() -> None:
    page = (Path(__file__).parents[2] / "docs" / "log_json.md").read_text("utf-8")
    for kind, names in log_json.FIELDS.items():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{kind}` |")]
        assert [name for name in names if f"`{name}`" not in row] == []
    assert f"version {log_json.VERSION}" in page
