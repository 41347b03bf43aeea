"""Measure an audit into a table that grows: a store of 700 MB in twenty steps, each kind of table, beside new audits.

    python -m benchmarks.growing --stores DIR --work DIR2 [--kinds parquet,delta,iceberg]

The store M is written first where it is missing. Its log is copied step by step; queue slots and cursors are those of
the copied part. Prints the table of docs/growing_verdicts.md. CPU seconds are of whole processes, with their start.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import big_store
from benchmarks.bench import rmqtx
from rmqtx.readers.queues.consume_queue import SLOT

STEPS = 20
COPIED = ("config", "lock", "abort.bak")
CATALOG = {"TYPE": "sql", "URI": "sqlite:///{}/catalog.sqlite", "WAREHOUSE": "file://{}/warehouse"}


@dataclass(frozen=True)
class Cost:
    """What a process took. Units: seconds, bytes."""

    wall_s: float
    cpu_s: float
    peak_rss_bytes: int
    message: str


def cost_of(words: list[str], environment: dict[str, str]) -> Cost:
    """Run a command; its exit status must be 0 or 3."""
    begun_s = time.monotonic()
    process = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                               env={**os.environ, **environment})
    assert process.stderr is not None
    message = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 3):
        sys.exit(f"{' '.join(words)}: status {process.returncode}\n{message}")
    return Cost(time.monotonic() - begun_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, message)


class Growth:
    """A store whose log has one file, as it was when a part of the file was written."""

    def __init__(self, whole: Path, root: Path, end: int) -> None:
        self.whole, self.root, self.end = whole, root, end
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        for name in COPIED:
            if (whole / name).is_dir():
                shutil.copytree(whole / name, root / name)
            elif (whole / name).exists():
                shutil.copy(whole / name, root / name)
        self._log = next((whole / "commitlog").iterdir())
        (root / "commitlog").mkdir()
        with open(root / "commitlog" / self._log.name, "wb") as file:
            file.truncate(self._log.stat().st_size)
        self._done = 0

    def write_to(self, offset: int) -> None:
        """Copy the log up to an offset, and the queue slots of its records."""
        with open(self._log, "rb") as old, open(self.root / "commitlog" / self._log.name, "r+b") as new:
            old.seek(self._done)
            new.seek(self._done)
            while self._done < offset:
                data = old.read(min(16 << 20, offset - self._done))
                new.write(data)
                self._done += len(data)
        shares: dict[str, tuple[int, int]] = {}
        for file in sorted((self.whole / "consumequeue").glob("*/*/0*")):
            slots = np.fromfile(file, np.uint8).reshape(-1, SLOT.size_bytes)
            places = slots[:, :8].copy().view(">i8").ravel()
            sizes = slots[:, 8:12].copy().view(">i4").ravel()
            kept = slots.copy()
            kept[(sizes > 0) & (places + sizes > offset)] = 0
            to = self.root / file.relative_to(self.whole)
            to.parent.mkdir(parents=True, exist_ok=True)
            kept.tofile(to)
            topic = file.parent.parent.name
            now, written = shares.get(topic, (0, 0))
            shares[topic] = now + int(kept[:, 8:12].any(axis=1).sum()), written + int((sizes > 0).sum())
        self._set_cursors(shares)

    def _set_cursors(self, shares: dict[str, tuple[int, int]]) -> None:
        path = self.whole / "config" / "consumerOffset.json"
        text = path.read_text("utf-8").replace("{0:", '{"0":')
        table = json.loads(text)["offsetTable"]
        lines = []
        for name, offsets in table.items():
            now, whole = shares[name.partition("@")[0]]
            lines.append(f'"{name}":{{0:{max(0, offsets["0"] - whole + now)}}}')
        (self.root / "config" / "consumerOffset.json").write_text('{"offsetTable":{' + ",".join(lines) + "}}")


def bytes_of(directory: Path) -> dict[str, int]:
    """The size of each data file."""
    return {str(path): path.stat().st_size for path in directory.rglob("*.parquet")}


def main() -> None:
    """Measure, and print a table for each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stores", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--kinds", default="parquet,delta,iceberg")
    given = parser.parse_args()
    whole = given.stores / "M"
    if not whole.exists():
        big_store.main(["--stores", str(given.stores), "M"])
    end = json.loads((given.stores / "M.truth" / "truth.json").read_text())["end_of_log"]
    for kind in given.kinds.split(","):
        measure(kind, Growth(whole, given.work / "store", end), given.work)


def measure(kind: str, growth: Growth, work: Path) -> None:
    """Print a table for one kind."""
    table, checkpoint = work / f"{kind}-table", work / f"{kind}-checkpoint.sqlite"
    for place in (table, checkpoint):
        if place.is_dir():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
    table.mkdir()
    environment = {f"PYICEBERG_CATALOG__LOCAL__{name}": text.format(table) for name, text in CATALOG.items()}
    name = {"parquet": str(table), "delta": f"delta:{table}/delta", "iceberg": "iceberg:local.audits.verdicts"}[kind]
    into = [*rmqtx(), "table", str(growth.root), "--into", name, "--checkpoint", str(checkpoint)]
    print(f"\n{kind}\n\n| step | log | new | CPU | wall | peak | data files written | table | new audit, CPU |")
    print("|---|---|---|---|---|---|---|---|---|")
    for number in range(STEPS):
        offset = growth.end * (number + 1) // STEPS
        before = bytes_of(table)
        growth.write_to(offset)
        done = cost_of(into, environment)
        after = bytes_of(table)
        written = sum(size for path, size in after.items() if path not in before)
        fresh = ""
        if number in (0, 9, 19):
            folder = work / "fresh"
            shutil.rmtree(folder, ignore_errors=True)
            cost = cost_of([*rmqtx(), "audit", str(growth.root), "-o", f"{folder}/"], environment)
            fresh = f"{cost.cpu_s:.1f} s"
        print(
            f"| {number + 1} | {offset / 2**20:.0f} MiB | {growth.end / STEPS / 2**20:.0f} MiB | {done.cpu_s:.1f} s "
            f"| {done.wall_s:.1f} s | {done.peak_rss_bytes / 2**20:.0f} MiB | {written / 2**20:.1f} MiB "
            f"| {sum(after.values()) / 2**20:.1f} MiB | {fresh} |", flush=True,
        )
        print(done.message.splitlines()[-1], file=sys.stderr, flush=True)
    idle = cost_of(into, environment)
    print(f"\nA run with nothing new: {idle.cpu_s:.1f} s CPU. Checkpoint: {checkpoint.stat().st_size / 2**20:.0f} MiB.")


if __name__ == "__main__":
    main()
