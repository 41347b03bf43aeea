"""The states of a transaction, as a type: mypy finds a misspelt word."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The state of a transaction; its value is the text in tables and output.

    `rmqtx.verdicts.transactions.states_and_advice.STATES` describes each; `judge` decides.
    """

    PENDING = "PENDING"
    COMMITTED = "COMMITTED"
    ROLLED_BACK = "ROLLED_BACK"
    DISCARDED = "DISCARDED"
    LOST = "LOST"
    UNDECIDABLE = "UNDECIDABLE"
