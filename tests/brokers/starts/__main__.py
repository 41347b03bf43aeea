"""`python -m tests.brokers.starts`: every case with every version, and docs/starts.md made of what was found."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.brokers import maven
from tests.brokers.starts.cases import CASES
from tests.brokers.starts.compare import Result, compare

PAGE = Path(__file__).resolve().parents[3] / "docs" / "starts.md"
VERSIONS = ("4.3.0", "4.4.0", "4.9.7", "5.1.4", "5.3.3", "5.5.0")
HEAD = """# What starts do to damaged stores

`rmqtx verify` foretells what the next start of a broker does to a store (findings `start-…`). Here it is held against
brokers: each damage is done to a copy of a store that a broker of the version wrote, the outcome is foreseen from the
files, then the broker is started on it with its check held still, and asked where its log and each of its queues end;
its files are listed. `make test-starts` does it again and writes this page; a run of some cases (`--version`, `--only`,
`--after`, with `--page docs/starts.md`) replaces their cells and keeps the others.

{count} starts, {right} as foreseen. "cut" is how many bytes of the log the broker forgot; "queues" how many entries
that lead to a record all queues lost, as foreseen (a queue made anew begins with fillers that the broker counts);
both against a start on the same store undamaged.

Learned here, and foretold since:

- 4.9.7 waits for ever where the file with the place behind its last queue entry is gone.
- 4.3.0 and 4.4.0 start on a file of another length, and load neither it nor what comes behind it by name: a short file
  of a queue makes the queue empty ("a short queue file"), and a `.gz` beside a file of the log ends the log there. The
  files behind it stay on the disk until the log comes there and writes over them (`start-cuts-queue`,
  `start-leaves-out`). 4.5.0 and later refuse to start; of 4.9.2, which does as 4.4.0, this is known from its source.
- 5.3.4 and later cut the queues after the walk over the log has entered what they lack, not before, and read the last
  file of each from its begin for that (`ConsumeQueueStore.truncateDirty`, called at the end of `recoverNormally` and
  `recoverAbnormally`; until 5.3.3 the place to which the queues had come was taken before the walk; of 5.3.4 and 5.4.0
  this is known from their source alone). So a queue with a slot that cannot be stays as long as it was where something
  is entered into it: the last records of the log, those behind all other queues, go over the slots from the bad one on,
  and the old slots behind them count again. In "half slot zeroed" 5.5.0 wrote the records of slots 269 to 287 into
  slots 20 to 38 too, compared slot by slot: those 19 halves have two slots, and the 19 that belong there have none.
  `verify` says so as `start-shifts` and `start-skips`.
"""
CELL, NOT_TRIED, WRONG_MARK = re.compile(r" *\| *"), "not tried", "✗"
LAST_PLAYED = "last played"


def page(results: Sequence[Result], old: str = "", *, played: str = "") -> str:
    """The page: the cells of what was played, and those of the old page for what was not.

    `played`: the day and the commit of what was played.
    """
    cells, notes = _known(old)
    last = {version: cell for (name, version), cell in cells.items() if name == LAST_PLAYED}
    cells = {key: cell for key, cell in cells.items() if key[0] != LAST_PLAYED}
    base = {(one.case.store, one.version): one for one in results if one.case.name.startswith("untouched")}
    for one in results:
        key = one.case.name, one.version
        cells[key] = _cell(one, base[one.case.store, one.version])
        last[one.version] = played
        notes.pop(key, None)
        if one.differences:
            notes[key] = f"- {one.case.name}, {one.version}: {'; '.join(one.differences)}"
    versions = [version for version in VERSIONS if any(version == known for _, known in cells)]
    tried = [cell for cell in cells.values() if cell != NOT_TRIED]
    lines = [HEAD.format(count=len(tried), right=sum(WRONG_MARK not in cell for cell in tried))]
    lines.append("| damage | stopped | " + " | ".join(versions) + " |")
    lines.append("|---|---|" + "---|" * len(versions))
    for case in CASES:
        mine = [cells.get((case.name, version), NOT_TRIED) for version in versions]
        how = "killed" if case.is_abnormal else "cleanly"
        lines.append(f"| {case.name} | {how} | " + " | ".join(mine) + " |")
    lines.append(f"| {LAST_PLAYED} | | " + " | ".join(last.get(version) or NOT_TRIED for version in versions) + " |")
    if notes:
        lines += ["", "## Not as foreseen", "", *notes.values()]
    return "\n".join(lines) + "\n"


def _known(old: str) -> tuple[dict[tuple[str, str], str], dict[tuple[str, str], str]]:
    """The cells of a page by damage and version, and what it says of those that were not as foreseen."""
    rows = [CELL.split(line.strip("| ")) for line in old.splitlines() if line.startswith("| ")]
    cells = {(row[0], version): cell for row in rows[1:] for version, cell in zip(rows[0][2:], row[2:], strict=True)}
    notes = {
        key: line for key, cell in cells.items() if WRONG_MARK in cell
        for line in old.splitlines() if line.startswith(f"- {key[0]}, {key[1]}: ")
    }
    return cells, notes


def today() -> str:
    """The day, and the commit of this checkout."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    return f"{time.strftime('%Y-%m-%d')}, {commit.stdout.strip()}"


def _cell(one: Result, base: Result) -> str:
    mark = f" {WRONG_MARK}" if one.differences else ""
    found, whole = one.observed, base.observed
    if found.end_offset is None or whole.end_offset is None:
        return f"{found.told()}{mark}"
    parts = []
    if whole.end_offset - found.end_offset > 0:
        parts.append(f"cut {whole.end_offset - found.end_offset}")
    lost = base.foreseen.entries - one.foreseen.entries
    if lost:
        parts.append(f"queues −{lost}" if lost > 0 else f"queues +{-lost}")
    return (", ".join(parts) or "nothing lost") + mark


def main() -> int:
    """Exit status 1 if anything was not foreseen."""
    parser = argparse.ArgumentParser(prog="python -m tests.brokers.starts", description=__doc__)
    parser.add_argument("--version", action="append", help="a version (default: six)")
    parser.add_argument("--seconds", type=float, default=7200, help="begin no further start after so many")
    parser.add_argument("--after", help="begin behind the case of this name; the page is not written then")
    parser.add_argument("--only", help="cases with this in their name; the page is not written then")
    parser.add_argument("--page", type=Path, help="write this page, whatever was chosen: the rest keeps its cells")
    options = parser.parse_args()
    why_not = maven.why_not()
    if why_not is not None:
        print(f"no broker can be run: {why_not}", file=sys.stderr)
        return 1
    results = []
    end = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory(prefix="rmqtx-starts-") as directory:
        names = [case.name for case in CASES]
        first = names.index(options.after) + 1 if options.after else 0
        for number, case in enumerate(CASES):
            is_base = bool(options.page) and case.name.startswith("untouched")  # every cell is told against it
            is_wanted = number >= first and (not options.only or options.only in case.name)
            for version in options.version or VERSIONS:
                if not (is_wanted or is_base) or time.monotonic() > end:
                    continue
                one = compare(case, version, Path(directory) / "case")
                print(f"{version} {case.name}: {one.observed.told()}; {'; '.join(one.differences) or 'as foreseen'}",
                      flush=True)
                results.append(one)
    if options.page or not (options.only or options.version or options.after):
        to = options.page or PAGE
        old = to.read_text(encoding="utf-8") if to.exists() else ""
        to.write_text(page(results, old, played=today()), encoding="utf-8")
    return 1 if any(one.differences for one in results) else 0


if __name__ == "__main__":
    sys.exit(main())
