"""The result for every command that judges transactions: rows, and facts about the stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.reading import Reading
from rmqtx.verdicts.model.group_habits import Habits
from rmqtx.verdicts.model.predicted import Prediction
from rmqtx.verdicts.model.store_evidence import StoreEvidence
from rmqtx.verdicts.model.trace_evidence import Traces
from rmqtx.verdicts.model.verdict_inputs import CheckStop, MissingRange

#: More reasons of UNDECIDABLE transactions are not repeated in one line.
_REASONS_MAX = 2


@dataclass(slots=True)
class VerdictReading(Reading):
    """Batches of verdicts, to be iterated once; the other fields are complete after the last batch.

    `evidence` is complete before the first one.

    Shape: `missing`: the missing parts of the logs, whether or not a row depends on them. `check_stops`: where the
           broker's check is stopped, for every store that was judged at the present time. `predicted`: what the check
           of each store will discard, if rows of transactions were requested. `evidence`: the facts of each store
           that the rules of causes read; none for a past time. `undecidable`: how many UNDECIDABLE transactions a
           lookup met, by store and reason, whether or not they are among its rows. `habits`: what the transactions of
           producer groups have in common, which causes of whole groups need; where rows have causes.
    """

    missing: list[MissingRange] = field(default_factory=list)
    check_stops: list[CheckStop] = field(default_factory=list)
    predicted: dict[str, Prediction] = field(default_factory=dict)
    evidence: dict[str, StoreEvidence] = field(default_factory=dict)
    undecidable: Counter[tuple[str, str]] = field(default_factory=Counter)
    habits: Habits = field(default_factory=Habits)

    def add_trace_findings(self, *more: Traces | None) -> None:
        """Add what could not be read of message traces, as far as they were searched: those of `evidence`, and more."""
        searched = [*(one.traces for one in self.evidence.values()), *more]
        found = (finding for one in searched if one is not None for finding in one.findings)
        self.add_findings(found)

    def add_findings(self, found: Iterable[Finding]) -> None:
        """Add the findings that the reading lacks."""
        self.findings.extend(one for one in dict.fromkeys(found) if one not in self.findings)

    @property
    def undecidable_count(self) -> int:
        """The number of UNDECIDABLE transactions that a lookup met."""
        return self.undecidable.total()


def undecidable_words(undecidable: Counter[str], noun: str = "") -> str:
    """Return how many transactions are UNDECIDABLE, and why, the most frequent reasons first.

    `undecidable`: their numbers by reason. `noun`: what follows the number of all.
    """
    total = f"{undecidable.total()}{noun}"
    if len(undecidable) == 1:
        return f"{total}{'' if noun else ','} because {next(iter(undecidable))}"
    named = undecidable.most_common(_REASONS_MAX)
    words = [f"{count} because {reason}" for reason, count in named]
    rest = undecidable.total() - sum(count for _, count in named)
    return f"{total}: {', '.join([*words, *([f'{rest} for other reasons'] if rest else [])])}"
