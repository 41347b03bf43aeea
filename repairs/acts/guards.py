"""The guards: what must not be true when an action is taken. Each has a name, and can be overridden by that name alone.

A guard refuses with one sentence that names its witness, and says what to do instead. What each one prevents was seen
on real brokers (docs/safety.md): the broker itself never looks whether a transaction was decided before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from repairs.acts import guard_rules
from repairs.acts.request import Wish
from repairs.acts.situation import Situation


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something is not done: the guard, the sentence with the witness, and what to do instead."""

    guard: str
    why: str
    advice: str

    def __str__(self) -> str:
        return f"{self.guard}: {self.why} - {self.advice}"


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard.

    Shape: `prevents` and `risk` are sentences for people; `refuses` gives why and what to do instead, or nothing.
           `is_absolute`: overriding it is refused too.
    """

    name: str
    prevents: str
    risk: str
    refuses: Callable[[Situation, Wish], tuple[str, str] | None]
    is_absolute: bool = False


#: In the order in which they are asked: what makes others meaningless comes first.
GUARDS: tuple[Guard, ...] = (
    Guard(
        "slave", "deciding on a broker that refuses every decision", "the broker answers SLAVE_NOT_AVAILABLE",
        guard_rules.slave,
    ),
    Guard(
        "rocksdb-transactions", "a second half of what a broker with transactions in RocksDB may still have open",
        "both are asked for, and both may be committed: a second delivery", guard_rules.rocksdb,
    ),
    Guard(
        "prepared-record", "a decision that the broker cannot make for a prepared record (before 4.3), or that means "
        "nothing for one", "an op message that hides another half message: nobody may take it",
        guard_rules.prepared_record,
        is_absolute=True,
    ),
    Guard(
        "wrong-group", "acting on somebody else's transaction", "the broker refuses a wrong group",
        guard_rules.wrong_group,
    ),
    Guard(
        "evidence-incomplete", "acting on a verdict that missing evidence could turn round",
        "it may have been delivered, or rolled back", guard_rules.evidence_incomplete,
    ),
    Guard(
        "already-delivered", "a second delivery: the broker writes another COMMIT record each time it is told to",
        "consumers get the message again", guard_rules.already_delivered,
    ),
    Guard(
        "already-decided", "delivering what was rolled back: the broker does so when told to",
        "consumers get a message whose transaction failed", guard_rules.already_decided,
    ),
    Guard(
        "op-in-memory", "delivering what was rolled back just before its broker was killed (5.1.0+ hold ops in memory)",
        "consumers get a message whose transaction failed", guard_rules.op_in_memory,
    ),
    Guard(
        "not-open", "closing what nobody will ask for again", "an op message that means nothing", guard_rules.not_open,
    ),
    Guard(
        "still-open", "two open copies of one transaction", "both may be committed: a second delivery",
        guard_rules.still_open,
    ),
    Guard(
        "not-a-half", "an op number that hides another half message (brokers to 5.3.3 do not test what is named)",
        "another transaction is silently never asked for", guard_rules.not_a_half,
    ),
    Guard(
        "cannot-be-written", "appending a record that the broker would have written otherwise, or into another topic",
        "nobody consumes it, or earlier than it was meant to be", guard_rules.cannot_be_written,
    ),
    Guard(
        "younger-copy", "deciding an old copy while the newest stays open",
        "it is asked again: a second delivery, or what was rolled back is delivered", guard_rules.younger_copy,
    ),
    Guard(
        "immunity", "deciding over the head of a producer that asked for time",
        "its own decision may follow: a second delivery", guard_rules.immunity,
    ),
    Guard(
        "producer-connected", "a decision of the producer after ours, which nothing can undo",
        "a second delivery, or a delivery of what was rolled back", guard_rules.producer_connected,
    ),
    Guard(
        "another-rmqtx", "two operators acting at once, neither seeing the other's decision", "a second delivery",
        guard_rules.another_rmqtx,
    ),
    Guard(
        "decision-in-flight", "overlooking a decision that is in the broker's queue, or in its op batch (5.1.0+)",
        "a second delivery, or a delivery of what was rolled back", guard_rules.decision_in_flight,
    ),
    Guard(
        "resume-unanswered", "waiting for an answer that never comes (4.3.0 to 4.5.1)",
        "nothing happens, after a timeout",
        guard_rules.resume_unanswered,
    ),
    Guard(
        "resume-compressed", "a message that nobody can read (before 5.3.2)", "the message is never delivered",
        guard_rules.resume_compressed,
    ),
    Guard(
        "resume-too-old", "a resume that the next check undoes", "another discard copy, and nothing asked",
        guard_rules.resume_too_old,
    ),
)  # fmt: skip

GUARD_NAMES = tuple(guard.name for guard in GUARDS)
#: Guards that nobody overrides.
ABSOLUTE_GUARDS = frozenset(guard.name for guard in GUARDS if guard.is_absolute)


def refusals(
    situation: Situation, wish: Wish, overridden: Iterable[str] = (), without: Iterable[str] = ()
) -> Iterator[Refusal]:
    """Every guard that refuses, except those overridden by name.

    `without`: guards that are asked at another time.
    Order: that of GUARDS.
    """
    overridden, left_out = set(overridden), set(without)
    for guard in GUARDS:
        is_passed = guard.name in left_out or (guard.name in overridden and not guard.is_absolute)
        if not is_passed and (found := guard.refuses(situation, wish)) is not None:
            yield Refusal(guard.name, *found)
