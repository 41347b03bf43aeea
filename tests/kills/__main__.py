"""`python -m tests.kills`: acts in real processes, killed at random; prints the stores after the kills as a table."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.forge.stores import copy_of
from tests.kills.acts import ACTS, STORES, Case, Workplace
from tests.kills.rounds import MOMENTS, Left, killed, prepare


def main() -> int:
    """Exit status 1 if a store could not be repaired, or was acted on while it was half changed."""
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--only", help="stores with this in their name")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="rmqtx-kills-") as directory:
        top = Path(directory)
        workplaces = list(_workplaces(top, options.only))
        cases: dict[int, Case | None] = {}
        found: Counter[tuple[str, str, str]] = Counter()
        moments: Counter[str] = Counter()
        repairs: Counter[str] = Counter()
        number = wrong = 0
        while number < options.kills and (not cases or any(cases.values())):
            design, workplace = workplaces[chance.randrange(len(workplaces))]
            pristine, key = top / f"pristine-{workplace.name}", id(workplace)
            if key not in cases:
                cases[key] = _prepared(workplace, pristine, design)
            case = cases[key]
            if case is None:
                continue
            number += 1
            moment = MOMENTS[number % len(MOMENTS)]
            what = f"{number} {_described(workplace)}, {moment}"
            try:
                left: Left = killed(case, pristine, moment, chance)
            except AssertionError:
                wrong += 1
                found[design, workplace.act, "wrong"] += 1
                print(f"{what}: WRONG\n{traceback.format_exc(limit=-3)}", flush=True)
                continue
            found[design, workplace.act, left.found] += 1
            moments[moment] += 1
            repairs[left.repair] += 1
            print(f"{what}: {left.found}, repaired by {left.repair}", flush=True)
    _print_table(found)
    print(f"moments: {dict(moments)}; repaired by: {dict(repairs)}; seed {options.seed}; {wrong} wrong")
    return 1 if wrong else 0


def _workplaces(top: Path, only: str | None) -> Iterator[tuple[str, Workplace]]:
    """Every act on every store, by design."""
    for design, names in STORES.items():
        for name in names:
            if only and only not in name:
                continue
            copy_of(name, top / "unpacked").rename(top / f"pristine-{name}")
            for act, (_, designs) in ACTS.items():
                for is_copy in (False, True)[: 1 + (name == names[0])]:
                    if not designs or design in designs:
                        directory = f"{name}-{act.replace(' ', '-')}{'-to' if is_copy else ''}"
                        yield design, Workplace(top / directory, name, act, is_copy=is_copy)


def _described(workplace: Workplace) -> str:
    return f"{workplace.name} {workplace.act} {'--to' if workplace.is_copy else '--in-place'}"


def _prepared(workplace: Workplace, pristine: Path, design: str) -> Case | None:
    case = prepare(workplace, pristine, design)
    what = _described(workplace)
    if case is None:
        print(f"{what}: refused by its guards, not killed", flush=True)
    else:
        print(f"{what}: {case.seconds:.2f} s, {case.calls} calls that change files", flush=True)
    return case


def _print_table(found: Counter[tuple[str, str, str]]) -> None:
    kinds = ("old", "half", "done", "wrong")
    print(f"\n| design | act | kills | {' | '.join(kinds)} |\n|---|---|---|{'---|' * len(kinds)}")
    for design in STORES:
        for act in ACTS:
            counts = [found[design, act, kind] for kind in kinds]
            if sum(counts):
                print(f"| {design} | {act} | {sum(counts)} | {' | '.join(map(str, counts))} |")


if __name__ == "__main__":
    sys.exit(main())
