"""What every command gets that judges transactions: rows, and what is known of the stores beside them."""

from __future__ import annotations

from dataclasses import dataclass, field

from readers.model.reading import Reading
from verdicts.model.check_stop import CheckStop
from verdicts.model.predicted import Prediction
from verdicts.model.verdict_inputs import MissingRange


@dataclass(slots=True)
class VerdictReading(Reading):
    """Batches of verdicts, to be iterated once; all that is said beside them is complete when it has ended.

    Shape: `missing` is what an audit knows to be missing of the logs, whether a row rests on it or not. `check_stops`:
           where the broker's check comes no further, of every store whose transactions were judged as they are now.
           `predicted`: what the check of each store will give up on, where rows of transactions were asked for.
    """

    missing: list[MissingRange] = field(default_factory=list)
    check_stops: list[CheckStop] = field(default_factory=list)
    predicted: dict[str, Prediction] = field(default_factory=dict)
