"""The words of verdicts, as types: mypy finds a misspelt word. A value is the text in tables and output."""

from __future__ import annotations

from enum import StrEnum

#: Flags that a pending transaction has only because time passes.
CLOCK_FLAGS = ("expires_soon", "expired")
#: The cause that monitoring counts by itself: a producer decided, and the broker has no record of it.
LOST_ON_THE_WAY = "decision-lost-on-the-way"
#: The flag of decided or discarded transactions that the broker checks again, whether or not an act can close them.
OPEN_AGAIN_FLAG = "open_after_decision"
#: The columns with the records of a transaction, and the kind of a witness in each.
WITNESS_KINDS = {
    "half_copies": "half_copy", "op_marks": "op_mark", "final_records": "final_record",
    "discard_copies": "discard_copy",
}
EVIDENCE = tuple(WITNESS_KINDS)


class State(StrEnum):
    """The state of a transaction; its value is the text in tables and output.

    `STATES` describes each; `rmqtx.verdicts.transactions.judge` decides.
    """

    PENDING = "PENDING"
    COMMITTED = "COMMITTED"
    ROLLED_BACK = "ROLLED_BACK"
    DISCARDED = "DISCARDED"
    LOST = "LOST"
    UNDECIDABLE = "UNDECIDABLE"


STATES: dict[str, str] = {
    State.PENDING: "not decided, and a copy of it is still ahead of the broker's check (before 4.3: no COMMIT and no "
    "ROLLBACK record names it)",
    State.COMMITTED: "a COMMIT record exists: the message was written to its real topic",
    State.ROLLED_BACK: "an op message (before 4.3 a ROLLBACK record) ended it, and no COMMIT record exists",
    State.DISCARDED: "the broker discarded it: a copy in TRANS_CHECK_MAX_TIME_TOPIC, or all checks used up (before "
    "4.5.2), or its key removed from RocksDB (5.4.0+)",
    State.LOST: "the broker will do nothing more with it, and no decision and no discard is recorded: look up its "
    "outcome in the application, then commit or roll back, or resume its checks",
    State.UNDECIDABLE: "evidence that could decide it is missing; the reason names the missing evidence",
}


class Advice(StrEnum):
    """The advice for a transaction; its value is the text in tables and output.

    `ADVICE` describes each. Only a ledger leads to COMMIT, ROLLBACK, REDELIVER and DISCARD.
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


ADVICE: dict[str, str] = {
    Advice.COMMIT: "a ledger shows that the local transaction was done: force the commit",
    Advice.ROLLBACK: "a ledger shows that the local transaction was not done: force the rollback",
    Advice.CLOSE: "it is decided, but the check will still reach a copy of it: write only the missing op message (a "
    "rollback on the newest copy)",
    Advice.REDELIVER: "a ledger shows that the local transaction was done, and the broker recorded a rollback: "
    "rmqtx redeliver delivers it",
    Advice.DISCARD: "discard it and keep a copy",
    Advice.RESUME: "the broker no longer checks it: rmqtx resume lets the broker ask the producer again",
    Advice.WAIT: "the broker will check it; act only if the application cannot answer",
    Advice.DECIDE: "no check will decide it: find out the outcome of the local transaction, then commit or roll back "
    "accordingly",
    Advice.NONE: "nothing to do",
}

#: The text of `none` for the state UNDECIDABLE.
NONE_YET = (
    "first look for the evidence that the reason names, in a backup or another copy (rmqtx verify lists the damage), "
    "and run the command again; or ask the application for the outcome"
)


def advice_sentence(advice: str, state: str) -> str:
    """Return what to do, as a sentence; for UNDECIDABLE, the text of `none` requires evidence first."""
    return NONE_YET if (advice, state) == (Advice.NONE, State.UNDECIDABLE) else ADVICE.get(advice, "")


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


class Strength(StrEnum):
    """How far records support a cause; its value is the text in tables and output.

    `rmqtx.verdicts.causes.cause.STRENGTHS` describes each.
    """

    EXPLAINS = "explains"
    COULD_EXPLAIN = "could_explain"
    RULED_OUT = "ruled_out"
