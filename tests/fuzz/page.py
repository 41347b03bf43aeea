"""The parts of docs/fuzz.md that are written by runs: each between two markers."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fuzz.md"


def write_section(name: str, summary: str, seed: int, lines: Iterable[str], commit: str | None = None) -> None:
    """Put what a run found between its markers: date, commit (that of now if none), seed, one sentence, its table."""
    text = PAGE.read_text(encoding="utf-8")
    begin, end = f"<!-- {name}: written by make fuzz -->", f"<!-- {name}: end -->"
    before, rest = text.split(begin)
    today = time.strftime("%Y-%m-%d", time.gmtime())
    heading = f"{today}, commit {commit or commit_of_now()}, seed {seed}: {summary}."
    section = "\n".join([begin, "", heading, "", *lines, "", end])
    PAGE.write_text(before + section + rest.split(end)[1], encoding="utf-8")


def commit_of_now() -> str:
    """The commit of this checkout, marked where other files than the page differ from it."""
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False, cwd=PAGE.parent
    )
    return found.stdout.strip() or "unknown"
