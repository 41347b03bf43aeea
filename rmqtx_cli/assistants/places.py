"""The stores, and the folder for plans, that a server may touch: those of its command line, and nothing else."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.words.text import fully_escaped

_PLAN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\.json")


@dataclass(slots=True)
class Places:
    """Stores by the words of the command line. A name that an assistant gives is compared, never opened."""

    stores: Sequence[str]
    plans: Path | None = None
    _led_to: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for place in (*self.stores, *(() if self.plans is None else (str(self.plans),))):
            self._led_to[place] = os.path.realpath(place)
        if self.plans is not None and not self.plans.is_dir():
            raise BadRequest(f"--plans: {self.plans} is not a directory", advice=f"mkdir {self.plans}")

    def chosen(self, name: str) -> list[str]:
        """Return the store with this name, or all of them without one.

        Raises: BadRequest for any other name, and for a link that leads elsewhere since the start.
        """
        if name and name not in self.stores:
            raise BadRequest(
                f"the server may not read {fully_escaped(name[:100])!r}", advice=f"stores: {', '.join(self.stores)}"
            )
        chosen = [name] if name else list(self.stores)
        for one in chosen:
            self._require_same(one)
        return chosen

    def plan_file(self, name: str) -> Path:
        """Return the file for a plan, which does not exist yet. Raises: BadRequest."""
        if self.plans is None:
            raise BadRequest("the server writes no plans", advice="start it with --plans DIR")
        if not _PLAN_NAME.fullmatch(name):
            raise BadRequest(
                f"the server does not write {fully_escaped(name[:100])!r}",
                advice="a file name like plan-1.json: letters, digits, - _ and .",
            )
        self._require_same(str(self.plans))
        file = self.plans / name
        if os.path.lexists(file):
            raise BadRequest(f"{name} exists already", advice="give another name")
        return file

    def _require_same(self, place: str) -> None:
        if "://" not in place and os.path.realpath(place) != self._led_to[place]:
            raise BadRequest(f"{place} leads elsewhere since the start", advice="start the server again")
