"""The states of a transaction and what to do in each: the words, and what each means."""

from __future__ import annotations

STATES: dict[str, str] = {
    "PENDING": "the broker still has it before it and will ask the producer, or nothing ever ended it",
    "COMMITTED": "a COMMIT record exists: the message was written to its real topic",
    "ROLLED_BACK": "an op message, or before 4.3 a ROLLBACK record, ended it and no COMMIT record exists",
    "DISCARDED": "the broker gave up on it: a copy in TRANS_CHECK_MAX_TIME_TOPIC, or spent checks before 4.5.2, or "
    "its key taken out of RocksDB (5.4.0+)",
    "LOST": "nothing will happen to it any more, and nothing shows that the broker meant it",
    "UNDECIDABLE": "evidence that could decide it is missing; the reason names what",
}

ADVICE: dict[str, str] = {
    "commit": "a ledger says that the local transaction was done: force the commit",
    "rollback": "a ledger says that the local transaction was not done: force the rollback",
    "close": "it is decided, but a copy of it is still open to the check: write only the missing op (a rollback on the "
    "newest copy)",
    "discard": "give it up, keeping a copy",
    "resume": "have the broker ask the producer again",
    "wait": "the broker will ask the producer; act only if the application cannot answer",
    "decide": "no check will decide it: find out what became of the local transaction, and commit or roll back by "
    "that",
    "none": "nothing to do",
}

#: What `none` means where the state is UNDECIDABLE.
NONE_YET = (
    "nothing before what the reason names is back: look for it in a backup or another copy (rmqtx verify lists the "
    "damage), then ask again; or ask the application what became of it"
)


def advice_sentence(advice: str, state: str) -> str:
    """What to do, in a sentence: without evidence there is nothing to do yet, which is not nothing to do."""
    return NONE_YET if (advice, state) == ("none", "UNDECIDABLE") else ADVICE.get(advice, "")
