"""A kind of finding, as a value, and the severities."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """The effect of a finding on an answer: an error makes it incomplete. The worst is the first."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding: its severity, what was found, the effect on transactions, and what to do.

    `hides_records`: the place of the finding may contain records that were not read, or were read under a wrong name.
    `old_meaning`: the effect with a broker before 4.3, if it is another one.
    """

    severity: Severity
    title: str
    meaning: str
    advice: str = ""
    hides_records: bool = False
    old_meaning: str | None = None
