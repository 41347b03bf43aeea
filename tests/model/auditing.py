"""The bounded worlds of each release, and the audits of the stores in which they end."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.model.direct import judged_together
from tests.model.judging import Judged, compare, is_whole, judged_store, without_queues
from tests.model.rules import Disk, Settings
from tests.model.worlds import Bounds, Reached, World, ends

#: A file system in memory; without it, temporary files are where they always are.
_IN_MEMORY = Path("/dev/shm")
_IMMUNE = Settings(check_max=1, immune_rounds=(1, None, 0))


def memory() -> Path | None:
    """Where temporary files are written fast; None for the usual folder."""
    return _IN_MEMORY if _IN_MEMORY.is_dir() else None


def worlds(version: str) -> dict[str, World]:
    """The worlds of a release, by name."""
    return {
        "many": World(version, Settings(), Bounds(3, 3, decisions=1, rounds=2, kills=2, lost=1)),
        "ages": World(version, _IMMUNE, Bounds(2, 3, decisions=1, rounds=2, kills=1, lost=1, pauses=1)),
        "twice": World(version, Settings(), Bounds(2, 3, decisions=2, rounds=2, kills=1, lost=1)),
        "small": World(version, Settings(), Bounds(2, 3, decisions=1, rounds=2, kills=1, lost=1)),
    }


def judged(world: World, disks: Sequence[Disk], *, from_files: bool) -> Judged:
    """Audit some stores. `from_files`: write each one."""
    result = Judged()
    with tempfile.TemporaryDirectory(prefix="rmqtx-model-", dir=memory()) as home:
        root = Path(home) / "store"
        found = (
            [judged_store(root, disk, world.release, world.settings) for disk in disks] if from_files
            else judged_together(root, disks, world.release, world.settings)
        )
    for disk, rows in zip(disks, found, strict=True):
        known = len(result.violations)
        compare(result, disk, world.release, world.settings, rows)
        result.violations[known:] = [f"{line} in {disk}" for line in result.violations[known:]]
    return result


def chosen(world: World, found: Reached, most: int, files: int, seed: int) -> tuple[list[Disk], list[Disk], int]:
    """The ends that are judged without files, those that are judged from files, and how many ends there are.

    `most`: at most so many, drawn; `files`: so many of all ends.
    """
    stores = list(ends(world, found))
    random = Random(seed)
    whole = list(dict.fromkeys(without_queues(disk) for disk in stores if is_whole(disk)))
    return (
        random.sample(whole, min(most, len(whole))), random.sample(stores, min(files, len(stores))), len(stores)
    )
