"""The acts, as a type: a misspelt one is an error of mypy."""

from __future__ import annotations

from enum import StrEnum


class ActKind(StrEnum):
    """What is done to a transaction, to the cursors of a store or to settings; the value is the text in receipts.

    `rmqtx.verdicts.model.verdict_words.ADVICE` describes the first six, which may be planned.
    """

    COMMIT = "commit"
    ROLLBACK = "rollback"
    DISCARD = "discard"
    RESUME = "resume"
    CLOSE = "close"
    REDELIVER = "redeliver"
    ANSWER = "answer"
    PROBE = "probe"
    CURSOR_SET = "cursor set"
    HOLD = "hold"
    RELEASE = "release"
    DRAIN = "drain"


#: What may be planned for a transaction.
PLANNED = (
    ActKind.COMMIT, ActKind.ROLLBACK, ActKind.DISCARD, ActKind.RESUME, ActKind.CLOSE, ActKind.REDELIVER,
)  # fmt: skip
#: What delivers the message.
DELIVERING = (ActKind.COMMIT, ActKind.REDELIVER)
#: What sets a broker's settings, and what puts them back.
OF_SETTINGS = (ActKind.HOLD, ActKind.RELEASE, ActKind.DRAIN)
#: What answers a check; other acts get no answer, because a broker does not respond to UNKNOWN.
ANSWERED = (ActKind.COMMIT, ActKind.ROLLBACK)
