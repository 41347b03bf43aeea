"""The states of a transaction and the advice for each, with their descriptions."""

from __future__ import annotations

from rmqtx.verdicts.model.advice import Advice
from rmqtx.verdicts.model.state import State

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

#: Flags that a pending transaction has only because time passes.
CLOCK_FLAGS = ("expires_soon", "expired")


def advice_sentence(advice: str, state: str) -> str:
    """Return what to do, as a sentence; for UNDECIDABLE, the text of `none` requires evidence first."""
    return NONE_YET if (advice, state) == (Advice.NONE, State.UNDECIDABLE) else ADVICE.get(advice, "")
