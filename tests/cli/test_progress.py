"""The bar of long work: what it names, and that it is gone before results come. On a terminal, as bytes."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from rmqtx_cli.words import progress
from rmqtx_cli.words.say import Voice
from tests.cli.program import WARM
from tests.cli.terminal import on_terminal

_ERASE = "\x1b[2K"


def screen(text: str) -> list[str]:
    """The lines that stand on a terminal in the end: a carriage return and an erasure begin the line again."""
    lines = [""]
    for part in re.split(r"(\n|\r|\x1b\[1A|\x1b\[2K)", text):
        if part == "\n":
            lines.append("")
        elif part == "\x1b[1A":
            lines.pop()
        elif part in ("\r", _ERASE):
            lines[-1] = "" if part == _ERASE else lines[-1]
        else:
            lines[-1] += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", part)
    return lines


@pytest.mark.parametrize("verb", ["pending", "audit"])
def test_no_bar_is_left_on_the_line_of_a_table(common: Path, verb: str) -> None:
    status, text = on_terminal([*WARM, verb, str(common), "--wide"])
    assert status == 0
    assert "━" in text, "there was a bar"
    lines = screen(text)
    assert any(line.startswith("transaction_id") for line in lines)
    assert not [line for line in lines if "━" in line]
    assert "━" not in text[text.index("transaction_id") :], "it does not come back"


def test_a_bar_names_what_is_done_with_the_bytes_when_all_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with open(os.devnull, "w") as nowhere:
        monkeypatch.setattr(sys, "stderr", _Watched(nowhere.fileno()))
        with progress.shown("auditing", Voice()) as bar:
            assert isinstance(bar, progress.Bar)
            task = bar.bar.tasks[0]
            bar(5, 10)
            bar.show_phase("reading", 1, 2, "9 records")
            assert task.description == "auditing: reading, 1/2 tasks, 9 records"
            bar(10, 10)
            assert task.description == "auditing: computing results"
            bar.show_phase("judging", 0, 1)
            assert task.description == "auditing: judging"
            is_shown = [bar.bar.live.is_started]
            progress.clear()
            bar(10, 10)
            assert [*is_shown, bar.bar.live.is_started] == [True, False]
    assert not progress._SHOWN


class _Watched:
    """Something that says it is a terminal."""

    encoding = "utf-8"

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        return
