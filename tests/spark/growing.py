"""Stores that grow: a broker's log as it stood at some moments, between records and inside them."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from pathlib import Path

from rmqtx.readers.store.store import open_store


@dataclass
class Growing:
    """A copy of a store whose commit log is written bit by bit; each file has its full length, as brokers make them.

    Units: commit-log offsets; `end` is how far it is written.
    """

    whole: Path
    root: Path

    def __post_init__(self) -> None:
        shutil.copytree(self.whole, self.root)
        self._segments = open_store(self.whole).commit_log
        self.begin, self.end = self._segments[0].base_offset, self._segments[-1].end_offset
        self.write_to(self.begin)

    def write_to(self, offset: int) -> None:
        """The log as it was when it was written to this offset: zeros behind, and no file behind the next one."""
        for segment in self._segments:
            there = self.root / Path(segment.file).relative_to(self.whole)
            if segment.base_offset > max(offset, self.begin):
                there.unlink(missing_ok=True)
                continue
            data = Path(segment.file).read_bytes()[: max(0, offset - segment.base_offset)]
            if not there.exists() or there.read_bytes()[: len(data)] != data or offset < segment.end_offset:
                there.write_bytes(data.ljust(segment.size_bytes, b"\0"))

    def moments(self, count: int, seed: int) -> list[int]:
        """Offsets in ascending order, the last one the end."""
        chance = random.Random(seed)
        return [*sorted(chance.randrange(self.begin, self.end) for _ in range(count - 1)), self.end]
