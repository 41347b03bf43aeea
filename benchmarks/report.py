"""Measure rmqtx against its targets and other programs in one run, and write docs/performance.md.

    python -m benchmarks.report --stores DIR
    python -m benchmarks.report --stores DIR --only spark,sparkaudit,sparkshares --output docs/performance_spark.md

Missing stores are written first. Ratios are of programs that ran in turns in this run; numbers of different runs or
machines are not compared.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from benchmarks import big_store, rocketmq
from benchmarks.bench import LIBRARY_FOLDERS, Bench, compile_modules, has_package
from benchmarks.measure import CORES, wait_until_quiet
from benchmarks.section import DISTURBED_SHARE, NOT_MEASURED, Section, Target
from benchmarks.sections.by_name import SECTIONS, SPARK_SECTIONS

REPOSITORY = Path(__file__).resolve().parent.parent
#: Changes in these mark the commit of a report.
MEASURED_FILES = (*LIBRARY_FOLDERS, "rmqtx", "rmqtx_cli", "benchmarks", "pyproject.toml")
EVERY_SECTION = {**SECTIONS, **SPARK_SECTIONS}
PACKAGES = ("numpy", "pyarrow", "numba", "pyspark", "typer", "tabulate", "rich")


def circumstances(load_before: tuple[float, float, float], others_share: float) -> list[tuple[str, str]]:
    """Return the conditions of the numbers: machine, load and disturbance, versions, commit."""
    described = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    processor = described[0].split(":", 1)[1].strip() if described else platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    java = subprocess.run(
        ["java", "-version"], capture_output=True, text=True, check=True
    ).stderr.splitlines()
    packages = [f"{name} {metadata.version(name)}" for name in PACKAGES if has_package(name)]
    load = [f"{value:.2f}" for value in (load_before[0], os.getloadavg()[0])]
    noise = "" if others_share <= DISTURBED_SHARE else ". **Disturbed: the times below mean little**"
    return [
        ("Date", f"{datetime.now(UTC):%Y-%m-%d}"),
        ("Machine", f"{processor}, {CORES} cores, {memory / (1 << 30):.0f} GiB"),
        ("System", f"{platform.system()} {platform.release()}"),
        ("Load", f"{load[0]} before, {load[1]} after; others used at most {others_share:.0%}{noise}"),
        ("Python", f"{platform.python_version()}; {', '.join(packages)}"),
        ("Java", f"{java[1] if len(java) > 1 else java[0]}; RocketMQ {rocketmq.VERSION}"),
        ("Commit", commit()),
    ]


def commit() -> str:
    """Return the measured commit, and whether files had uncommitted changes."""
    git = ["git", "-C", str(REPOSITORY)]
    name = subprocess.run(
        [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
    )
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--", *MEASURED_FILES], capture_output=True, text=True, check=True
    )
    return name.stdout.strip() + (" with uncommitted changes" if changed.stdout.strip() else "")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def render(title: str, sections: Sequence[Section], facts: Sequence[tuple[str, str]], stores: Path) -> str:
    """The whole report as Markdown."""
    lines = [
        f"# {title}",
        "",
        INTRO,
        "",
        *table(("", ""), facts),
        "",
        "## Targets",
        "",
        *table(
            ("what", "target", "measured", ""),
            [_target_row(section, target) for section in sections for target in section.targets],
        ),
    ]
    for section in sections:
        lines += ["", f"## {section.title}", "", section.intro, ""]
        if section.rows:
            lines += table(section.header, section.rows)
        notes = [*section.notes]
        if section.is_disturbed:
            notes.append(f"**Disturbed:** other processes took up to {section.others_share:.0%} of the machine.")
        if notes:
            lines += ["", " ".join(notes)]
    lines += ["", "## Stores", "", STORES_INTRO, ""]
    rows = []
    for recipe in big_store.RECIPES.values():
        if big_store.exists(stores / recipe.name):
            truth = big_store.truth_of(stores / recipe.name)
            numbers = (truth.transactions, truth.records, truth.end_of_log, truth.pending, truth.discarded)
            rows.append((recipe.name, recipe.purpose, *(f"{number:,}" for number in numbers)))
    header = ("store", "purpose", "transactions", "records", "bytes of log", "pending", "discarded")
    lines += table(header, rows)
    return "\n".join(lines) + "\n"


def _target_row(section: Section, target: Target) -> tuple[str, ...]:
    verdict = "kept" if target.kept else "**missed**"
    return (target.what, target.bound, target.value, f"{verdict}, disturbed" if section.is_disturbed else verdict)


def measure_sections(bench: Bench, names: Sequence[str]) -> list[Section]:
    """Return the sections; after an interrupt, those that are missing are in the report as not measured."""
    sections: list[Section] = []
    for name in names:
        try:
            sections.append(measure_section(bench, name))
        except KeyboardInterrupt:
            return sections + [_not_measured(missing, "interrupted") for missing in names[len(sections) :]]
    return sections


def measure_section(bench: Bench, name: str) -> Section:
    """Return a section by its name, with what it took of time and what disturbed it; a failed one has the reason."""
    bench.say(f"== {name}")
    already = len(bench.shares)
    began = time.monotonic()
    try:
        section = EVERY_SECTION[name].measure(bench)
    except Exception as error:  # the other sections are still useful
        traceback.print_exc()
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        section = _not_measured(name, reason)
    section.others_share = max(bench.shares[already:], default=0.0)
    for target in section.targets:
        verdict = "kept  " if target.kept else "MISSED"
        bench.say(f"{verdict} {target.what}: {target.value} ({target.bound})")
    bench.say(f"== {name} took {time.monotonic() - began:.0f} s")
    return section


def _not_measured(name: str, reason: str) -> Section:
    section = Section(name, f"Not measured: {reason}")
    section.targets.append(Target(f"section {name}", "", NOT_MEASURED, False))
    return section


INTRO = (
    "Written by `python -m benchmarks.report`; do not edit. Programs that are compared ran in "
    "turns in one run, and every answer was compared with the truth of its store. *CPU* is user and system "
    "time, children included. *Peak anonymous* is memory that cannot be dropped; resident memory also counts "
    "mapped files. *Others* is the largest share of the machine that other processes took during a run."
)
STORES_INTRO = (
    "Written by RocketMQ's own store classes (`python -m benchmarks.big_store --stores DIR NAME`); the "
    "generator chooses when decisions arrive, and makes a check pass after a number of transactions."
)


def main(words: Sequence[str] | None = None) -> int:
    """The command line: measure, print progress, write the report; return 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report")
    parser.add_argument(
        "--stores", type=Path, required=True, metavar="DIR", help="where the stores are or go"
    )
    parser.add_argument("--output", type=Path, default=REPOSITORY / "docs" / "performance.md", metavar="FILE")
    parser.add_argument("--turns", type=int, default=5, help="how often each program runs (default 5)")
    parser.add_argument(
        "--patience", type=float, default=60, metavar="S", help="maximum wait for an idle machine"
    )
    parser.add_argument(
        "--retries",
        type=int,
        default=3,
        metavar="N",
        help="how many disturbed turns of a table are repeated",
    )
    parser.add_argument(
        "--only", default="", metavar="NAMES",
        help=f"some of {','.join(EVERY_SECTION)} (default: all but Spark's)",
    )
    arguments = parser.parse_args(words)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that started processes are ended too
    names = [name for name in arguments.only.split(",") if name] or list(SECTIONS)
    if unknown := [name for name in names if name not in EVERY_SECTION]:
        parser.error(f"no such section: {', '.join(unknown)}")
    stores: Path = arguments.stores.resolve()
    stores.mkdir(parents=True, exist_ok=True)
    scratch = stores / ".report"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    bench = Bench(stores, arguments.turns, arguments.patience, arguments.retries, scratch)
    for store in dict.fromkeys(store for name in names for store in EVERY_SECTION[name].stores):
        bench.say(f"store {store}")
        big_store.write(big_store.RECIPES[store], stores)
    compile_modules()
    load = os.getloadavg()
    wait_until_quiet(arguments.patience, bench.say)
    sections = measure_sections(bench, names)
    title = "Performance" if set(names) - set(SPARK_SECTIONS) else "Performance on Spark"
    text = render(title, sections, circumstances(load, max(bench.shares, default=0.0)), stores)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(text)
    bench.say(f"written: {arguments.output}")
    shutil.rmtree(scratch, ignore_errors=True)
    return 0 if all(target.kept for section in sections for target in section.targets) else 1


if __name__ == "__main__":
    sys.exit(main())
