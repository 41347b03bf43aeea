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

`rmqtx verify` predicts what the next start of a broker does to a store (findings `start-…`). This page compares the
prediction with real brokers: a copy of a store that a broker of the version wrote is damaged, the outcome is predicted
from the files, then the broker is started on the copy with its check paused; the ends of its log and of each queue
are read from the broker, and its files are listed. `make test-starts` repeats this and writes this page; a run of some
cases (`--version`, `--only`, `--after`, with `--page docs/starts.md`) replaces their cells and keeps the others.

{count} starts, {right} as predicted. "cut" is the number of log bytes that the broker dropped; "queues" the number of
entries with a record that all queues lost, by the prediction (a rebuilt queue begins with fillers, which the broker
counts); both compared with a start on the same store without damage.

Found by these tests, and predicted since:

- 4.9.7 hangs if the file with the place after its last queue entry is missing.
- 4.3.0 and 4.4.0 start with a file of another length, and load neither this file nor later ones by name: a short file
  of a queue makes the queue empty ("a short queue file"), and a `.gz` beside a file of the log ends the log there. The
  later files stay on the disk until the log reaches and overwrites them (`start-cuts-queue`, `start-leaves-out`). 4.5.0
  and later refuse to start; 4.9.2 behaves like 4.4.0, by its source.
- 5.3.4 and later cut the queues after recovery has dispatched what they lack, not before, and then read the last file
  of each queue from its beginning (`ConsumeQueueStore.truncateDirty`, called at the end of `recoverNormally` and
  `recoverAbnormally`; up to 5.3.3 the end of the queues was determined before recovery; for 5.3.4 and 5.4.0 this is
  known only from their source). So a queue with an invalid slot keeps its length if a record is dispatched to it: the
  last records of the log, after all other queues, overwrite the slots from the invalid one on, and the old slots
  after them are valid again. In "half slot zeroed" 5.5.0 wrote the records of slots 269 to 287 into slots 20 to 38 as
  well, compared slot by slot: these 19 halves have two slots, and the 19 that belong there have none. `verify` reports
  this as `start-shifts` and `start-skips`.
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
        lines += ["", "## Not as predicted", "", *notes.values()]
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
    parser.add_argument("--after", help="begin after the case of this name; the page is not written then")
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
