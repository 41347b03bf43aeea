"""The acts and their outcomes, as types: mypy finds a misspelt word."""

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
)
#: What delivers the message.
DELIVERING = (ActKind.COMMIT, ActKind.REDELIVER)
#: What sets a broker's settings, and what puts them back.
OF_SETTINGS = (ActKind.HOLD, ActKind.RELEASE, ActKind.DRAIN)
#: What answers a check; other acts get no answer, because a broker does not respond to UNKNOWN.
ANSWERED = (ActKind.COMMIT, ActKind.ROLLBACK)


class ActOutcome(StrEnum):
    """The outcome of an act on a transaction, on the cursors of a store or on a broker's settings."""

    PROVED = "proved"
    ACCEPTED = "accepted"
    REFUSED_BY_GUARD = "refused_by_guard"
    NOT_SENT = "not_sent"
    REFUSED_BY_BROKER = "refused_by_broker"
    UNKNOWN = "unknown"
    CONTRADICTED = "contradicted"


#: Outcomes after which no request can have an effect.
NOTHING_SENT = (ActOutcome.REFUSED_BY_GUARD, ActOutcome.NOT_SENT, ActOutcome.REFUSED_BY_BROKER)
#: The meaning of each outcome.
OUTCOMES: dict[str, str] = {
    ActOutcome.PROVED: "the effect was read back: the COMMIT record, the op mark, a new half copy, or the settings",
    ActOutcome.ACCEPTED: "the broker accepted the request; the effect was not verified, or is not visible yet",
    ActOutcome.REFUSED_BY_GUARD: "a guard refused the act: nothing was sent",
    ActOutcome.NOT_SENT: "nothing was sent: the connection failed, or the command ended before",
    ActOutcome.REFUSED_BY_BROKER: "the broker refused the request: its code and remark are in the requests",
    ActOutcome.UNKNOWN: "the broker may have received the request, but no effect was seen: recheck before any other "
    "act",
    ActOutcome.CONTRADICTED: "something else happened too, for example a second COMMIT record: a second delivery is "
    "possible",
}


class StandingWord(StrEnum):
    """The result of the recheck of a receipt; its value is the text in the journal and in tables."""

    STANDS = "stands"
    CONTRADICTED = "contradicted"
    REOPENED = "reopened"
    NOT_SEEN = "not_seen"
    EXPIRED = "expired"
    OTHER_STORE = "other_store"
    SETTLED_OTHERWISE = "settled_otherwise"
    NOTHING_DONE = "nothing_done"
    UNDONE = "undone"
    UNTOLD = "untold"


#: The meaning of each result.
STANDINGS: dict[str, str] = {
    StandingWord.STANDS: "the effect is there, and nothing else decided the transaction",
    StandingWord.CONTRADICTED: "there is a second COMMIT record, or a contradicting decision",
    StandingWord.REOPENED: "the effect is there, but a half copy is open: the broker will check it again",
    StandingWord.NOT_SEEN: "there is no trace of the effect",
    StandingWord.EXPIRED: "the transaction is no longer found: its records have expired, or they are on another broker",
    StandingWord.OTHER_STORE: "the act was on another store than the one that was read",
    StandingWord.SETTLED_OTHERWISE: "there is no trace of this act, but the transaction was decided, or the cursor or "
    "setting was set again",
    StandingWord.NOTHING_DONE: "nothing was sent, so there is no effect",
    StandingWord.UNDONE: "rmqtx undo reverted it: the files are as they were before",
    StandingWord.UNTOLD: "unknown: what was read does not show it",
}
