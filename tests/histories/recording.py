"""Recorded histories: the store of each and what the machine did next, in one archive; a test plays them without Java.

`python -m tests.histories.recording` writes the archive again (Maven, a JDK, five minutes).
"""

from __future__ import annotations

import itertools
import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Container, Iterator
from contextlib import closing
from pathlib import Path

from tests.histories import found
from tests.histories.machine import RELEASES
from tests.histories.playing import Stage
from tests.histories.steps import drawn_history
from tests.histories.truth import Truth, truth_of

ARCHIVE = Path(__file__).with_name("recorded.tar.xz")
RECORDED = 200
#: What `make test` plays of them: so many drawn ones of each release, and each of the others on every third release.
QUICK_OF_RELEASE, QUICK_EVERY = 5, 3
_SEED = 70_000


def recorded(directory: Path, names: Container[str]) -> Iterator[tuple[Path, Truth]]:
    """Unpack some histories of the archive into a directory: the root of each store, and its truth."""
    with tarfile.open(ARCHIVE) as archive:
        members = [member for member in archive if member.name.partition("/")[0] in names]
        archive.extractall(directory, members, filter="data")
    for folder in sorted(directory.iterdir()):
        yield folder / "store", truth_of(json.loads((folder / "truth.json").read_text()))


def recorded_names() -> tuple[list[str], list[str]]:
    """The names of the histories in the archive: those of `make test`, and the rest, which `make test-slow` plays.

    Of the drawn ones `make test` plays some of each release; of those that were found once, each on some releases, and
    the next one on others.
    """
    with tarfile.open(ARCHIVE) as archive:
        names = sorted({member.name.partition("/")[0] for member in archive})
    drawn = [name for name in names if name.partition("-")[0].isdigit()]
    quick = set(drawn[: QUICK_OF_RELEASE * len(RELEASES)])  # their seeds go round the releases
    kept = [name for name in names if name not in drawn]
    titles = sorted({name.rpartition("-")[0] for name in kept})
    for name in kept:
        title, _, version = name.rpartition("-")
        if (titles.index(title) + found.RELEASES.index(version)) % QUICK_EVERY == 0:
            quick.add(name)
    return sorted(quick), [name for name in names if name not in quick]


def main() -> int:
    """Play histories of all releases in turn until so many agree, and write the archive; 1 if one differed."""
    differing = 0
    with tempfile.TemporaryDirectory(prefix="rmqtx-recording-") as name:
        home = Path(name)
        packed = home / "packed"
        for number, version in enumerate(RELEASES):
            left = len(range(number, RECORDED, len(RELEASES)))
            with closing(Stage(version, home / version)) as stage:
                for seed in itertools.count(_SEED + number, len(RELEASES)):
                    folder = packed / f"{seed}-{version}"
                    result = stage.play(drawn_history(seed), keep=folder, acts_count=0)
                    for line in result.differences:
                        print(f"{version} {seed}: {line}", flush=True)
                    if result.differences or result.counts["unread by rmqtx"]:
                        differing += bool(result.differences)
                        shutil.rmtree(folder, ignore_errors=True)
                        continue
                    left -= 1
                    if not left:
                        break
        for version in found.RELEASES:
            with closing(Stage(version, home / version)) as stage:
                for title in (one for one in found.FOUND if (one, version) not in found.OPEN):
                    folder = packed / f"{title}-{version}"
                    result = stage.play(found.found_history(title), keep=folder, acts_count=0)
                    for line in result.differences:
                        print(f"{version} {title}: {line}", flush=True)
                    if result.differences:
                        differing += 1
                        shutil.rmtree(folder)
        with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
            for folder in sorted(packed.iterdir()):
                for part in ("store", "truth.json"):
                    archive.add(folder / part, f"{folder.name}/{part}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
