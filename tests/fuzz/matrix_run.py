"""`python -m tests.fuzz.matrix_run --cases N`: many cases of the damage matrix; `--page`: figures into docs/fuzz.md."""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from tests.fuzz.file_damages import DAMAGES
from tests.fuzz.matrix import FOUND, KINDS, MEANINGLESS, STORES, UNCHANGED, WRONG, Played, baseline, play
from tests.fuzz.page import write_section

CHUNK = 100
#: What a process may have grown by between its first chunk of cases and its last.
GROWTH_MIB_MAX = 96


def _resident_mib() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() >> 20


def _chunk(first: int, count: int, seed: int) -> tuple[list[Played], int, int]:
    """Some cases, and the memory that the process holds and has held."""
    for name in STORES:
        baseline(name)
    played = [play(number, seed) for number in range(first, first + count)]
    return played, _resident_mib(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def _table(outcomes: Counter[tuple[str, str, str]]) -> Iterable[str]:
    yield "| file | " + " | ".join(DAMAGES) + " |"
    yield "|---|" + "---|" * len(DAMAGES)
    for kind in KINDS:
        cells = []
        for damage in DAMAGES:
            counts = [outcomes[kind, damage, what] for what in (FOUND, MEANINGLESS)]
            cells.append(f"{counts[0]}" + (f" + {counts[1]}" if counts[1] else ""))
        yield f"| {kind} | " + " | ".join(cells) + " |"


def main() -> int:
    """Exit status 1 if any case went wrong, or memory grew."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.matrix_run", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--page", action="store_true", help="write the figures into docs/fuzz.md")
    options = parser.parse_args()
    outcomes: Counter[tuple[str, str, str]] = Counter()
    sizes: list[int] = []
    peak = 0
    begin = time.monotonic()
    end = options.first + options.cases
    with ProcessPoolExecutor(options.processes) as pool:
        parts = [
            pool.submit(_chunk, first, min(CHUNK, end - first), options.seed)
            for first in range(options.first, end, CHUNK)
        ]
        for part in as_completed(parts):
            played, resident, highest = part.result()
            sizes.append(resident)
            peak = max(peak, highest)
            for one in played:
                outcomes[one.cell[1], one.cell[2], one.outcome] += 1
                if one.wrong:
                    print(f"\ncase {one.number}: {' / '.join(one.cell)}\n  {one.done}\n  {one.wrong}", flush=True)
    total = Counter[str]()
    for (_, _, outcome), number in outcomes.items():
        total[outcome] += number
    few = max(1, len(sizes) // 10)
    early, late = max(sizes[:few]), max(sizes[-few:])
    summary = (
        f"{total.total()} cases: {total[FOUND]} found, {total[MEANINGLESS]} meaningless, {total[UNCHANGED]} changed "
        f"nothing, {total[WRONG]} wrong; {time.monotonic() - begin:.0f} s on {options.processes} cores; a process held "
        f"{early} MiB in the first tenth and {late} MiB in the last, at most {peak} MiB"
    )
    print(summary, flush=True)
    if options.page:
        write_section("matrix", summary, options.seed, _table(outcomes))
    return 1 if total[WRONG] or late - early > GROWTH_MIB_MAX else 0


if __name__ == "__main__":
    sys.exit(main())
