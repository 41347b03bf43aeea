"""`python -m tests.brokers.starts`: every case with every version, and docs/starts.md made of what was found."""

from __future__ import annotations

import argparse
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
its files are listed. `make test-starts` does it again and writes this page.

{count} starts, {right} as foreseen. "cut" is how many bytes of the log the broker forgot; "queues" how many entries
that lead to a record all queues lost, as foreseen (a queue made anew begins with fillers that the broker counts);
both against a start on the same store undamaged. That 4.9.7 waits for ever where the file with the place behind its
last queue entry is gone was learned here, and is foretold since.
"""


def page(results: Sequence[Result]) -> str:
    """The page."""
    right = sum(not result.differences for result in results)
    lines = [HEAD.format(count=len(results), right=right)]
    versions = list(dict.fromkeys(result.version for result in results))
    lines.append("| damage | stopped | " + " | ".join(versions) + " |")
    lines.append("|---|---|" + "---|" * len(versions))
    base = {(one.case.store, one.version): one for one in results if one.case.name.startswith("untouched")}
    for case in CASES:
        mine = {one.version: _cell(one, base[case.store, one.version]) for one in results if one.case == case}
        cells = [mine.get(version, "not tried") for version in versions]
        if mine:
            how = "killed" if case.is_abnormal else "cleanly"
            lines.append(f"| {case.name} | {how} | " + " | ".join(cells) + " |")
    wrong = [one for one in results if one.differences]
    if wrong:
        lines += ["", "## Not as foreseen", ""]
        lines += [f"- {one.case.name}, {one.version}: {'; '.join(one.differences)}" for one in wrong]
    return "\n".join(lines) + "\n"


def _cell(one: Result, base: Result) -> str:
    mark = "" if not one.differences else " ✗"
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
    parser.add_argument("--page", type=Path, help="write the page into this file, whatever was chosen")
    options = parser.parse_args()
    why_not = maven.why_not()
    if why_not is not None:
        print(f"no broker can be run: {why_not}", file=sys.stderr)
        return 1
    results = []
    end = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory(prefix="rmqtx-starts-") as directory:
        names = [case.name for case in CASES]
        for case in CASES[names.index(options.after) + 1 if options.after else 0 :]:
            for version in options.version or VERSIONS:
                if (options.only and options.only not in case.name) or time.monotonic() > end:
                    continue
                one = compare(case, version, Path(directory) / "case")
                print(f"{version} {case.name}: {one.observed.told()}; {'; '.join(one.differences) or 'as foreseen'}",
                      flush=True)
                results.append(one)
    if options.page or not (options.only or options.version or options.after):
        (options.page or PAGE).write_text(page(results), encoding="utf-8")
    return 1 if any(one.differences for one in results) else 0


if __name__ == "__main__":
    sys.exit(main())
