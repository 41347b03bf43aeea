"""The result of a recheck, as a type: a misspelt one is an error of mypy."""

from __future__ import annotations

from enum import StrEnum


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
