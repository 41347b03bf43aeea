"""A pager on a terminal, as git has one; none elsewhere, and none that is in the way."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.program import WARM
from tests.cli.terminal import on_terminal

MARKED = "sed s/^/PAGED:/"


def test_explain_is_paged_on_a_terminal_as_asked() -> None:
    cases: tuple[tuple[dict[str, str], bool], ...] = (
        ({"PAGER": MARKED}, True),
        ({"RMQTX_PAGER": MARKED, "PAGER": "cat"}, True),
        ({"RMQTX_PAGER": "", "PAGER": MARKED}, False),
        ({"RMQTX_PAGER": "cat", "PAGER": MARKED}, False),
        ({"PAGER": ""}, False),
        ({"PAGER": "no-such-pager-anywhere"}, False),
    )
    for environment, is_paged in cases:
        status, text = on_terminal([*WARM, "explain", "LOST"], with_stderr=True, **environment)
        assert status == 0
        assert ("PAGED:LOST (state" in text) is is_paged, environment
        assert "LOST (state of a transaction)" in text
    status, text = on_terminal([*WARM, "explain", "LOST", "--no-pager"], PAGER=MARKED)
    assert (status, "PAGED" in text) == (0, False)


def test_show_keeps_its_status_whatever_the_pager_does(common: Path) -> None:
    words = [*WARM, "show", "K-3733-pending.4", "--store", str(common)]
    for pager, is_seen in ((MARKED, True), ("head -c 0", False), ("exit 3", False)):
        status, text = on_terminal(words, with_stderr=False, PAGER=pager)
        assert (status, "  PENDING" in text) == (0, is_seen), pager
    status, text = on_terminal(words, with_stderr=False, PAGER="printf %s \"$LESS\"; cat >/dev/null")
    assert (status, text) == (0, "FRX")
    status, text = on_terminal([*WARM, "show", "nothing", "--store", str(common)], PAGER=MARKED)
    assert (status, "PAGED" in text) == (16, False)


def test_nothing_is_paged_that_is_piped_or_written(
    rmqtx: Run, common: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGER", MARKED)
    assert "PAGED" not in rmqtx("explain", "LOST").out
    page = tmp_path / "page.txt"
    words = [*WARM, "show", "K-3733-pending.4", "--store", str(common), "-o", str(page)]
    assert on_terminal(words, with_stderr=False, PAGER=MARKED) == (0, "")
    assert "PAGED" not in page.read_text("utf-8")


def test_an_interrupt_is_the_pagers() -> None:
    """Ctrl-C reaches both: the pager goes on, and so does its page."""
    program = "import os, signal, sys; os.kill(os.getppid(), signal.SIGINT); print(len(sys.stdin.read()) > 9)"
    status, text = on_terminal([*WARM, "explain", "LOST"], PAGER=f"exec {sys.executable} -c '{program}'")
    assert (status, text) == (0, "True\n")
