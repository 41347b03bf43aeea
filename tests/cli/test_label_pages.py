"""Pages with labels on a terminal: a label that fills its column is still separated from its text."""

from __future__ import annotations

import io
import os

import pytest

from rmqtx_cli.output import page


def test_a_label_that_fills_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "is_on_terminal", lambda _: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda fallback=None: os.terminal_size((30, 24)))
    written = io.BytesIO()
    page.write_lines(written, ["eight-c: the text of a long line", "  seven why it is so that it is"], 8)
    assert written.getvalue().decode().splitlines() == [
        "eight-c: the text of a long", "        line", "  seven why it is so that it", "        is",
    ]
