"""The damage matrix: each kind of file × flip, zero, truncate, duplicate, drop, swap, grow × head, middle, tail.

Every case must be found by a verification, unless all bytes that changed are on the list that docs/meaningless_bytes.md
gives; and no record that the damage did not touch may be lost. `python -m tests.fuzz.matrix --cases N` plays N of them.
"""

from __future__ import annotations

import argparse
import itertools
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from readers.job_runner import run_job
from readers.splits import plan_splits
from readers.store import HALF_TOPIC, OP_TOPIC, Store, open_store
from readers.verify import FULL, Verify
from tests.brokers import corpus
from tests.fuzz.meaningless import is_meaningless, records_of, used_bytes
from tests.fuzz.rounds import TookTooLong, alarm

STORES = ("common-4.3.0", "common-4.9.7", "common-5.3.3", "killed-4.4.0", "killed-5.1.4", "killed-5.5.0")
KINDS: dict[str, str] = {
    "log": "commitlog/*",
    "half queue": f"consumequeue/{HALF_TOPIC}/*/*",
    "op queue": f"consumequeue/{OP_TOPIC}/*/*",
    "other queue": "consumequeue/[a-z]*/*/*",
    "index": "index/*",
    "checkpoint": "checkpoint",
    "cursors": "config/consumerOffset.json",
    "topics": "config/topics.json",
}
PLACES = ("head", "middle", "tail")
SECONDS_MAX = 20
_BLOCK_BYTES_MAX = 600

Deed = Callable[[bytes, int, random.Random], bytes | None]


def _flip(data: bytes, place: int, chance: random.Random) -> bytes:
    return data[:place] + bytes([data[place] ^ chance.randint(1, 255)]) + data[place + 1 :]


def _zero(data: bytes, place: int, chance: random.Random) -> bytes:
    length = min(chance.randint(1, _BLOCK_BYTES_MAX), len(data) - place)
    return data[:place] + bytes(length) + data[place + length :]


def _truncate(data: bytes, place: int, _chance: random.Random) -> bytes:
    return data[:place]


def _duplicate(data: bytes, place: int, chance: random.Random) -> bytes:
    """A block once more, over what follows it."""
    length = min(chance.randint(1, _BLOCK_BYTES_MAX), max(1, (len(data) - place) // 2))
    block = data[place : place + length]
    return (data[: place + length] + block + data[place + 2 * length :])[: len(data)]


def _drop(data: bytes, place: int, chance: random.Random) -> bytes | None:
    """A block is gone and what follows moves up; sometimes the whole file is."""
    if chance.random() < 0.2:
        return None
    length = chance.randint(1, _BLOCK_BYTES_MAX)
    return (data[:place] + data[place + length :]).ljust(len(data), b"\0")


def _swap(data: bytes, place: int, chance: random.Random) -> bytes:
    """Two neighbouring blocks of one length change places."""
    length = min(chance.choice((4, 8, 20, chance.randint(1, _BLOCK_BYTES_MAX))), max(1, (len(data) - place) // 2))
    one, other = data[place : place + length], data[place + length : place + 2 * length]
    return data[:place] + other + one + data[place + 2 * length :]


def _grow(data: bytes, place: int, chance: random.Random) -> bytes:
    return data[:place] + chance.randbytes(chance.randint(1, _BLOCK_BYTES_MAX)) + data[place:]


DEEDS: dict[str, Deed] = {
    "flip": _flip, "zero": _zero, "truncate": _truncate, "duplicate": _duplicate, "drop": _drop, "swap": _swap,
    "grow": _grow,
}
CELLS = tuple(itertools.product(STORES, KINDS, DEEDS, PLACES))


@dataclass(frozen=True)
class Baseline:
    """A store undamaged: what is found, and the places of its records."""

    root: Path
    rows: frozenset[str]
    offsets: frozenset[tuple[str, int, int]]


def _rows(store: Store) -> frozenset[str]:
    rows: list[dict[str, Any]] = run_job(Verify(FULL), plan_splits([store]), processes=1).table().to_pylist()
    return frozenset(str(row) for row in rows)


@cache
def baseline(name: str) -> Baseline:
    """A store of the corpus in a directory of this process."""
    root = corpus.unpack(name, Path(tempfile.mkdtemp(prefix="rmqtx-matrix-")))
    store = open_store(root)
    return Baseline(root, _rows(store), frozenset(records_of(store)))


@dataclass(frozen=True)
class Played:
    """One case: what was done, whether it was found, and what went wrong (empty: nothing)."""

    number: int
    cell: tuple[str, str, str, str]
    done: str
    is_found: bool = False
    wrong: str = ""


def _place(data: bytes, where: str, chance: random.Random) -> int:
    """A place in the used part of a file: in its first, middle or last twentieth (in a checkpoint, all are near)."""
    used = max(1, used_bytes(data))
    width = max(1, used // 20)
    begin = {"head": 0, "middle": (used - width) // 2, "tail": used - width}[where]
    return begin + chance.randrange(width)


def play(number: int, seed: int = 0) -> Played:
    """The case of a number; everything in it follows from the number and the seed."""
    cell = CELLS[number % len(CELLS)]
    chance = random.Random(f"{seed} {number}")
    name, kind, deed, where = cell
    base = baseline(name)
    files = [file for file in sorted(base.root.glob(KINDS[kind])) if file.stat().st_size and any(file.read_bytes())]
    if not files:
        return Played(number, cell, "no such file", is_found=True)
    file = chance.choice(files)
    before = file.read_bytes()
    after = DEEDS[deed](before, _place(before, where, chance), chance)
    done = f"{file.relative_to(base.root)}: {_change(before, after)}"
    if after == before:
        return Played(number, cell, "nothing changed", is_found=True)
    try:
        _write(file, after)
        with alarm(SECONDS_MAX):
            store = open_store(base.root)
            rows = _rows(store) - base.rows
            lost = _lost(base, store, file, before, after)
    except TookTooLong as error:
        return Played(number, cell, done, wrong=str(error))
    except Exception as error:
        return Played(number, cell, done, wrong="".join(traceback.format_exception(error)))
    finally:
        _write(file, before)
    if lost:
        return Played(number, cell, done, bool(rows), f"undamaged records are lost: {sorted(lost)[:3]}")
    if not rows and not is_meaningless(kind, file, before, after):
        return Played(number, cell, done, wrong="not found, and not on the list of meaningless bytes")
    return Played(number, cell, done, bool(rows))


def _write(file: Path, data: bytes | None) -> None:
    if data is None:
        file.unlink()
    else:
        file.write_bytes(data)


def _change(before: bytes, after: bytes | None) -> str:
    if after is None:
        return "is gone"
    if len(before) != len(after):
        return f"{len(before)} bytes became {len(after)}"
    places = np.flatnonzero(np.frombuffer(before, np.uint8) != np.frombuffer(after, np.uint8))
    return f"{len(places)} bytes changed from {places[0]} to {places[-1]}" if len(places) else "unchanged"


def _lost(base: Baseline, store: Store, file: Path, before: bytes, after: bytes | None) -> set[tuple[str, int, int]]:
    """Records that the damage did not touch and that are not read any more."""
    if file.parent.name != "commitlog":
        return set()
    first = _first_change(before, after)
    last = _last_change(before, after)
    now = set(records_of(store))
    return {
        record
        for record in base.offsets - now
        if record[0] != str(file) or record[1] + record[2] <= first or record[1] > last
    }


def _first_change(before: bytes, after: bytes | None) -> int:
    if after is None:
        return 0
    shared = min(len(before), len(after))
    places = np.flatnonzero(np.frombuffer(before[:shared], np.uint8) != np.frombuffer(after[:shared], np.uint8))
    return int(places[0]) if len(places) else shared


def _last_change(before: bytes, after: bytes | None) -> int:
    if after is None or len(before) != len(after):
        return len(before)
    places = np.flatnonzero(np.frombuffer(before, np.uint8) != np.frombuffer(after, np.uint8))
    return int(places[-1]) if len(places) else 0


def cases(count: int, first: int, seed: int) -> Iterator[Played]:
    """Some of the cases, one after another."""
    for number in range(first, first + count):
        yield play(number, seed)


def main() -> int:
    """Exit status 1 if any case went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.matrix", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--failures", type=int, default=10, help="stop after so many")
    options = parser.parse_args()
    wrong: list[Played] = []
    found = done = 0
    begin = time.monotonic()
    for one in cases(options.cases, options.first, options.seed):
        done += 1
        found += one.is_found
        if one.wrong:
            wrong.append(one)
            print(f"\ncase {one.number}: {' / '.join(one.cell)}\n  {one.done}\n  {one.wrong}", flush=True)
            if len(wrong) >= options.failures:
                break
    for name in STORES:
        shutil.rmtree(baseline(name).root.parent, ignore_errors=True)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{done} cases: {found} found, {done - found - len(wrong)} meaningless, {len(wrong)} wrong; "
          f"{time.monotonic() - begin:.0f} s, at most {peak_mib} MiB", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
