"""The full decode of a log per core, warm, compared with the official decoder in Java."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from typing import NamedTuple

from benchmarks import rocketmq
from benchmarks.bench import Bench
from benchmarks.measure import Command, CommandFailed, Measured
from benchmarks.page_cache import fill_page_cache
from benchmarks.section import Section, rate, seconds, times

#: Passes in one process of a decoder; the reference path has nothing to warm up, and is slower.
JAVA_PASSES = 10
PASSES = {"reference": 4, "fast": 10}
#: The ways to decode of `decode_rate`, as the report names them.
NAMES = {"reference": "reference", "fast": "accelerator"}
STORE = "M"
JAVA = "Java decoder"
INTRO = (
    "Bytes of commit log (M) per second of processor time, all threads of the process counted. *Text*: all 21 columns "
    "of every record as Arrow, hosts, topics and properties as text. *Audit*: what `audit` needs of every record: nine "
    "integer columns, topic, real topic and group as dictionary codes, the id as a view. *Java decoder*: the official "
    "decoder's object for every record, body left out, no columns. Passes repeat in one process; the median of the "
    "later half counts."
)
HEADER = ("program", "per CPU second", "per thread CPU second", "records per CPU second", "first pass, wall", "others")


class _Rates(NamedTuple):
    """The rates of one run of a decoder: medians over the later half of its passes; `first_pass_s` is wall time."""

    bytes_per_cpu_s: float
    bytes_per_thread_cpu_s: float
    records_per_cpu_s: float
    first_pass_s: float


def decode(bench: Bench) -> Section:
    """Measure the full decode of each engine, as text and as what `audit` needs, and a warmed-up Java loop."""
    section = Section("Full decode per core, warm", INTRO, HEADER)
    fill_page_cache(bench.store(STORE))
    measured = bench.measure_long([_java(bench), *_decoders(bench)])
    found: dict[str, list[float]] = {}
    for one in measured:
        rates = [_rates(bench, one.name, run.output) for run in one.runs]
        found[one.name] = [rate.bytes_per_cpu_s for rate in rates]
        section.rows.append(_row(one, rates))
        section.notes += [f"**{one.name} failed:** {one.failure}."] if one.failure else []
    for name, what, bound in (
        ("rmqtx, accelerator, audit", "what `audit` needs, to warm Java", 1.2),
        ("rmqtx, accelerator, text", "all columns as text, to warm Java", 0.7),
        ("rmqtx, reference, audit", "reference path, what `audit` needs, to warm Java", 0.5),
    ):
        section.at_least(what, _to_java(found, name), bound, times)
    reference = times(_to_java(found, "rmqtx, reference, text"))
    section.notes.append(f"The reference path decodes all columns as text at {reference} the warm Java decoder's rate.")
    return section


def _java(bench: Bench) -> Command:
    return Command(JAVA, rocketmq.java("JavaScan", bench.store(STORE), "nobody", "-", str(JAVA_PASSES)))


def _decoders(bench: Bench) -> list[Command]:
    """Return the decoders of this installation; the accelerator is one of them if it is installed."""
    program = [sys.executable, "-m", "benchmarks.decode_rate"]
    engines = subprocess.run([*program, "--engines"], capture_output=True, text=True, check=True).stdout.split()
    return [
        Command(
            f"rmqtx, {NAMES[engine]}, {work}",
            [*program, str(bench.store(STORE)), "--engine", engine, "--work", work, "--passes", str(PASSES[engine])],
        )
        for engine in engines
        for work in ("text", "audit")
    ]


def _rates(bench: Bench, program: str, output: str) -> _Rates:
    """Return the rates that a run printed, one JSON line per pass.

    Raises: CommandFailed if a pass decoded another number of records or half messages.
    """
    lines = [json.loads(line) for line in output.splitlines()]
    truth = bench.truth(STORE)
    for line in lines:
        if (line["records"], line.get("halves", truth.half_records)) != (truth.records, truth.half_records):
            raise CommandFailed(f"{program}: {line}, the truth is {truth.records} records, {truth.half_records} halves")
    warm = lines[len(lines) // 2 :]
    cpu = statistics.median(line["process_cpu_s"] for line in warm)
    thread = statistics.median(line.get("thread_cpu_s", line["process_cpu_s"]) for line in warm)
    log_bytes, records = warm[0]["bytes"], warm[0]["records"]
    return _Rates(log_bytes / cpu, log_bytes / thread, records / cpu, lines[0]["wall_s"])


def _row(one: Measured, rates: list[_Rates]) -> tuple[str, ...]:
    if not rates:
        return (one.name, "failed", "", "", "", "")
    middle = _Rates(*(statistics.median(column) for column in zip(*rates, strict=True)))
    return (
        one.name, rate(middle.bytes_per_cpu_s), rate(middle.bytes_per_thread_cpu_s),
        f"{middle.records_per_cpu_s:,.0f}", seconds(middle.first_pass_s), f"{one.others_share:.0%}",
    )


def _to_java(found: dict[str, list[float]], name: str) -> float:
    """Return the median over the turns of a decoder's rate to the Java decoder's; NaN if one did not run."""
    if not found.get(name) or not found.get(JAVA):
        return math.nan
    return statistics.median(ours / theirs for ours, theirs in zip(found[name], found[JAVA], strict=True))
