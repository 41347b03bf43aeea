"""Tables of verdicts over twenty copies of a store that a broker was writing: equal to audits, also after kills."""

from __future__ import annotations

import random
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.brokers import make, maven, recipes
from tests.brokers.script import Script
from tests.verdicts.growing import killed_run
from tests.verdicts.growing.grown import KINDS, GrownTable, named

WHY_NOT = maven.why_not()
COPIES, SEED = 20, 4711

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]


def copy(store: Path, to: Path, *, check: bool = True) -> None:
    command = ["cp", "-a", "--sparse=always", str(store), str(to)]
    subprocess.run(command, stderr=None if check else subprocess.DEVNULL, check=check)


def log_of(store: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((store / "commitlog").iterdir())]


class Copying(threading.Thread):
    """Copies a store that appears again and again, until it is stopped."""

    def __init__(self, store: Path, to: Path) -> None:
        super().__init__()
        self._store, self._to = store, to
        self._is_over = threading.Event()
        self.copies: list[Path] = []

    def run(self) -> None:
        while not self._is_over.wait(0.2):
            if any(self._store.glob("commitlog/*")):
                self.take()

    def take(self) -> None:
        to = self._to / f"{len(self.copies):03}"
        copy(self._store, to, check=False)  # files vanish while they are copied: the broker replaces them by renames
        if not self.copies or log_of(to) != log_of(self.copies[-1]):
            self.copies.append(to)
        else:
            shutil.rmtree(to)

    def stop(self) -> None:
        self._is_over.set()
        self.join()


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Twenty copies of a store of broker 5.3.3, the first soon after its start, the last after it was killed."""
    out, to = tmp_path_factory.mktemp("broker"), tmp_path_factory.mktemp("copies")
    copying = Copying(out / "store", to)
    copying.start()
    try:
        script = Script(killed_run.VERSION, SEED, recipes.halved(recipes.common(killed_run.VERSION)), stop="kill")
        live = make.live(script, out)
    finally:
        copying.stop()
    assert live.store == out / "store"
    copying.take()
    found = copying.copies
    assert len(found) >= COPIES
    chosen = sorted({round(number * (len(found) - 1) / (COPIES - 1)) for number in range(COPIES)})
    return [found[number] for number in chosen]


@pytest.mark.parametrize("kind", KINDS)
def test_twenty_copies(kind: str, copies: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, chance, kills, lines = tmp_path / "store", random.Random(kind), 0, []
    grown = GrownTable([root], named(kind, tmp_path, monkeypatch), tmp_path / "checkpoint", killed_run.by_version)
    for number, one in enumerate(copies):
        shutil.rmtree(root, ignore_errors=True)
        copy(one, root)
        if number % 2:
            kills += killed_run.run(chance.randrange(25), root, grown.table, grown.checkpoint)
        stores, begun_s = grown.stores(), time.process_time()
        done = grown.step(stores)
        spent_s = time.process_time() - begun_s
        lines.append(f"{number}: {done.bytes_read} B, {done.rows_count} rows, {spent_s:.2f} CPU s")
        grown.assert_current(stores)
    transactions = sum(done.states.values())
    print(f"{kind}: {kills} runs killed; {len(grown.rows())} rows of {transactions} transactions", *lines, sep="\n")
    assert kills > 3
    assert len(grown.rows()) > transactions > 40
