"""Closed pipes, devices and terminals."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import WARM
from tests.cli.terminal import on_terminal
from tests.representatives import rest_is_slow


@pytest.mark.parametrize(
    "arguments",
    [["decode", "commitlog", "STORE"], ["audit", "STORE", "--format", "jsonl"], ["audit", "STORE"], ["--help"]],
)
def test_a_closed_pipe_is_silent_success(common: Path, arguments: list[str]) -> None:
    words = [str(common) if word == "STORE" else word for word in arguments]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*WARM, *words, *([] if words == ["--help"] else ["--quiet"])], stdout=writer,
                          stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_stderr_is_no_reason_to_stop(common: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*WARM, "pending", str(common)], stdout=subprocess.PIPE, stderr=writer, check=False)
    os.close(writer)
    assert done.returncode == 0
    assert done.stdout


def test_a_full_disk_is_10(common: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*WARM, "audit", str(common), "--quiet"], stdout=full, stderr=subprocess.PIPE, text=True,
                              check=False)
    assert done.returncode == 10
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def shown(arguments: list[str], columns: int) -> list[str]:
    """The lines that a command shows on a terminal of this width."""
    words = [*WARM, *arguments]
    return on_terminal(words, with_stderr=False, COLUMNS=str(columns), TERM="xterm", NO_COLOR="1")[1].splitlines()


@pytest.mark.parametrize("columns", rest_is_slow([80, 40, 60, 120, 160, 200], quick=2))
@pytest.mark.parametrize("row", [1, -1])
def test_the_page_of_one_transaction_fits_the_terminal(common: Path, row: int, columns: int) -> None:
    from rmqtx_cli.words.text import width

    transaction = shown(["pending", str(common), "--fields", "id"], 200)[row]
    lines = shown(["show", transaction, "--store", str(common), "--no-pager"], columns)
    assert max(width(line) for line in lines) <= columns
    assert any(" event " in f" {line} " for line in lines), "the heads of the timeline are whole words"


@pytest.mark.parametrize("columns", rest_is_slow([80, 120, 160, 200], quick=1))
@pytest.mark.parametrize(
    "verb", [["pending"], ["audit"], ["audit", "--summary"], ["decode", "half"], ["decode", "cursors"]]
)
def test_tables_fit_the_terminal(common: Path, verb: list[str], columns: int) -> None:
    from rmqtx_cli.words.text import width

    lines = shown([*verb, str(common)], columns)
    assert len(lines) > 3
    assert max(width(line) for line in lines) <= columns


def test_binary_rows_are_refused_on_a_terminal(common: Path) -> None:
    assert shown(["pending", str(common), "--format", "parquet"], 80) == []


def test_completion_offers_commands(tmp_path: Path) -> None:
    environment = os.environ | {
        "_RMQTX_COMPLETE": "complete_bash", "COMP_WORDS": "rmqtx pen", "COMP_CWORD": "1", "HOME": str(tmp_path),
    }
    done = subprocess.run([*WARM], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["pending"]
    assert done.returncode == 0


@pytest.mark.parametrize(
    "words", [("watch", "--interval", "1s"), ("follow", "--interval", "1s", "-q", "--format", "jsonl")]
)
def test_a_command_that_waits_for_changes_ends_without_a_reader(common: Path, words: tuple[str, ...]) -> None:
    """As `tail -f FILE | head` does with the next line: here no line comes, because nothing changes."""
    arguments = [*WARM, words[0], str(common), *words[1:]]
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(arguments, stdout=pipe, stdin=nothing, stderr=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(300) == 0
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()
