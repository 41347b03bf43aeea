"""`python -m tests.fuzz.campaign_run files --cases N --seed S`: damage, ask, compare; `--page` writes docs/fuzz.md."""

from __future__ import annotations

import argparse
import fnmatch
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from tests.brokers import corpus
from tests.fuzz import agreement, any_file, heeded_segments, single_records, whole_segments
from tests.fuzz.agreement import Expected
from tests.fuzz.kept import keep, read_kept
from tests.fuzz.left_out import REASONS, Reason
from tests.fuzz.outcomes import FAILURES, OUTCOMES, UNCHANGED, Case, Played, table
from tests.fuzz.page import commit_of_now, write_section

CAMPAIGNS = {
    "agreement": agreement, "files": any_file, "heeded-segments": heeded_segments, "records": single_records,
    "segments": whole_segments,
}
#: Those whose cases may have differences for declared reasons.
REASONS_OF: dict[str, Sequence[Reason | Expected]] = {
    "agreement": agreement.EXPECTED, "files": REASONS, "heeded-segments": REASONS,
}
CHUNK = 25


def _live_in(home: str) -> None:
    """Set the directory for temporary stores, which the parent removes: processes of a pool do not clean up."""
    os.environ["RMQTX_CAMPAIGN_HOME"] = home


def _cases(campaign: str, seed: int, name: str) -> list[Case]:
    return list(CAMPAIGNS[campaign].cases_of(name, seed))


def _chunk(campaign: str, cases: list[Case]) -> list[tuple[str, Played]]:
    return [(str(case), CAMPAIGNS[campaign].play(case)) for case in cases]


def chosen(cases: list[Case], count: int, seed: int) -> list[Case]:
    """A random sample of the cases, store by store."""
    picked = random.Random(seed).sample(cases, min(count, len(cases)))
    return sorted(picked, key=lambda case: case.store)


def main() -> int:
    """Exit status 1 if an answer was silently wrong and `verify --full` contradicts it, or anything crashed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.campaign_run", description=__doc__)
    parser.add_argument("campaign", choices=sorted(CAMPAIGNS))
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, help="begin no case after this time")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--store", action="append", help="pattern of names of stores; may be repeated")
    parser.add_argument("--only", default="*", help="pattern of cases: STORE/SEGMENT/DAMAGE or STORE/NUMBER")
    parser.add_argument("--verbose", action="store_true", help="print every case")
    parser.add_argument("--keep", type=Path, help="append played cases to this file, and skip those in it")
    parser.add_argument("--page", action="store_true", help="write the table into docs/fuzz.md")
    options = parser.parse_args()
    begin, commit = time.monotonic(), commit_of_now()
    patterns = options.store or ["*"]
    names = [name for name in corpus.all_names() if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    with (
        tempfile.TemporaryDirectory(prefix="rmqtx-campaigns-") as home,
        # A process that is forked from one with threads may end at once.
        ProcessPoolExecutor(options.processes, get_context("spawn"), _live_in, (home,)) as pool,
    ):
        listed = pool.map(partial(_cases, options.campaign, options.seed), names)
        cases = [case for part in listed for case in part if fnmatch.fnmatch(str(case), options.only)]
        cases = chosen(cases, options.cases, options.seed)
        print(f"seed {options.seed}, {len(names)} stores, {len(cases)} damages", flush=True)
        known, commits = ({}, Counter[str]()) if options.keep is None else read_kept(options.keep)
        played = [known[str(case)] for case in cases if str(case) in known]
        chunks = [
            [case for case in cases[place : place + CHUNK] if str(case) not in known]
            for place in range(0, len(cases), CHUNK)
        ]
        random.Random(options.seed).shuffle(chunks)  # so that the first minutes include all families
        parts = [pool.submit(_chunk, options.campaign, chunk) for chunk in chunks if chunk]
        end = None if options.seconds is None else begin + options.seconds
        for part in _finished(parts, begin, end):
            commits[commit] += len(part)
            if options.keep is not None:
                keep(options.keep, commit, part)
            for _, one in part:
                if one.wrong_answers or options.verbose:
                    print(f"{one}\n", flush=True)
                played.append(one)
    totals = Counter(one.outcome for one in played)
    summary = (
        f"{sum(totals.values()) - totals[UNCHANGED]} of {len(cases)} damages: "
        + ", ".join(f"{totals[one]} {one}" for one in OUTCOMES)
        + f"; {time.monotonic() - begin:.0f} s on {options.processes} cores"
    )
    print(summary, flush=True)
    if options.page:
        commit_names = ", ".join(f"{name} ({count} cases)" for name, count in commits.items())
        played_at = commit_names if len(commits) > 1 else commit
        lines = [*table(played)]
        if (reasons := REASONS_OF.get(options.campaign)) is not None:
            lines += ["", *any_file.reasons_table(played, reasons)]
        write_section(options.campaign, summary, options.seed, lines, played_at)
    return 1 if any(totals[one] for one in FAILURES) else 0


def _finished(
    parts: list[Future[list[tuple[str, Played]]]], begin: float, end: float | None
) -> Iterator[list[tuple[str, Played]]]:
    done = 0
    for part in as_completed(parts):
        if part.cancelled():
            continue
        if end is not None and time.monotonic() >= end:
            for later in parts:
                later.cancel()
        yield part.result()
        done += len(part.result())
        print(f"# {done} in {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
