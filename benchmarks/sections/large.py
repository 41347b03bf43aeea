"""`pending` and `show` by the derived files of large logs, compared with the Java loop over the log."""

from __future__ import annotations

from benchmarks.bench import LONG_TURNS, Bench
from benchmarks.measure import ratio
from benchmarks.page_cache import fill_page_cache
from benchmarks.section import MIB, PROCESS_HEADER, Section, mebibytes, times

ANONYMOUS_BYTES_MAX = 150 * MIB
_LOOP = (
    "Whole processes, page cache warm. The Java loop reads the log with the official MessageDecoder on one thread and "
    "keeps half messages without an op message"
)


def large_logs(bench: Bench) -> Section:
    """Measure `pending` and `show` on 700 MB and 7 GB, and the Java loops."""
    section = Section(
        "`pending` by the derived files",
        f"{_LOOP}; *pendingpeek* decodes only records of the system topics.",
        PROCESS_HEADER,
    )
    for name, bound in (("M", 5), ("L", 8)):
        fill_page_cache(bench.store(name))
        loops = [bench.java_pending(name), bench.java_pending(name, "pendingpeek")]
        measure = bench.measure_long if name == "L" else bench.measure
        measured = measure([bench.pending(name), bench.show(name), *loops])
        section.add_processes(measured)
        ours, show, decoding, peeking = measured
        section.at_least(f"faster than the Java loop, {name}", ratio(decoding, ours), bound, times)
        memory = f"`pending` on {name}, anonymous memory"
        section.at_most(memory, ours.peak_anonymous_bytes, ANONYMOUS_BYTES_MAX, mebibytes)
        if name == "L":
            section.at_most("`show` on L to `pending` on L", ratio(show, ours), 1, times)
        section.notes.append(f"The loop *pendingpeek* takes {times(ratio(peeking, ours))} as long on {name}.")
    return section


def recent(bench: Bench) -> Section:
    """Measure `pending` and the Java loop on 7 GB with few and recent open transactions."""
    section = Section("`pending` with few open transactions", f"{_LOOP}. 1,100 are open in 7 GB (R5M).", PROCESS_HEADER)
    fill_page_cache(bench.store("R5M"))
    measured = bench.measure([bench.pending("R5M"), bench.java_pending("R5M")], min(LONG_TURNS, bench.turns), 0)
    section.add_processes(measured)
    ours, decoding = measured
    section.at_least("faster than the Java loop, R5M", ratio(decoding, ours), 15, times)
    section.at_most(
        "`pending` on R5M, anonymous memory", ours.peak_anonymous_bytes, ANONYMOUS_BYTES_MAX, mebibytes
    )
    return section


def flat(bench: Bench) -> Section:
    """`pending` with the same open transactions in a short and in a long log."""
    section = Section(
        "`pending` is flat in the log",
        "1,000 open transactions and the same check passes in 50,000 transactions (F50k) and in 5,000,000: "
        "in R5M the open transactions are among the newest 50,000 as in F50k, in F5M they and their copies "
        "are spread over the whole log.",
        PROCESS_HEADER,
    )
    measured = bench.measure([bench.pending(name) for name in ("F50k", "R5M", "F5M")], warm_up=2)
    section.add_processes(measured)
    short, newest, spread = measured
    section.at_most("R5M to F50k", ratio(newest, short), 1.5, times)
    section.at_most("F5M to F50k", ratio(spread, short), 1.5, times)
    section.at_most(
        "`pending` on F5M, anonymous memory", spread.peak_anonymous_bytes, ANONYMOUS_BYTES_MAX, mebibytes
    )
    return section
