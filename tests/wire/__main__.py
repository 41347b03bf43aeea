"""Play courses on the simulated wire and test the invariants; `python -m tests.wire`.

Exit status: 0 nothing was violated (with --planted: the fault was found), 1 else. A course that fails is printed with
its steps, and `--seeds 1 --seed N` plays it again.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.mutants.page import commit_of
from tests.wire.course import ACTS, played
from tests.wire.page import ROOT, write_row
from tests.wire.planted import PLANTED, planted

_CHUNK = 20
_SHOWN_MAX = 5


def chunk(seeds: range, act: str | None, fault: str | None) -> tuple[Counter[str], list[tuple[int, list[str]]]]:
    """Play some seeds; the outcomes of their receipts, and what was violated, by seed."""
    import pyarrow as pa

    pa.set_cpu_count(1)
    counts: Counter[str] = Counter()
    failures: list[tuple[int, list[str]]] = []
    gc.disable()  # a course leaves little, and the objects of the imports need no looking through
    with planted(fault):
        for seed in seeds:
            try:
                course = played(seed, act)
            except Exception:
                failures.append((seed, traceback.format_exc(limit=-6).splitlines()))
                continue
            counts += course.counts
            counts["courses"] += 1
            if course.errors:
                failures.append((seed, [*course.errors, *course.world.steps]))
            if failures and fault is not None:
                break
    gc.collect()
    return counts, failures


def chunks(arguments: argparse.Namespace) -> Iterator[tuple[Counter[str], list[tuple[int, list[str]]]]]:
    """Play all seeds, in several processes if asked for."""
    begin, end = arguments.seed, arguments.seed + arguments.seeds
    parts = [range(low, min(end, low + _CHUNK)) for low in range(begin, end, _CHUNK)]
    if arguments.processes == 1:
        for part in parts:
            yield chunk(part, arguments.act, arguments.planted)
        return
    with ProcessPoolExecutor(arguments.processes, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(chunk, part, arguments.act, arguments.planted) for part in parts]
        for one in waiting:
            yield one.result()


def main() -> int:
    """Play what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.wire", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="how many courses")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first seed")
    parser.add_argument("--act", choices=ACTS, help="only this act")
    parser.add_argument("--processes", type=int, default=1, metavar="P")
    parser.add_argument("--planted", choices=sorted(PLANTED), help="plant this fault: the run must find it")
    parser.add_argument("--page", action="store_true", help="write the result into docs/wire.md")
    arguments = parser.parse_args()
    commit = commit_of(ROOT)
    begun = time.monotonic()
    counts: Counter[str] = Counter()
    failed = 0
    for found, failures in chunks(arguments):
        counts += found
        if counts["courses"] % 100 < _CHUNK:
            print(f"{counts['courses']} courses, {failed} failed", file=sys.stderr, flush=True)
        for seed, lines in failures:
            failed += 1
            if failed <= _SHOWN_MAX:
                print(f"seed {seed}:", *lines, sep="\n  ", flush=True)
        if arguments.planted is not None and failed:
            break
    seconds = time.monotonic() - begun
    outcomes = ", ".join(f"{number} {name}" for name, number in sorted(counts.items()) if name != "courses")
    print(f"{counts['courses']} courses in {seconds:.0f} s, {failed} failed: {outcomes}", flush=True)
    if arguments.page:
        of_act = f"`{arguments.act}`" if arguments.act else "all acts"
        what = of_act if arguments.planted is None else f"fault `{arguments.planted}`"
        seeds = range(arguments.seed, arguments.seed + (counts["courses"] if arguments.planted else arguments.seeds))
        write_row(what, seeds, (counts["courses"], failed), seconds, arguments.processes, commit)
    return int(bool(failed) != (arguments.planted is not None))


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # threads of courses that were abandoned wait for good
