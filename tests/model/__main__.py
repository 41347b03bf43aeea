"""Audit the ends of the bounded worlds, and play some of their histories on the brokers' own classes.

`python -m tests.model`; exit status 1 if anything differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random

from tests.brokers import maven
from tests.histories.playing import Stage
from tests.model.auditing import chosen, judged, memory, worlds
from tests.model.judging import Judged
from tests.model.playing import Played, Player
from tests.model.rules import RELEASES
from tests.model.worlds import Reached, World, reached

_TOGETHER = 300
_MACHINES_MAX = 60


def played(version: str, found: dict[str, tuple[World, Reached]], histories: int, seed: int) -> Played:
    """Play some histories of each world on the classes of a release."""
    result = Played()
    with (
        tempfile.TemporaryDirectory(prefix="rmqtx-model-", dir=memory()) as home,
        closing(Stage(version, Path(home) / "machine")) as stage,
    ):
        for world, states in found.values():
            deep = list(states.before)[len(states.before) // 3 :]
            for number, state in enumerate(Random(seed).sample(deep, min(histories, len(deep)))):
                Player(stage.machine, world, Path(home) / "store").play(states.steps(state), result)
                if number % _MACHINES_MAX == _MACHINES_MAX - 1:
                    stage.close()
    return result


def main() -> int:
    """Audit and play, and print a line for each world and for each kind of difference."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--releases", nargs="+", choices=list(RELEASES), default=list(RELEASES))
    parser.add_argument("--worlds", nargs="+", choices=list(worlds("4.9.7")), default=["many", "ages"])
    parser.add_argument("--stores", type=int, default=sys.maxsize, help="of each world, judged without files")
    parser.add_argument("--files", type=int, default=300, help="stores of each world that are written and audited")
    parser.add_argument("--histories", type=int, default=30, help="of each world, on the classes of the release")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    is_bad = False
    why_not = maven.why_not()
    if options.histories and why_not is not None:
        print(f"no broker can be run: {why_not}", file=sys.stderr)
        return 1
    with ProcessPoolExecutor(options.processes) as pool:
        for version in options.releases:
            found = {}
            for name in options.worlds:
                begin = time.monotonic()
                world = worlds(version)[name]
                found[name] = world, reached(world)
                alone, files, count = chosen(*found[name], options.stores, options.files, options.seed)
                tasks = [pool.submit(judged, world, alone[first : first + _TOGETHER], from_files=False)
                         for first in range(0, len(alone), _TOGETHER)]
                tasks += [pool.submit(judged, world, files[first : first + 20], from_files=True)
                          for first in range(0, len(files), 20)]
                total = Judged()
                for task in tasks:
                    total.add(task.result())
                is_bad |= bool(total.violations)
                print(
                    f"{version} {name}: {len(found[name][1].before)} states, {count} ends; {len(alone)} judged, "
                    f"{len(files)} from files, {total.answers.total()} answers, undecided "
                    f"{dict(sorted(total.undecided.items()))}, {len(total.violations)} violations; "
                    f"{time.monotonic() - begin:.0f} s", flush=True,
                )
                _print(total.violations)
            if options.histories:
                both = played(version, found, options.histories, options.seed)
                is_bad |= bool(both.differences or both.audits.violations)
                print(
                    f"{version}: {both.histories} histories, {both.steps} steps on its classes, "
                    f"{len(both.differences)} differ; {both.audits.answers.total()} answers, "
                    f"{len(both.audits.violations)} violations", flush=True,
                )
                _print([*both.differences, *both.audits.violations])
    return int(is_bad)


def _print(lines: Sequence[str]) -> None:
    """Print each kind of difference once, with its shortest example and how often it occurs."""
    kinds = Counter(line.split(" (transaction", 1)[0][:200] for line in lines)
    for kind, times in kinds.most_common(20):
        print(f"  {times} times {min((one for one in lines if one.startswith(kind)), key=len)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
