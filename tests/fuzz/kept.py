"""Cases that were played, one JSON line each: a campaign that was broken off goes on behind them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from tests.fuzz.asking import Complaint
from tests.fuzz.outcomes import Played


def read_kept(file: Path) -> tuple[dict[str, Played], Counter[str]]:
    """What was played, by case, and how many cases at which commit; nothing where there is no such file."""
    played: dict[str, Played] = {}
    commits = Counter[str]()
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        row = json.loads(line)
        one = row["played"]
        complaints = tuple(Complaint(**entry) for entry in one.pop("complaints"))
        played[row["name"]] = Played(complaints=complaints, codes=tuple(one.pop("codes")), **one)
        commits[row["commit"]] += 1
    return played, commits


def keep(file: Path, commit: str, played: Iterable[tuple[str, Played]]) -> None:
    """Add what was played."""
    with file.open("a", encoding="utf-8") as to:
        for name, one in played:
            to.write(json.dumps({"name": name, "commit": commit, "played": asdict(one)}) + "\n")
