"""`pending` on large logs in object storage: requests, bytes, and the time with 50 ms for each answer."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from benchmarks.bench import Bench
from benchmarks.measure import Command
from benchmarks.object_server import BUCKET, ObjectServer, serving
from benchmarks.page_cache import fill_page_cache
from benchmarks.section import PROCESS_HEADER, Section, number, percent

DELAY_S = 0.05
#: A run that takes longer is ended, so that the whole report is finished in time.
TIMEOUT_S = 120.0


class _Most(NamedTuple):
    requests: int
    share: float


#: N: at most 100 are open, which are looked up. L: 19,251 are open, and the log is read once.
MOST = {"N": _Most(300, 0.02), "L": _Most(2_000, 1.2)}


def object_storage(bench: Bench) -> Section:
    """Measure the requests, the bytes and the time of `pending` on 7 GB in object storage, with few and many open."""
    section = Section(
        "`pending` from object storage",
        f"The whole process on N and L, read from an S3 server on this machine that counts its requests and the bytes "
        f"of its answers: without delay, and with {DELAY_S * 1000:.0f} ms before each answer. The bytes are compared "
        "with those of the log.",
        PROCESS_HEADER,
    )
    for name, most in MOST.items():
        fill_page_cache(bench.store(name))
        counts: list[tuple[int, int]] = []
        with serving(bench.store(name)) as server:
            for delay_s in (0.0, DELAY_S):
                section.add_processes(bench.measure_long([_counted(bench, name, server, delay_s, counts)], turns=1))
        # Counts are exact on a busy machine too, and only those of right answers count.
        requests, sent = (max(values) for values in zip(*counts, strict=True)) if counts else (math.nan, math.nan)
        what = f"`pending` on {name} from object storage"
        section.at_most(f"{what}, requests", requests, most.requests, number)
        share = sent / bench.truth(name).end_of_log
        section.at_most(f"{what}, bytes to the bytes of the log", share, most.share, percent)
        section.notes.append(f"{name}: {len(counts)} of 2 runs ended with the right answer; the targets are of those.")
    return section


def _counted(bench: Bench, name: str, server: ObjectServer, delay_s: float, counts: list[tuple[int, int]]) -> Command:
    """Return `pending` from the server; after a right answer its requests and bytes are added to `counts`."""
    command = bench.pending(name, f"s3://{BUCKET}", server.environment)
    compare = command.check
    assert compare is not None

    def check(output: str) -> None:
        compare(output)
        counts.append((server.requests, server.sent_bytes))

    title = f"rmqtx pending {name}, s3, {delay_s * 1000:.0f} ms"
    return replace(command, name=title, prepare=partial(server.reset, delay_s), check=check, timeout_s=TIMEOUT_S)
