"""What runs found, kept as `results.json` and written as docs/mutants.md."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tests.mutants.equivalents import Equivalent

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "mutants.md"
_BEGIN, _END = "<!-- results: written by make mutants -->", "<!-- end of results -->"
Row = dict[str, Any]


def commit_of(root: Path) -> str:
    """The commit that was played, with a plus if files differ from it."""
    try:
        name = subprocess.check_output(["git", "rev-parse", "--short=8", "HEAD"], cwd=root, text=True).strip()
        changed = subprocess.check_output(["git", "status", "--porcelain"], cwd=root, text=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return name + ("+" if changed else "")


def merged(
    root: Path, rows: list[Row], seed: int, recorded: str, last: Row | None,
    gone: Collection[tuple[Any, ...]] = (),
) -> Row:
    """The result of a folder. With the last result, `rows` are its survivors, played again, and `gone` those of them
    whose code is gone: they are not mutants of the draw any more. `recorded`: how many of the test files
    were run under coverage.
    """
    counts = Counter(row["outcome"] for row in rows)
    left = [row for row in rows if row["outcome"] in ("survived", "not covered")]
    killed = counts["killed"] + counts["timed out"]
    survivors = [
        {name: row[name] for name in ("outcome", "file", "line", "function", "mutation", "nth", "tests", "left_out")}
        for row in left
    ]
    one = {
        "commit": commit_of(root), "date": time.strftime("%Y-%m-%d", time.gmtime()), "seed": str(seed),
        "mutants": len(rows), "killed": killed, "timed_out": counts["timed out"], "equivalent": counts["equivalent"],
        "not_covered": counts["not covered"], "survived": counts["survived"], "survivors": survivors,
        "killed_later": 0, "recorded": recorded,
    }
    if last is None:
        return one
    kinds = {name: last[name] + one[name] for name in ("killed", "timed_out", "equivalent")}
    played = {_place(row) for row in rows} | set(gone)
    survivors += [row for row in last["survivors"] if _place(row) not in played]  # the time did not suffice for them
    outcomes = Counter(row["outcome"] for row in survivors)
    return one | kinds | {
        "seed": last["seed"], "mutants": last["mutants"] - len(gone), "killed_later": last["killed_later"] + killed,
        "not_covered": outcomes["not covered"], "survived": outcomes["survived"],
    }


def _place(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("file", "function", "mutation", "nth"))


def draw_of(results: dict[str, Row], folder: str, seed: int | None) -> str:
    """The key of a folder's draw: that of a seed, or the last one that is kept."""
    keys = [key for key in results if key.startswith(f"{folder}@")]
    return keys[-1] if seed is None else f"{folder}@{seed}"


def table(results: dict[str, Row]) -> str:
    """Both tables of the page."""
    head = (
        "| folder | date | commit | seed | mutants | killed | of these in later runs | equivalent |"
        " survivors | of these not covered | killed of those that are not equivalent | test files recorded |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|\n"
    )
    lines = []
    total: Counter[str] = Counter()
    for key, one in sorted(results.items()):
        folder = key.partition("@")[0]
        total.update({name: one[name] for name in ("mutants", "killed", "killed_later", "equivalent")})
        share = one["killed"] / max(1, one["mutants"] - one["equivalent"])
        alive = one["survived"] + one["not_covered"]
        lines.append(
            f"| `{folder}` | {one['date']} | {one['commit']} | {one['seed']} | {one['mutants']} | {one['killed']} |"
            f" {one['killed_later']} | {one['equivalent']} | {alive} | {one['not_covered']} | {share:.0%} |"
            f" {one['recorded']} |\n"
        )
    share = total["killed"] / max(1, total["mutants"] - total["equivalent"])
    left = total["mutants"] - total["killed"] - total["equivalent"]
    lines.append(
        f"| all draws | | | | {total['mutants']} | {total['killed']} | {total['killed_later']} |"
        f" {total['equivalent']} | {left} | | {share:.0%} | |\n"
    )
    text = head + "".join(lines) + "\n"
    survivors = [row for _, one in sorted(results.items()) for row in one["survivors"]]
    if survivors:
        text += "Survivors:\n\n| place | function | fault | |\n|---|---|---|---|\n"
        for row in survivors:
            note = row["outcome"] if not row["left_out"] else f"{row['outcome']}; {row['left_out']} tests left out"
            fault = row["mutation"].replace("|", "\\|")
            text += f"| `{row['file']}:{row['line']}` | `{row['function'] or ''}` | `{fault}` | {note} |\n"
    return text


def write_page(results: dict[str, Row], equivalents: list[Equivalent], page: Path) -> None:
    """Put the tables into the page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    after = rest.partition(_END)[2]
    page.write_text(f"{before}{_BEGIN}\n\n{table(results)}\n{_END}{after}", encoding="utf-8")
