"""Measure what message traces cost: commands on a store with them, and on the same bytes under another topic.

    python -m benchmarks.traces --stores DIR

The stores T and U (1.2 GB each) are written first where they are missing; they differ in the name of one topic. Every
answer is compared with the truth. The exit status is 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import big_store
from benchmarks.bench import Bench, compile_modules
from benchmarks.measure import ratio, wait_until_quiet
from benchmarks.page_cache import fill_page_cache
from benchmarks.report import table
from benchmarks.section import DISTURBED_SHARE, times

#: How many times as long a command may take where there are traces.
TARGETS = {"audit": 1.15, "show": 1.10}
HEADER = ("command", "with traces, wall", "without", "ratio", "ratio, CPU", "target", "others")


def main(words: Sequence[str] | None = None) -> int:
    """The command line: measure, and print a row for each command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.traces")
    parser.add_argument("--stores", type=Path, required=True, metavar="DIR", help="where the stores are or go")
    parser.add_argument("--turns", type=int, default=5, metavar="N", help="runs of each command (default: 5)")
    options = parser.parse_args(words)
    stores: Path = options.stores.resolve()
    scratch = stores / ".traces"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    bench = Bench(stores, turns=options.turns, patience_s=60, retries=2, scratch=scratch)
    for name in ("T", "U"):
        big_store.write(big_store.RECIPES[name], stores)
        fill_page_cache(bench.store(name))
    compile_modules()
    wait_until_quiet(60, bench.say)
    rows, is_met = [], True
    for word, target in TARGETS.items():
        commands = [bench.audit(one, "parquet") if word == "audit" else bench.show(one) for one in ("T", "U")]
        traced, untraced = bench.measure(commands)
        found = ratio(traced, untraced)
        is_met &= found <= target
        share = max(traced.others_share, untraced.others_share)
        rows.append((
            word, f"{traced.wall_s:.2f} s", f"{untraced.wall_s:.2f} s", times(found),
            times(ratio(traced, untraced, "cpu_s")), f"≤ {times(target)}",
            f"{share:.0%}" + ("" if share <= DISTURBED_SHARE else ", **disturbed**"),
        ))
    shutil.rmtree(scratch)
    print("\n".join(table(HEADER, rows)))
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
