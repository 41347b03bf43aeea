"""`pending` on a large log in object storage: requests, bytes, and the time with 50 ms for each answer."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from benchmarks.bench import Bench
from benchmarks.measure import Command
from benchmarks.object_server import BUCKET, ObjectServer, serving
from benchmarks.page_cache import fill_page_cache
from benchmarks.section import PROCESS_HEADER, Section, number, percent

DELAY_S = 0.05
REQUESTS_MAX = 300
SHARE_MAX = 0.01
#: A run that takes longer is ended, so that the whole report is finished in time.
TIMEOUT_S = 120.0


def object_storage(bench: Bench) -> Section:
    """Measure the requests, the bytes and the time of `pending` on 7 GB in object storage."""
    section = Section(
        "`pending` from object storage",
        f"The whole process on L, read from an S3 server on this machine that counts its requests and the bytes of its "
        f"answers: without delay, and with {DELAY_S * 1000:.0f} ms before each answer. The bytes are compared with "
        "those of the log.",
        PROCESS_HEADER,
    )
    fill_page_cache(bench.store("L"))
    counts: list[tuple[int, int]] = []
    with serving(bench.store("L")) as server:
        for delay_s in (0.0, DELAY_S):
            section.add_processes(bench.measure_long([_counted(bench, server, delay_s, counts)], turns=1))
    # Counts are exact on a busy machine too, and only those of right answers count.
    requests, sent = (max(values) for values in zip(*counts, strict=True)) if counts else (math.nan, math.nan)
    section.at_most("`pending` on L from object storage, requests", requests, REQUESTS_MAX, number)
    share = sent / bench.truth("L").end_of_log
    section.at_most("the same, bytes to the bytes of the log", share, SHARE_MAX, percent)
    section.notes.append(f"{len(counts)} of 2 runs ended with the right answer; the targets are of those.")
    return section


def _counted(bench: Bench, server: ObjectServer, delay_s: float, counts: list[tuple[int, int]]) -> Command:
    """Return `pending` from the server; after a right answer its requests and bytes are added to `counts`."""
    command = bench.pending("L", f"s3://{BUCKET}", server.environment)
    compare = command.check
    assert compare is not None

    def check(output: str) -> None:
        compare(output)
        counts.append((server.requests, server.sent_bytes))

    name = f"rmqtx pending L, s3, {delay_s * 1000:.0f} ms"
    return replace(command, name=name, prepare=partial(server.reset, delay_s), check=check, timeout_s=TIMEOUT_S)
