"""What became of a damage: the classes of the campaigns, and their table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.fuzz.asking import Complaint, Row

HEEDED, UNCHANGED, UNKNOWABLE, CERTAIN = "heeded", "nothing changed", "unknowable", "certain and wrong"
SILENT, ACTED, CRASH = "silent", "acted", "crash"
OUTCOMES = (HEEDED, CERTAIN, UNKNOWABLE, SILENT, ACTED, CRASH)
FAILURES = (SILENT, ACTED, CRASH)


@dataclass(frozen=True)
class Case:
    """One damage of a store: everything in it follows from it."""

    store: str
    target: str
    deed: str
    seed: int

    def __str__(self) -> str:
        return "/".join(filter(None, (self.store, self.target, self.deed)))


@dataclass(frozen=True)
class Played:
    """One damage, what became of it, the complaints, and the codes of what `verify --full` found."""

    case: str
    store: str
    deed: str
    outcome: str
    complaints: tuple[Complaint, ...] = ()
    codes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.outcome}: {self.case}" + (f" (verify: {', '.join(self.codes)})" if self.codes else "")]
        return "\n".join([*lines, *(f"  {one.kind} {one.question}: {one.what}" for one in self.complaints)])


def outcome_of(complaints: Sequence[Complaint], found: Sequence[Row]) -> str:
    """The worst of what was said; `found`: what `verify --full` says against it."""
    kinds = {one.kind for one in complaints}
    if "crash" in kinds:
        return CRASH
    if kinds & {"acted", "silent"}:
        return (ACTED if "acted" in kinds else SILENT) if found else UNKNOWABLE
    return CERTAIN if kinds else HEEDED


def played(case: str, store: str, deed: str, complaints: Sequence[Complaint], found: Sequence[Row]) -> Played:
    """A damage with its outcome."""
    codes = tuple(sorted({row["code"] for row in found}))
    return Played(case, store, deed, outcome_of(complaints, found), tuple(complaints), codes)


def table(every: Iterable[Played]) -> Iterator[str]:
    """Deeds × outcomes, as Markdown."""
    counts = Counter((one.deed, one.outcome) for one in every if one.outcome != UNCHANGED)
    yield "| damage | " + " | ".join(OUTCOMES) + " |"
    yield "|---|" + "---:|" * len(OUTCOMES)
    deeds = list(dict.fromkeys(deed for deed, _ in counts))
    for deed in deeds:
        yield f"| {deed} | " + " | ".join(str(counts[deed, one] or "") for one in OUTCOMES) + " |"
    totals = [sum(counts[deed, one] for deed in deeds) for one in OUTCOMES]
    yield "| **all** | " + " | ".join(f"**{number}**" for number in totals) + " |"
