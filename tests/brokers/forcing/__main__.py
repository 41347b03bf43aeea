"""`python -m tests.brokers.forcing`: races on real brokers, guarded and naive; the figures go into docs/forcing.md.

It takes about 15 minutes per version. `--only` and `--versions` make it shorter; figures of parts that were not played
again are kept from the previous run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.brokers import maven
from tests.brokers.forcing import bulk, played, races, report
from tests.brokers.forcing.naive import LOOKS
from tests.brokers.forcing.races import Size, guarded, unguarded
from tests.brokers.forcing.stage import Stage
from tests.brokers.forcing.tally import Tally

VERSIONS = ("4.9.7", "5.1.4", "5.3.3", "5.5.0")
QUICK_BATCH = {"transactionOpBatchInterval": "500"}
"""For the race with the check: if it runs more often than op batches are written, it never sees a decision."""

Part = Callable[[Stage, argparse.Namespace], list[dict[str, Any]]]


def _before(stage: Stage, options: argparse.Namespace) -> list[dict[str, Any]]:
    tally = Tally("a", stage.script.version, "rmqtx")
    races.producer_decides(stage, tally, guarded(stage.tool()), Size(options.count * 3 // 2))
    return [tally.row()]


def _naive(stage: Stage, options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for look in LOOKS:
        tally = Tally("a", stage.script.version, f"naive {look}")
        races.producer_decides(stage, tally, unguarded(look), Size(options.count // 2, 60))
        rows.append(tally.row())
    return rows


def _two(stage: Stage, options: argparse.Namespace) -> list[dict[str, Any]]:
    tally = Tally("c", stage.script.version, "rmqtx")
    races.two_at_once(stage, tally, (stage.tool(), stage.tool()), Size(options.count, 40))
    return [tally.row()]


def _after(stage: Stage, options: argparse.Namespace) -> list[dict[str, Any]]:
    return [vars(after) for after in races.decision_after_ours(stage, stage.tool())]


def _check(stage: Stage, options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for how, force in (("rmqtx", guarded(stage.tool())), ("naive both", unguarded("both"))):
        tally = Tally("b", stage.script.version, how)
        races.check_puts_back(stage, tally, force, Size(options.count if tally.is_guarded else options.count // 4, 40))
        rows.append(tally.row())
    return rows


def _bulk(stage: Stage, options: argparse.Namespace) -> list[dict[str, Any]]:
    return [bulk.plan(stage, stage.tool(), 1000)]


#: Parts by name; those of one line are played at the same time on one broker.
TOGETHER: tuple[dict[str, Part], ...] = (
    {"before": _before, "naive": _naive},
    {"two": _two, "after": _after},
    {"check": _check},
    {"bulk": _bulk},
)
NAMES = tuple(name for parts in TOGETHER for name in parts)


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.brokers.forcing", description=__doc__)
    parser.add_argument("--versions", nargs="*", default=list(VERSIONS))
    parser.add_argument("--only", nargs="*", default=list(NAMES), choices=NAMES, metavar="PART", help=", ".join(NAMES))
    parser.add_argument("--count", type=int, default=200, help="undecided transactions of a race (default 200)")
    parser.add_argument("--seed", type=int, default=7041)
    parser.add_argument("--results", type=Path, default=played.CACHE, help="where figures are kept between runs")
    parser.add_argument("--commit", help="what rmqtx was, if not this checkout's commit")
    parser.add_argument("--document", type=Path, default=report.DOCUMENT, help="the page to write")
    options = parser.parse_args()
    reason = maven.why_not()
    if reason is not None:
        print(f"no broker can be run here: {reason}", file=sys.stderr)
        return 2
    options.results.mkdir(parents=True, exist_ok=True)
    failed = False
    for version in options.versions:
        for parts in TOGETHER:
            wanted = {name: part for name, part in parts.items() if name in options.only}
            if wanted:
                failed |= not _play(version, wanted, options)
    report.write(options.results, options.document)
    return 1 if failed or not report.is_clean(options.results) else 0


def _play(version: str, parts: dict[str, Part], options: argparse.Namespace) -> bool:
    conf = QUICK_BATCH if "check" in parts and version.startswith("5.") else {}
    out = Path(tempfile.mkdtemp(prefix=f"forcing-{version}-"))
    failures: list[str] = []
    with Stage(version, out, conf, options.seed) as stage:

        def run(name: str, part: Part) -> None:
            began = time.monotonic()
            stage.logged(f"{name} begins")
            try:
                rows = part(stage, options)
            except Exception as failure:
                failures.append(f"{name}: {failure!r}")
                stage.logged(f"{name} failed: {failure!r}")
                return
            found = {
                "part": name, "version": version, "seed": options.seed, "commit": options.commit or played.commit(),
                "date": time.strftime("%Y-%m-%d"), "seconds": round(time.monotonic() - began), "rows": rows,
            }
            (options.results / f"{version}-{name}.json").write_text(json.dumps(found, indent=1) + "\n")
            stage.logged(f"{name}: {json.dumps(rows)}")

        threads = [threading.Thread(target=run, args=item) for item in parts.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if not failures:
        shutil.rmtree(out, ignore_errors=True)
    return not failures


if __name__ == "__main__":
    sys.exit(main())
