"""Write the stores of the benchmarks with RocketMQ's own store classes, each with its truth in files beside it.

    python -m benchmarks.big_store --stores DIR S M

`DIR/M` is then a stopped broker's store, `DIR/M.truth/truth.json` holds the totals (transactions in each
state, records, cursors) and `DIR/M.truth/pending.tsv` the transactions still open. Offsets and keys depend
on the recipe only, so two machines get the same truth.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import rocketmq

GIB = 1 << 30


@dataclass(frozen=True)
class Recipe:
    """The contents of a store; `options` are options of BigStore.java."""

    name: str
    transactions: int
    purpose: str
    about_bytes: int
    options: Mapping[str, str] = field(default_factory=dict)
    heap: str = "2g"


# 1,000 transactions that never get an answer and are never discarded, spread evenly over the store's lifetime
# and checked by the same number of passes; the store ends 2,000 transactions after the last pass. Only
# the log's length differs.
FLAT = {"open_count": "1000", "late_count": "100", "checkmax": "1000000", "passes": "20", "tail": "2000"}

# The same, but the open transactions are among the newest 50,000, and the passes are at the end too, as in the
# short log: the open transactions of a broker that discards after 15 checks.
RECENT = {**FLAT, "open_within": "50000", "check_within": "50000"}

# Few are open, among the newest 50,000: what `pending` looks up one by one.
FEW = {**RECENT, "open_count": "10", "late_count": "20", "delay": "150", "tail": "2000"}

# One group has every transaction, and eight of them are open: the checks, 10,000, put back each that is there.
SKEWED = {
    "groups": "1", "open_count": "8", "late_count": "0", "checkmax": "1000000", "passes": "10000", "delay": "24",
    "tail": "2000",
}

#: Where producers write message traces, and a topic with the same records that rmqtx does not read as traces.
TRACED, UNTRACED = {"traces": "RMQ_SYS_TRACE_TOPIC"}, {"traces": "RMQ_SYS_OTHER_TOPIC"}

RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("S", 50_000, "small: start-up dominates", GIB // 10),
        Recipe("M", 500_000, "one full commit-log file", GIB),
        Recipe("T", 500_000, "with message traces of all transactions", 2 * GIB, TRACED),
        Recipe("U", 500_000, "the same bytes, but their topic is not that of traces", 2 * GIB, UNTRACED),
        Recipe("F50k", 50_000, "flat: 1,000 open in a short log", GIB // 10, FLAT),
        Recipe("F5M", 5_000_000, "flat: 1,000 open in a long log", 9 * GIB, FLAT),
        Recipe("R5M", 5_000_000, "flat: 1,000 open, all recent, in a long log", 9 * GIB, RECENT),
        Recipe("N", 5_000_000, "100 open, all recent, in a long log", 9 * GIB, FEW),
        Recipe("L", 5_000_000, "large: 7 GB of log, audited whole", 9 * GIB),
        Recipe("C", 1_020_000, "skewed: one group, and up to 10,000 half copies of a transaction", 2 * GIB, SKEWED),
    )
}


def small_recipe(number: int) -> Recipe:
    """Return the recipe of one of many small stores; each has transactions of its own, so no two of them join."""
    return Recipe(f"{number:03}", 300, "one of many small stores", GIB // 64, {"seed": str(number + 2)})


@dataclass(frozen=True)
class Truth:
    """What the generator did, read from the files beside the store.

    `open_copies`: id of each pending transaction → commit-log offsets of its first and of its newest half copy, in
    the order of the first.
    """

    transactions: int
    committed: int
    rolled_back: int
    discarded: int
    pending: int
    half_cursor: int
    half_records: int
    records: int
    end_of_log: int
    open_copies: Mapping[str, tuple[int, int]]

    @property
    def pending_ids(self) -> frozenset[str]:
        """The ids of the transactions that are pending."""
        return frozenset(self.open_copies)

    def states(self) -> dict[str, int]:
        """Return the number of transactions in each state, by the names of `rmqtx audit`."""
        return {
            "COMMITTED": self.committed,
            "ROLLED_BACK": self.rolled_back,
            "DISCARDED": self.discarded,
            "PENDING": self.pending,
        }


def truth_of(store: Path) -> Truth:
    """Return the truth written beside a store."""
    directory = store.with_name(f"{store.name}.truth")
    totals = json.loads((directory / "truth.json").read_text())
    with (directory / "pending.tsv").open() as file:
        rows = sorted(csv.DictReader(file, delimiter="\t"), key=lambda row: int(row["first_commit_log_offset"]))
    return Truth(
        **{key: int(totals[key]) for key in Truth.__dataclass_fields__ if key != "open_copies"},
        open_copies={
            row["transaction_id"]: (int(row["first_commit_log_offset"]), int(row["last_commit_log_offset"]))
            for row in rows
        },
    )


def exists(store: Path) -> bool:
    """Whether a store is complete: the truth is moved into place last."""
    return (store.with_name(f"{store.name}.truth") / "truth.json").exists()


def written_by(recipe: Recipe, store: Path) -> bool:
    """Whether the options in a store's truth agree with a recipe."""
    totals = json.loads((store.with_name(f"{store.name}.truth") / "truth.json").read_text())
    options: dict[str, str] = totals["options"]
    wanted = {"transactions": str(recipe.transactions), **recipe.options}
    return all(options.get(key) == value for key, value in wanted.items())


def free_port() -> int:
    """Return a free port; the store's replication listener needs one even without connections."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def write(recipe: Recipe, directory: Path, nice: int = 0) -> Truth:
    """Write one store below `directory`, or keep an existing one, and return its truth."""
    store = directory / recipe.name
    if exists(store):
        if not written_by(recipe, store):
            raise SystemExit(f"{store} was written by another recipe: remove it and its .truth")
        return truth_of(store)
    free = shutil.disk_usage(directory).free
    if free < recipe.about_bytes + 2 * GIB:
        needed = recipe.about_bytes >> 20
        raise SystemExit(f"{recipe.name} needs about {needed} MiB, {free >> 20} MiB are free")
    part = directory / f"{recipe.name}.part"
    part_truth = directory / f"{recipe.name}.part.truth"
    for leftover in (part, part_truth, store):
        shutil.rmtree(leftover, ignore_errors=True)
    words = {"transactions": str(recipe.transactions), **recipe.options, "ha": str(free_port())}
    # The broker's classes also keep files in the home directory: give them a temporary one.
    options = [f"-Xmx{recipe.heap}", f"-Duser.home={part / 'home'}"]
    pairs = [f"{key}={value}" for key, value in words.items()]
    command = rocketmq.java("BigStore", part, *pairs, options=options)
    subprocess.run(["nice", "-n", str(nice), *command], check=True)
    shutil.rmtree(part / "home", ignore_errors=True)
    part.rename(store)
    part_truth.rename(directory / f"{recipe.name}.truth")
    return truth_of(store)


def main(words: Sequence[str] | None = None) -> int:
    """The command line: write the named stores, or list the recipes."""
    summary = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.big_store", description=summary)
    parser.add_argument("--stores", type=Path, required=True, metavar="DIR", help="where the stores go")
    parser.add_argument("--nice", type=int, default=0, metavar="N", help="run the generator at this niceness")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which stores; none: list the recipes")
    arguments = parser.parse_args(words)
    unknown = [name for name in arguments.names if name not in RECIPES]
    if unknown:
        parser.error(f"no such recipe: {', '.join(unknown)} (there are {', '.join(RECIPES)})")
    if not arguments.names:
        for recipe in RECIPES.values():
            there = "written" if exists(arguments.stores / recipe.name) else "not written"
            print(f"{recipe.name:5} {recipe.transactions:>9,} transactions, {recipe.purpose} ({there})")
        return 0
    arguments.stores.mkdir(parents=True, exist_ok=True)
    for name in arguments.names:
        began = time.monotonic()
        truth = write(RECIPES[name], arguments.stores.resolve(), arguments.nice)
        seconds = time.monotonic() - began
        size = f"{truth.records:,} records, {truth.end_of_log:,} bytes"
        print(f"{name}: {size}, {truth.states()}, {seconds:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
