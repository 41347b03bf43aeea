"""The table of docs/wire.md: a row for each range of seeds of all acts or of one act, and for each planted fault."""

from __future__ import annotations

import time
from pathlib import Path

from tests.mutants.page import commit_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "wire.md"
_BEGIN, _END = "<!-- results: written by make wire -->", "<!-- end of results -->"
_HEAD = "| played | courses | seeds | failed | time | processes | date | commit |\n|---|---|---|---|---|---|---|---|"


def rows_of(text: str) -> dict[str, str]:
    """Return the rows of the table by what was played: a fault, or acts and their seeds."""
    table = text[text.index(_BEGIN) : text.index(_END)].splitlines()
    cells = [(line, [cell.strip() for cell in line.split("|")]) for line in table[4:] if line.startswith("|")]
    return {_key(played, seeds): line for line, (_, played, _, seeds, *_) in cells}


def _key(played: str, seeds: str) -> str:
    return played if played.startswith("fault") else f"{played}, {seeds}"


def write_row(
    played: str, seeds: range, counts: tuple[int, int], seconds: float, processes: int, commit: str | None = None
) -> None:
    """Write one row, in place of the last one of the same fault or seeds. `counts`: courses and failures."""
    text = PAGE.read_text()
    courses, failed = counts
    day = time.strftime("%Y-%m-%d", time.gmtime())
    rows = rows_of(text)
    numbers = f"{seeds.start} to {seeds.stop - 1}"
    rows[_key(played, numbers)] = (
        f"| {played} | {courses:,} | {numbers} | {failed} | {seconds:,.0f} s | {processes} | "
        f"{day} | {commit or commit_of(ROOT)} |"
    )
    table = "\n".join([_HEAD, *rows.values()])
    PAGE.write_text(f"{text[: text.index(_BEGIN)]}{_BEGIN}\n\n{table}\n\n{text[text.index(_END) :]}")
