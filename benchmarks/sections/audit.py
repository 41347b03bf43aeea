"""`audit`, by command and library, and `verify` of 5,000,000 transactions."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.bench import Bench, has_package, rmqtx
from benchmarks.measure import Command, CommandFailed, ratio
from benchmarks.page_cache import fill_page_cache
from benchmarks.section import MIB, PROCESS_HEADER, Section, mebibytes, times

#: A blank record is shorter than the record that did not fit, and the generator's records are shorter than this.
TAIL_BYTES = 64 << 10
BLANK_MAGIC = bytes.fromhex("cbd43194")


def audit(bench: Bench) -> Section:
    """Measure `audit` of the large store, compared with the Java loop."""
    section = Section(
        "`audit` of 5,000,000 transactions",
        "Every transaction's state with its evidence, from 7 GB of log (L), written to a file. The Java loop keeps "
        "only pending transactions.",
        PROCESS_HEADER,
    )
    fill_page_cache(bench.store("L"))
    measured = bench.measure_long([bench.java_pending("L"), *audit_commands(bench, "L")])
    section.add_processes(measured)
    java, parquet, jsonl, summary = measured
    section.at_most("`audit` of L to Parquet, to the Java loop", ratio(parquet, java), 1.3, times)
    section.at_most("the same, CPU", ratio(parquet, java, "cpu_s"), 2.2, times)
    section.at_most("the same, anonymous memory", parquet.peak_anonymous_bytes, 400 * MIB, mebibytes)
    section.at_most("JSON lines to Parquet", ratio(jsonl, parquet), 1.8, times)
    section.at_most("`--summary` to Parquet", ratio(summary, parquet), 0.7, times)
    if has_package("numba"):
        section.add_processes(bench.measure_long([bench.audit("L", "parquet", with_accelerator=False)], turns=1))
    return section


def api_audit(bench: Bench) -> Section:
    """Measure `audit` by the library, compared with the command, and iteration over its typed rows."""
    section = Section(
        "`audit` by the library",
        "`rmqtx.open(L).audit()`, written by the writer of the command into the same file; then `for row in` it, of M "
        "and of L.",
        PROCESS_HEADER,
    )
    fill_page_cache(bench.store("L"))
    measured = bench.measure_long([bench.audit("L", "parquet"), bench.api_audit("L")])
    command, library = measured
    section.at_most("`audit` of L by the library, to the command", ratio(library, command), 1.03, times)
    section.at_most("the same, CPU", ratio(library, command, "cpu_s"), 1.03, times)
    section.at_most("the same, anonymous memory", ratio(library, command, "peak_anonymous_bytes"), 1.1, times)
    iterated = bench.measure_long([bench.api_rows("M"), bench.api_rows("L")], turns=1)
    short, long = iterated
    section.at_most(
        "anonymous memory of iterating L, to M", ratio(long, short, "peak_anonymous_bytes"), 1.25, times
    )
    section.add_processes([*measured, *iterated])
    return section


def verify_and_one_core(bench: Bench) -> Section:
    """Measure `verify --full`, and `audit` with one core."""
    section = Section(
        "`verify --full`, and `audit` with one core",
        "L, as above. The audit with one core is one process (`--processes 1`) that the kernel keeps on one core "
        "(`taskset`).",
        PROCESS_HEADER,
    )
    fill_page_cache(bench.store("L"))
    measured = bench.measure_long([bench.audit("L", "parquet"), _on_one_core(bench), _verify(bench, "L")])
    section.add_processes(measured)
    parquet, alone, verify = measured
    section.at_least("`audit` of L with two cores to one", ratio(alone, parquet), 1.8, times)
    section.at_most("`verify --full` of L to `audit`", ratio(verify, parquet), 1.5, times)
    return section


def audit_commands(bench: Bench, store: str) -> list[Command]:
    """Return `rmqtx audit` of a store to Parquet, to JSON lines, and as a summary."""
    return [bench.audit(store, "parquet"), bench.audit(store, "jsonl"), bench.audit_summary(store)]


def _on_one_core(bench: Bench) -> Command:
    command = bench.audit("L", "parquet", "--processes", "1")
    core = str(min(os.sched_getaffinity(0)))
    return Command(f"{command.name}, one core", ["taskset", "-c", core, *command.words], command.check)


def _verify(bench: Bench, name: str) -> Command:
    """Return `rmqtx verify --full`, which must find no damage and decode every record up to the end of the log."""
    records_bytes = bench.truth(name).end_of_log - _padding_bytes(bench.store(name))

    def check(output: str) -> None:
        if "no damage found" not in output or f" {records_bytes} decoded " not in output:
            raise CommandFailed(f"verify {name}: not {records_bytes} bytes decoded without damage: {output[-500:]}")

    words = [*rmqtx(), "verify", str(bench.store(name)), "--full", "--format", "jsonl"]
    return Command(f"rmqtx verify {name} --full", words, check, merges_errors=True)


def _padding_bytes(store: Path) -> int:
    """Return the bytes of the blank records that end all files of a commit log but the last.

    Source: a blank record is its length up to the end of the file, then its magic code.
    """
    total = 0
    for path in sorted((store / "commitlog").iterdir())[:-1]:
        with path.open("rb") as file:
            file.seek(-TAIL_BYTES, os.SEEK_END)
            tail = file.read()
        (length,) = [
            TAIL_BYTES - start
            for start in range(TAIL_BYTES - 7)
            if tail[start : start + 8] == (TAIL_BYTES - start).to_bytes(4) + BLANK_MAGIC
        ]
        total += length
    return total
