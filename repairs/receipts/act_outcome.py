"""The outcome of an act, as a type: a misspelt one is an error of mypy."""

from __future__ import annotations

from enum import StrEnum


class ActOutcome(StrEnum):
    """The outcome of an act on a transaction, on the cursors of a store or on a broker's settings."""

    PROVED = "proved"
    ACCEPTED = "accepted"
    REFUSED_BY_GUARD = "refused_by_guard"
    NOT_SENT = "not_sent"
    REFUSED_BY_BROKER = "refused_by_broker"
    UNKNOWN = "unknown"
    CONTRADICTED = "contradicted"


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
