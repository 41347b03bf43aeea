"""Play histories on the brokers' own classes and compare what rmqtx says; `python -m tests.histories`.

Exit status 1 if anything differs. A history that differs is made short, and kept with its store.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from pathlib import Path

import pytest

from tests.brokers import maven
from tests.histories.machine import RELEASES
from tests.histories.playing import Result, Stage, played
from tests.histories.steps import (
    ROCKSDB_QUEUE_RELEASES,
    ROCKSDB_RELEASES,
    Step,
    drawn_history,
    small_count,
    small_history,
    with_rocksdb,
    with_rocksdb_queues,
)

_CHUNK = 60
#: A file system in memory; without it, temporary files are where they always are.
_IN_MEMORY = Path("/dev/shm")


def chunk(
    version: str, seeds: range, small_length: int | None, kept: Path | None, changed: Callable[[Step], Step] | None
) -> Result:
    """Play some seeds on a release, or with `small_length` some histories of the small world.

    `changed`: makes another history of each, as of a broker that keeps transactions in RocksDB.
    """
    result = Result(version)
    histories = (
        drawn_history(seed) if small_length is None else small_history(seed, small_length) for seed in seeds
    )
    with (
        tempfile.TemporaryDirectory(prefix="rmqtx-histories-", dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None) as home,
        pytest.MonkeyPatch.context() as patch,
        closing(Stage(version, Path(home))) as stage,
    ):
        # Each audit looks for what dead runs left beside its temporary folder, and /tmp can have thousands of names.
        patch.setattr(tempfile, "tempdir", home)
        for history, found in played(stage, histories if changed is None else map(changed, histories), kept):
            result.histories += 1
            result.counts += found.counts
            if found.differences:
                result.differing[history["seed"]] = found.differences
    return result


def main() -> int:
    """Play, and print a line for each release and for each difference."""
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=__doc__)
    parser.add_argument("--histories", type=int, default=100, help="of each release")
    parser.add_argument("--seed", type=int, default=0, help="of the first history; the others count up")
    parser.add_argument("--small", type=int, metavar="STEPS", help="all histories of a small world with so many steps")
    parser.add_argument("--releases", nargs="+", help="any from 4.3.0 on; without it the usual ones")
    parser.add_argument("--rocksdb", action="store_true", help="transactions in RocksDB (5.4.0 and later)")
    parser.add_argument("--rocksdb-queues", action="store_true", help="consume queues in RocksDB (5.2.0 and later)")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="where the stores of histories that differ are kept")
    options = parser.parse_args()
    known: tuple[str, ...] = RELEASES
    changed: Callable[[Step], Step] | None = None
    if options.rocksdb:
        known, changed = ROCKSDB_RELEASES, with_rocksdb
    elif options.rocksdb_queues:
        known, changed = ROCKSDB_QUEUE_RELEASES, with_rocksdb_queues
    options.releases = options.releases or known
    why_not = maven.why_not()
    if why_not is not None:
        print(f"no broker can be run: {why_not}", file=sys.stderr)
        return 1
    for version in options.releases:
        try:
            maven.jars(version)
        except subprocess.CalledProcessError:
            log = maven.cache_directory() / version / "mvn.log"
            print(f"Maven has no broker {version}: see {log}", file=sys.stderr)
            return 1
    begin = time.monotonic()
    results = {version: Result(version) for version in options.releases}
    if options.small is not None:
        options.seed, options.histories = 0, small_count(options.small)
    end = options.seed + options.histories
    with ProcessPoolExecutor(options.processes) as pool:
        tasks = [
            pool.submit(chunk, version, range(first, min(first + _CHUNK, end)), options.small, options.keep, changed)
            for first in range(options.seed, end, _CHUNK)
            for version in options.releases
        ]
        for task in as_completed(tasks):
            one = task.result()
            total = results[one.version]
            total.histories += one.histories
            total.counts += one.counts
            total.differing |= one.differing
            for seed, sentences in one.differing.items():
                print(f"{one.version} {seed}: {len(sentences)} differences", *sentences[:6], sep="\n  ", flush=True)
    for one in results.values():
        print(
            f"{one.version}: {one.histories} histories, {len(one.differing)} differ; {dict(sorted(one.counts.items()))}"
        )
    counts = sum((one.counts for one in results.values()), Counter())
    histories = sum(one.histories for one in results.values())
    seconds = time.monotonic() - begin
    print(f"{histories} histories, {counts.total()} answers, {histories / seconds * 3600:.0f} histories an hour")
    return 1 if any(one.differing for one in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
