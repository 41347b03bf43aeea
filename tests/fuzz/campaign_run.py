"""`python -m tests.fuzz.campaign_run segments --cases N`: damage, ask, compare; `--page`: into docs/fuzz.md."""

from __future__ import annotations

import argparse
import fnmatch
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from functools import partial

from tests.brokers import corpus
from tests.fuzz import single_records, whole_segments
from tests.fuzz.outcomes import FAILURES, OUTCOMES, UNCHANGED, Case, Played, table
from tests.fuzz.page import write_section

CAMPAIGNS = {"records": single_records, "segments": whole_segments}
CHUNK = 25


def _live_in(home: str) -> None:
    """Processes of a pool end without tidying up."""
    os.environ["RMQTX_CAMPAIGN_HOME"] = home


def _cases(campaign: str, seed: int, name: str) -> list[Case]:
    return list(CAMPAIGNS[campaign].cases_of(name, seed))


def _chunk(campaign: str, cases: list[Case]) -> list[Played]:
    return [CAMPAIGNS[campaign].play(case) for case in cases]


def chosen(cases: list[Case], count: int, seed: int) -> list[Case]:
    """So many of the cases, by chance, store by store."""
    picked = random.Random(seed).sample(cases, min(count, len(cases)))
    return sorted(picked, key=lambda case: case.store)


def main() -> int:
    """Exit status 1 if an answer was silently wrong and `verify --full` contradicts it, or anything crashed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.campaign_run", description=__doc__)
    parser.add_argument("campaign", choices=sorted(CAMPAIGNS))
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, help="begin no more after so long, and say how many were played")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--store", action="append", help="pattern of names of stores; may be repeated")
    parser.add_argument("--only", default="*", help="pattern of cases: store/target/deed")
    parser.add_argument("--verbose", action="store_true", help="print every case")
    parser.add_argument("--page", action="store_true", help="write the table into docs/fuzz.md")
    options = parser.parse_args()
    begin = time.monotonic()
    patterns = options.store or ["*"]
    names = [name for name in corpus.all_names() if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    with (
        tempfile.TemporaryDirectory(prefix="rmqtx-campaigns-") as home,
        ProcessPoolExecutor(options.processes, initializer=_live_in, initargs=(home,)) as pool,
    ):
        listed = pool.map(partial(_cases, options.campaign, options.seed), names)
        cases = [case for part in listed for case in part if fnmatch.fnmatch(str(case), options.only)]
        cases = chosen(cases, options.cases, options.seed)
        print(f"seed {options.seed}, {len(names)} stores, {len(cases)} damages", flush=True)
        chunks = [cases[place : place + CHUNK] for place in range(0, len(cases), CHUNK)]
        random.Random(options.seed).shuffle(chunks)  # the first minutes show all families
        parts = [pool.submit(_chunk, options.campaign, chunk) for chunk in chunks]
        end = None if options.seconds is None else begin + options.seconds
        played = list(_reported(parts, begin, end, is_verbose=options.verbose))
    totals = Counter(one.outcome for one in played)
    summary = (
        f"{sum(totals.values()) - totals[UNCHANGED]} of {len(cases)} damages: "
        + ", ".join(f"{totals[one]} {one}" for one in OUTCOMES)
        + f"; {time.monotonic() - begin:.0f} s on {options.processes} cores"
    )
    print(summary, flush=True)
    if options.page:
        write_section(options.campaign, summary, options.seed, table(played))
    return 1 if any(totals[one] for one in FAILURES) else 0


def _reported(
    parts: list[Future[list[Played]]], begin: float, end: float | None, *, is_verbose: bool
) -> Iterator[Played]:
    done = 0
    for part in as_completed(parts):
        if part.cancelled():
            continue
        if end is not None and time.monotonic() >= end:
            for later in parts:
                later.cancel()
        for one in part.result():
            done += 1
            if one.complaints or is_verbose:
                print(f"{one}\n", flush=True)
            yield one
        print(f"# {done} in {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
