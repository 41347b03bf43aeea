"""A kind of finding, as a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding: its severity, what was found, the effect on transactions, and what to do.

    `hides_records`: the place of the finding may contain records that were not read, or were read under a wrong name.
    """

    severity: str
    title: str
    meaning: str
    advice: str = ""
    hides_records: bool = False
