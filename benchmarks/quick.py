"""Measure the ratios that a slower commit changes, in three minutes, and add them to docs/benchmark_quick.md.

    python -m benchmarks.quick --stores DIR

The stores S (70 MB) and M (700 MB) are written first where they are missing. A row is of one run; rows of different
machines are not compared.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import big_store
from benchmarks.bench import Bench, compile_modules, imports, rmqtx
from benchmarks.measure import Command, ratio, wait_until_quiet
from benchmarks.page_cache import fill_page_cache
from benchmarks.report import REPOSITORY, commit, table
from benchmarks.section import DISTURBED_SHARE, times
from benchmarks.sections.audit import audit_commands

PAGE = REPOSITORY / "docs" / "benchmark_quick.md"
INTRO = """# Quick benchmark

Written by `make benchmark-quick`, a row a run; compare rows of one machine only. Every answer is compared with the
truth of its store. *help*: `rmqtx --help` to `import typer`, CPU. *small*: `pending` on S (70 MB) to `import numpy,
pyarrow`, CPU. *pending*: how many times as long the Java loop takes on M (700 MB). *audit*: `audit` of M to Parquet,
to the Java loop that keeps only pending transactions, wall time and CPU. *jsonl*, *summary*: the same audit as JSON
lines and as `--summary`, to Parquet. *others*: the largest share of the machine that other processes took.
"""
HEADER = (
    "date", "commit", "help", "small", "pending", "audit", "audit, CPU", "jsonl", "summary", "peak of audit", "others",
)


def row(bench: Bench) -> tuple[str, ...]:
    """Return the row of one run."""
    fill_page_cache(bench.store("M"))
    help_page = Command("rmqtx --help", [*rmqtx(), "--help"])
    commands = [help_page, imports("typer"), bench.pending("S"), imports("numpy", "pyarrow")]
    shown, typer, small, libraries = bench.measure(commands, turns=7)
    pending, java, parquet, jsonl, summary = bench.measure(
        [bench.pending("M"), bench.java_pending("M"), *audit_commands(bench, "M")], turns=3
    )
    share = max(bench.shares, default=0.0)
    others = f"{share:.0%}" + ("" if share <= DISTURBED_SHARE else ", **disturbed**")
    return (
        f"{datetime.now(UTC):%Y-%m-%d}", commit(),
        times(ratio(shown, typer, "cpu_s")), times(ratio(small, libraries, "cpu_s")),
        times(ratio(java, pending)), times(ratio(parquet, java)), times(ratio(parquet, java, "cpu_s")),
        times(ratio(jsonl, parquet)), times(ratio(summary, parquet)),
        f"{parquet.peak_anonymous_bytes / (1 << 20):,.0f} MiB", others,
    )


def main(words: Sequence[str] | None = None) -> int:
    """The command line: measure, print the row, add it to the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quick")
    parser.add_argument("--stores", type=Path, required=True, metavar="DIR", help="where the stores are or go")
    stores: Path = parser.parse_args(words).stores.resolve()
    scratch = stores / ".quick"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    bench = Bench(stores, turns=3, patience_s=60, retries=2, scratch=scratch)
    for name in ("S", "M"):
        big_store.write(big_store.RECIPES[name], stores)
    compile_modules()
    wait_until_quiet(60, bench.say)
    made = row(bench)
    shutil.rmtree(scratch)
    lines = PAGE.read_text().splitlines() if PAGE.exists() else [*INTRO.splitlines(), "", *table(HEADER, [])]
    PAGE.write_text("\n".join([*lines, "| " + " | ".join(made) + " |"]) + "\n")
    print("\n".join(table(HEADER, [made])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
