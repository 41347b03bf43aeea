"""How far the evidence for a cause goes, as a type: mypy finds a misspelt word."""

from __future__ import annotations

from enum import StrEnum


class Strength(StrEnum):
    """How far records support a cause; its value is the text in tables and output.

    `rmqtx.verdicts.causes.cause.STRENGTHS` describes each.
    """

    EXPLAINS = "explains"
    COULD_EXPLAIN = "could_explain"
    RULED_OUT = "ruled_out"


#: The cause that monitoring counts by itself: a producer decided, and the broker has no record of it.
LOST_ON_THE_WAY = "decision-lost-on-the-way"
