"""All exit statuses; the manual pages and `rmqtx explain` print these sentences."""

from __future__ import annotations

from collections.abc import Iterable

DONE = 0
FINDINGS = 1
USAGE = 2
INCOMPLETE = 3
UNREADABLE = 10
STORE_IN_USE = 11
REFUSED_BY_GUARD = 12
STALE_PLAN = 13
UNREACHABLE = 14
REFUSED_BY_BROKER = 15
NO_SUCH_TRANSACTION = 16
SOME_REFUSED = 17
UNKNOWN_OUTCOME = 18
SPARK_UNAVAILABLE = 20
BUG = 70
INTERRUPTED = 130

#: Numbers are an interface: their meaning never changes.
MEANINGS: dict[int, str] = {
    DONE: "done",
    FINDINGS: "done, and a row met the condition of --fail-on, verify found an error or a warning, doctor a problem, "
    "diff --exit-code a difference, or transactions were open when the time of drain was over",
    USAGE: "the command line is wrong: an unknown option, column or format",
    INCOMPLETE: "answered, but evidence is missing or damaged, or a transaction is UNDECIDABLE",
    UNREADABLE: "not a store, or none that the command reads; or a file cannot be read or written",
    STORE_IN_USE: "the store is in use (commands that change a store)",
    REFUSED_BY_GUARD: "refused by a guard or at the prompt, or the store cannot be changed: nothing was done (commands "
    "that act)",
    STALE_PLAN: "the plan is stale: its evidence has changed, and nothing was done (apply, undo)",
    UNREACHABLE: "the broker cannot be reached, or does not answer (live brokers)",
    REFUSED_BY_BROKER: "the broker refused (live brokers)",
    NO_SUCH_TRANSACTION: "no such transaction: no record has this id, message id or key",
    SOME_REFUSED: "some were refused, others were done (commands that act)",
    UNKNOWN_OUTCOME: "unknown outcome, or also decided elsewhere: run rmqtx show (commands that act)",
    SPARK_UNAVAILABLE: "Spark or Java is not available, or the connection to Spark was lost",
    BUG: "a bug in rmqtx; set RMQTX_DEBUG=1 to see the traceback",
    INTERRUPTED: "interrupted",
}


#: The same in a word, for programs.
WORDS: dict[int, str] = {
    DONE: "done", FINDINGS: "findings", USAGE: "usage", INCOMPLETE: "incomplete", UNREADABLE: "unreadable",
    STORE_IN_USE: "store-in-use", REFUSED_BY_GUARD: "refused-by-guard", STALE_PLAN: "stale-plan",
    UNREACHABLE: "unreachable", REFUSED_BY_BROKER: "refused-by-broker", NO_SUCH_TRANSACTION: "no-such-transaction",
    SOME_REFUSED: "some-refused", UNKNOWN_OUTCOME: "unknown-outcome", SPARK_UNAVAILABLE: "spark-unavailable",
    BUG: "bug", INTERRUPTED: "interrupted",
}


def combined(statuses: Iterable[int]) -> int:
    """Return the status of a command whose parts ended with these: an unknown outcome first; DONE without any.

    A stale plan of which nothing was done is stale; else different statuses mean that some were refused.
    """
    found = set(statuses)
    if UNKNOWN_OUTCOME in found:
        return UNKNOWN_OUTCOME
    if STALE_PLAN in found and not found & {DONE, SOME_REFUSED}:
        return STALE_PLAN
    return SOME_REFUSED if len(found) > 1 else next(iter(found), DONE)


#: `rmqtx check` and `rmqtx probe` exit only with the statuses of Nagios, also after an error.
CHECK_MEANINGS: dict[int, str] = {
    0: "OK: no threshold is exceeded",
    1: "WARNING: a warning threshold is exceeded",
    2: "CRITICAL: a critical threshold is exceeded",
    3: "UNKNOWN: the state could not be determined, or the command line is wrong",
}


def worded(status: int, *, is_check: bool = False) -> tuple[str, str]:
    """Return the word and the meaning of a status. `is_check`: of a command with the statuses of Nagios."""
    if is_check:
        word, _, meaning = CHECK_MEANINGS.get(status, f"{status}: an unknown status").partition(": ")
        return word, meaning
    return WORDS.get(status, str(status)), MEANINGS.get(status, "an unknown status")
