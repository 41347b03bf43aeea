"""What a row advises, as a type: mypy finds a misspelt word."""

from __future__ import annotations

from enum import StrEnum


class Advice(StrEnum):
    """The advice for a transaction; its value is the text in tables and output.

    `rmqtx.verdicts.transactions.states_and_advice.ADVICE` describes each. Only a ledger leads to COMMIT, ROLLBACK,
    REDELIVER and DISCARD.
    """

    COMMIT = "commit"
    ROLLBACK = "rollback"
    CLOSE = "close"
    DISCARD = "discard"
    RESUME = "resume"
    REDELIVER = "redeliver"
    WAIT = "wait"
    DECIDE = "decide"
    NONE = "none"
