"""The outcomes of damages in the campaigns, and their table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.fuzz.asking import Row, WrongAnswer

REPORTED, UNCHANGED, UNKNOWABLE, CERTAIN = "reported", "nothing changed", "unknowable", "certain and wrong"
SILENT, ACTED, CRASH = "silent", "acted", "crash"
OUTCOMES = (REPORTED, CERTAIN, UNKNOWABLE, SILENT, ACTED, CRASH)
FAILURES = (SILENT, ACTED, CRASH)


@dataclass(frozen=True)
class Case:
    """One damage of a store; it determines everything that is done."""

    store: str
    target: str
    damage: str
    seed: int

    def __str__(self) -> str:
        return "/".join(filter(None, (self.store, self.target, self.damage)))


@dataclass(frozen=True)
class Played:
    """One damage, its outcome, the wrong answers, and the codes that `verify --full` found.

    Of the file campaign: `codes` are the reasons of `left_out` that were needed, `kind` the kind of file.
    """

    case: str
    store: str
    damage: str
    outcome: str
    wrong_answers: tuple[WrongAnswer, ...] = ()
    codes: tuple[str, ...] = ()
    kind: str = ""

    def __str__(self) -> str:
        lines = [f"{self.outcome}: {self.case}" + (f" (verify: {', '.join(self.codes)})" if self.codes else "")]
        return "\n".join([*lines, *(f"  {one.kind} {one.question}: {one.what}" for one in self.wrong_answers)])


def outcome_of(wrong_answers: Sequence[WrongAnswer], found: Sequence[Row]) -> str:
    """The worst outcome of some wrong answers. `found`: the findings of `verify --full` that contradict them."""
    kinds = {one.kind for one in wrong_answers}
    if "crash" in kinds:
        return CRASH
    if kinds & {"acted", "silent"}:
        return (ACTED if "acted" in kinds else SILENT) if found else UNKNOWABLE
    return CERTAIN if kinds else REPORTED


def played(case: str, store: str, damage: str, wrong_answers: Sequence[WrongAnswer], found: Sequence[Row]) -> Played:
    """A damage with its outcome."""
    codes = tuple(sorted({row["code"] for row in found}))
    return Played(case, store, damage, outcome_of(wrong_answers, found), tuple(wrong_answers), codes)


def table(every: Iterable[Played]) -> Iterator[str]:
    """Damages × outcomes, as Markdown."""
    counts = Counter((one.damage, one.outcome) for one in every if one.outcome != UNCHANGED)
    yield "| damage | " + " | ".join(OUTCOMES) + " |"
    yield "|---|" + "---:|" * len(OUTCOMES)
    damages = sorted({damage for damage, _ in counts})
    for damage in damages:
        yield f"| {damage} | " + " | ".join(str(counts[damage, one] or "") for one in OUTCOMES) + " |"
    totals = [sum(counts[damage, one] for damage in damages) for one in OUTCOMES]
    yield "| **all** | " + " | ".join(f"**{number}**" for number in totals) + " |"
