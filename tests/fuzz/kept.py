"""Played cases, one JSON line each, so that an interrupted campaign can continue after them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from tests.fuzz.asking import WrongAnswer
from tests.fuzz.outcomes import Played


def read_kept(file: Path) -> tuple[dict[str, Played], Counter[str]]:
    """The played cases by name, and their number at each commit; nothing if the file does not exist."""
    played: dict[str, Played] = {}
    commits = Counter[str]()
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        row = json.loads(line)
        one = row["played"]
        wrong_answers = tuple(WrongAnswer(**entry) for entry in one.pop("wrong_answers"))
        played[row["name"]] = Played(wrong_answers=wrong_answers, codes=tuple(one.pop("codes")), **one)
        commits[row["commit"]] += 1
    return played, commits


def keep(file: Path, commit: str, played: Iterable[tuple[str, Played]]) -> None:
    """Append played cases."""
    with file.open("a", encoding="utf-8") as to:
        for name, one in played:
            to.write(json.dumps({"name": name, "commit": commit, "played": asdict(one)}) + "\n")
