"""The facts of one store that the rules of causes read, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from readers.model.releases import Version
from verdicts.model.check_stop import CheckStop


@dataclass(frozen=True, slots=True)
class StoreEvidence:
    """The facts of one store that rules read; they are known before the first transaction is judged.

    Shape: `last_op_offset`: commit-log offset of the last op message, -1 if there is none; None if unknown. `stop`:
           where the check of its half queue is stopped.
    Units: commit-log offsets; versions are (5, 1, 4).
    """

    version_low: Version | None = None
    version_high: Version | None = None
    last_op_offset: int | None = None
    was_killed: bool = False
    stop: CheckStop | None = None
