"""What happens to a transaction next, and what an answer does then, as types: mypy finds a misspelt word."""

from __future__ import annotations

from enum import StrEnum


class NextEvent(StrEnum):
    """What the next start and the check of the broker do next; its value is the text in the column `next_event`.

    `rmqtx.verdicts.model.predicted.EVENTS` describes each.
    """

    ASKED = "asked"
    PUT_BACK = "put_back"
    EXPIRED = "expired"
    DISCARDED = "discarded"
    DROPPED = "dropped"
    SKIPPED = "skipped"
    STOPPED = "stopped"
    CUT = "cut"
    UNKNOWN = "unknown"
    NONE = "none"


class AnswerEffect(StrEnum):
    """What the answer COMMIT of a producer that is asked does; its value is the text in the column `answer_effect`."""

    DELIVER = "deliver"
    DELIVER_AGAIN = "deliver_again"
