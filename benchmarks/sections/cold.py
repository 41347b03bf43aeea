"""`pending` on a large log that is not in the page cache, compared with the Java loop, both from the disk."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.bench import Bench
from benchmarks.measure import Command, CommandFailed, ratio
from benchmarks.page_cache import drop_page_cache
from benchmarks.section import PROCESS_HEADER, Section, times

#: A larger part of the store in the page cache before a run makes the run a warm one.
RESIDENT_SHARE_MAX = 0.01


def cold_cache(bench: Bench) -> Section:
    """Measure `pending` and the Java loop on 7 GB, with the store dropped from the page cache before each run."""
    section = Section(
        "`pending` with a cold page cache",
        "Whole processes on L, with all its files dropped from the page cache before each run (`posix_fadvise`); the "
        "programs' own files stay there. The disk may have a cache of its own, the same for both.",
        PROCESS_HEADER,
    )
    end_of_log = bench.truth("L").end_of_log

    def drop() -> None:
        remained = drop_page_cache(bench.store("L"))
        if remained > RESIDENT_SHARE_MAX * end_of_log:
            raise CommandFailed(f"{remained >> 20} MiB of L remained in the page cache: another process maps them")

    def cold(command: Command) -> Command:
        return replace(command, name=f"{command.name}, cold", prepare=drop)

    measured = bench.measure_long([cold(bench.pending("L")), cold(bench.java_pending("L"))], turns=2)
    section.add_processes(measured)
    ours, decoding = measured
    section.at_least("faster than the Java loop, L, cold page cache", ratio(decoding, ours), 2, times)
    return section
