"""The measurements of Spark: the cost of its tasks compared with one plain process, by cores and by bytes."""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import big_store
from benchmarks.bench import Bench, rmqtx
from benchmarks.measure import Command, CommandFailed
from benchmarks.page_cache import fill_page_cache
from benchmarks.section import PROCESS_HEADER, Section, mebibytes, number, seconds, times

PASSES = 2


def spark_tasks(bench: Bench) -> Section:
    """Measure decoding in Spark's tasks and in a plain process, with one core and with two, on M and on L."""
    section = Section(
        "Spark: full decode",
        "Two cores (`local[2]`), and one that JVM and worker share (`local[1]`); the same decode, all columns as "
        "text: in one plain process, in tasks that return sums, and through the data source with all columns going to "
        "the JVM. The first job of a session is not counted; the median of the other passes is. CPU is that of all "
        "processes, the JVM's included.",
        ("what", "store", "cores", "wall", "CPU", "peak anonymous memory of a Python worker"),
    )
    medians: dict[tuple[str, str, int], tuple[float, float, float]] = {}
    starts: list[float] = []
    for cores in (2, 1):
        lines = _passes(bench, cores)
        starts.extend(float(line["wall_s"]) for line in lines if line["step"].startswith("session"))
        for key, values in _grouped(lines).items():
            medians[(*key, cores)] = values
    for (step, store, cores), (wall, cpu, memory) in sorted(medians.items()):
        row = (step, store, str(cores), seconds(wall), seconds(cpu), mebibytes(memory) if step != "plain" else "")
        section.rows.append(row)
    plain = medians["plain", "L", 2][1]
    sums, columns = medians["sums", "L", 2], medians["columns", "L", 2]
    section.at_most("core-seconds, sums return, to one plain process", sums[1] / plain, 2, times)
    section.at_most("core-seconds, all columns return", columns[1] / plain, 3.5, times)
    section.at_least("two cores to one, sums", medians["sums", "L", 1][0] / sums[0], 1.7, times)
    section.at_least("two cores to one, columns", medians["columns", "L", 1][0] / columns[0], 1.7, times)
    section.at_most("a worker's memory, L (10 × the bytes) to M", sums[2] / medians["sums", "M", 2][2], 1.25, times)
    section.at_most("wall time per byte, L to M, sums", _per_byte(medians, bench, "sums"), 1.1, times)
    section.at_most("wall time per byte, L to M, columns", _per_byte(medians, bench, "columns"), 1.1, times)
    section.notes.append(f"A session with its first job took {' and '.join(seconds(start) for start in starts)}.")
    return section


def spark_audit(bench: Bench) -> Section:
    """Measure `audit --engine spark` and the local engine on the large store."""
    section = Section(
        "`audit --engine spark` of 5,000,000 transactions",
        "Whole processes with start-up, on L, compared with the local engine.",
        PROCESS_HEADER,
    )
    fill_page_cache(bench.store("L"))
    commands = [_on_spark(bench.audit("L", "parquet")), bench.audit("L", "parquet")]
    measured = bench.measure_long(commands, turns=2)
    section.add_processes(measured)
    section.at_most(measured[0].name, measured[0].wall_s, 120, seconds)
    section.at_most("the same to the local engine, CPU", measured[0].cpu_s / measured[1].cpu_s, 2.5, times)
    section.add_processes(bench.measure_long([_on_spark(bench.audit("S", "parquet")), bench.audit("S", "parquet")], 1))
    return section


SMALL_COUNT = 300


def spark_shares(bench: Bench) -> Section:
    """Measure audits of many small stores, of a large store among small ones, and of a skewed one, in warm sessions."""
    section = Section(
        "Spark: many stores, and the share of each task",
        "`audit` in a session that is open, second pass of two; *local* is a whole process. Each of the *small* stores "
        "has 300 transactions of its own. Share: log bytes of a task that reads, shuffled bytes of a task that joins "
        "or judges, the largest compared with the median of its stage.",
        ("stores", "wall", "first row", "CPU", "most tasks of a stage", "share, reading", "share, joining, judging"),
    )
    small = _small_stores(bench)
    local = bench.measure_long([_local_audit(small)], turns=1)
    found = {
        "300 small": _shared(bench, small),
        "L and 100 small": _shared(bench, [bench.store("L"), *small[:100]]),
        "C": _shared(bench, [bench.store("C")]),
        "S": _shared(bench, [bench.store("S")]),
    }
    for name, one in found.items():
        last = one["passes"][-1]
        section.rows.append((
            name, seconds(last["wall_s"]), seconds(last["first_row_s"]), seconds(last["cpu_s"]),
            number(max(stage["tasks"] for stage in one["stages"])), times(_share(one["reading"])),
            times(_shuffled(one)),
        ))
    many = found["300 small"]
    section.at_most(
        "300 small stores, to the local engine, CPU", many["passes"][-1]["cpu_s"] / local[0].cpu_s, 2.5, times
    )
    section.at_most("the same, tasks of a stage", max(stage["tasks"] for stage in many["stages"]), 60, number)
    for name in ("L and 100 small", "C"):
        section.at_most(f"{name}, largest share, reading", _share(found[name]["reading"]), 2, times)
        section.at_most(f"{name}, largest share, joining and judging", _shuffled(found[name]), 2, times)
    section.at_most("first row of S in a session that is open", found["S"]["passes"][-1]["first_row_s"], 1.5, seconds)
    section.notes.append(f"The local engine audits the 300 small stores with {seconds(local[0].cpu_s)} of CPU.")
    return section


def _small_stores(bench: Bench) -> list[Path]:
    """Write the small stores that are missing."""
    root = bench.stores / "small"
    root.mkdir(exist_ok=True)
    recipes = [big_store.small_recipe(number) for number in range(SMALL_COUNT)]
    for recipe in recipes:
        big_store.write(recipe, root)
    return [root / recipe.name for recipe in recipes]


def _local_audit(stores: Sequence[Path]) -> Command:
    def check(output: str) -> None:
        rows = [json.loads(line) for line in output.splitlines()]
        expected = _states(stores)
        found = {state: sum(row[f"{state.lower()}_count"] for row in rows) for state in expected}
        if found != expected:
            raise CommandFailed(f"audit of small stores: {found}, the truth is {expected}")

    words = [*rmqtx(), "audit", *map(str, stores), "--summary", "--engine", "local", "--format", "jsonl"]
    return Command("rmqtx audit, 300 small", words, check)


def _states(stores: Sequence[Path]) -> dict[str, int]:
    """Return the true number of transactions in each state, of all stores together."""
    states: Counter[str] = Counter()
    for store in stores:
        states.update(big_store.truth_of(store).states())
    return {state: count for state, count in states.items() if count}


def _shared(bench: Bench, stores: Sequence[Path]) -> dict[str, Any]:
    """Return what `spark_shares` measured, compared with the truth of the stores."""
    words = [sys.executable, "-m", "benchmarks.spark_shares", "--passes", "2", *map(str, stores)]
    (measured,) = bench.measure_long([Command(f"Spark, {len(stores)} stores", words)], turns=1)
    if measured.failure:
        raise CommandFailed(measured.failure)
    found: dict[str, Any] = json.loads(measured.runs[0].output)
    if any(one["states"] != _states(stores) for one in found["passes"]):
        raise CommandFailed(f"audit of {len(stores)} stores: not the truth")
    return found


def _share(tasks: Mapping[str, float]) -> float:
    return tasks["max_bytes"] / max(tasks["median_bytes"], 1)


def _shuffled(found: Mapping[str, Any]) -> float:
    stages = [stage for stage in found["stages"] if stage["job"].startswith("rmqtx audit") and stage["median_bytes"]]
    return max((_share(stage) for stage in stages), default=math.nan)


def _on_spark(command: Command) -> Command:
    words = [*command.words, "--engine", "spark", "--master", "local[2]"]
    return replace(command, name=f"{command.name} --engine spark", words=words)


def _passes(bench: Bench, cores: int) -> list[dict[str, str]]:
    """Return the lines of `spark_rate` for one session, compared with the truth of the stores."""
    for name in ("M", "L"):
        fill_page_cache(bench.store(name))
    words = [sys.executable, "-m", "benchmarks.spark_rate", str(bench.store("M")), str(bench.store("L")),
             "--cores", str(cores), "--passes", str(PASSES)]
    command = Command(f"Spark, {cores} cores", [*words, *(["--without-plain"] if cores == 1 else [])])
    (measured,) = bench.measure_long([command], turns=1)
    if measured.failure:
        raise CommandFailed(measured.failure)
    lines = [json.loads(line) for line in measured.runs[0].output.splitlines()]
    for line in lines:
        if line["records"] not in (None, big_store.truth_of(bench.store(line["store"])).records):
            raise CommandFailed(f"{line['step']} {line['store']}: {line['records']} records")
    return lines


def _grouped(lines: list[dict[str, str]]) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Median wall and CPU seconds and the highest memory by step and store."""
    groups: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for line in lines:
        if line["records"] is not None:
            groups[line["step"], line["store"]].append(line)
    return {
        key: (
            statistics.median(float(line["wall_s"]) for line in group),
            statistics.median(float(line["cpu_s"]) for line in group),
            max(float(line["worker_bytes"]) for line in group),
        )
        for key, group in groups.items()
    }


def _per_byte(medians: dict[tuple[str, str, int], tuple[float, float, float]], bench: Bench, step: str) -> float:
    ends = {name: big_store.truth_of(bench.store(name)).end_of_log for name in ("M", "L")}
    return (medians[step, "L", 2][0] / ends["L"]) / (medians[step, "M", 2][0] / ends["M"])
