"""The guards: rules that refuse an action. Each has a name and can be overridden only by that name.

A refusal names the evidence and what to do instead. What each guard prevents was seen on real brokers (docs/safety.md):
a broker never checks whether a transaction was decided before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from rmqtx.readers.model.errors import BadRequest
from rmqtx.repairs.acts import guard_rules, redelivery_rules
from rmqtx.repairs.acts.situation import ActRequest, Situation


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an action is not taken: the guard, the sentence with the evidence, and what to do instead."""

    guard: str
    why: str
    advice: str

    def __str__(self) -> str:
        return f"{self.guard}: {self.why} - {self.advice}"


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard.

    Shape: `prevents` and `risk` are texts for people; `refuses` returns why and what to do instead, or None.
           `is_absolute`: it cannot be overridden.
    """

    name: str
    prevents: str
    risk: str
    refuses: Callable[[Situation, ActRequest], tuple[str, str] | None]
    is_absolute: bool = False


#: In the order in which they are applied: guards that make others pointless come first.
GUARDS: tuple[Guard, ...] = (
    Guard(
        "slave", "deciding on a broker that refuses every decision", "the broker answers SLAVE_NOT_AVAILABLE",
        guard_rules.slave,
    ),
    Guard(
        "rocksdb-transactions", "a second half of a transaction that may still be open in the broker's RocksDB table; "
        "a decision by a broker before 5.4.0, which takes the number of a half in RocksDB for an ordinary one",
        "the broker checks both halves, and both may be committed; or it silently stops checking another transaction",
        guard_rules.rocksdb,
    ),
    Guard(
        "prepared-record", "a decision that the broker cannot make for a prepared record (before 4.3), or an action "
        "that does not exist for one", "an op message that hides another half message; this guard has no override",
        guard_rules.prepared_record,
        is_absolute=True,
    ),
    Guard(
        "wrong-group", "acting on a transaction of another producer group", "the broker refuses a wrong group",
        guard_rules.wrong_group,
    ),
    Guard(
        "evidence-incomplete", "acting on a verdict that missing evidence could change",
        "it may have been delivered, or rolled back", guard_rules.evidence_incomplete,
    ),
    Guard(
        "already-delivered", "a second delivery: the broker writes another COMMIT record for each commit request",
        "consumers get the message again", guard_rules.already_delivered,
    ),
    Guard(
        "already-decided", "delivering what was rolled back: the broker does not refuse it",
        "consumers get a message whose transaction failed", guard_rules.already_decided,
    ),
    Guard(
        "op-in-memory", "delivering what was rolled back just before the broker was killed (5.1.0 and later keep op "
        "messages in memory)",
        "consumers get a message whose transaction failed", guard_rules.op_in_memory,
    ),
    Guard(
        "not-open", "closing a transaction that the broker will not check again, or that is not decided",
        "a decided one: an op message without effect; any other is rolled back",
        guard_rules.not_open,
    ),
    Guard(
        "still-open", "two open copies of one transaction", "both may be committed: a second delivery",
        guard_rules.still_open,
    ),
    Guard(
        "traced-rollback", "a redelivery of what its producer rolled back, by its message trace",
        "consumers get a message whose transaction failed", redelivery_rules.traced_rollback,
    ),
    Guard(
        "delayed-half", "a commit that the broker answers with success and does not deliver: the half itself was "
        "delayed", "nothing is delivered, and the COMMIT record is in the half topic", redelivery_rules.delayed_half,
    ),
    Guard(
        "cannot-be-sent", "delivering a copy that consumers cannot read, or that could not be recognised later; this "
        "guard has no override",
        "consumers cannot read it, or get it twice", redelivery_rules.cannot_be_sent, is_absolute=True,
    ),
    Guard(
        "decidable-there", "sending a copy of what the broker can deliver itself",
        "consumers get it without its transaction id", redelivery_rules.decidable_there,
    ),
    Guard(
        "not-a-half", "an op message that hides another half message (brokers up to 5.3.3 do not check which record a "
        "decision names)",
        "the broker silently stops checking another transaction", guard_rules.not_a_half,
    ),
    Guard(
        "number-taken", "an op message that hides another half message: its half queue offset is the number of that "
        "half message's slot (a half queue that was deleted, a failover before 5.2.0)",
        "the broker silently stops checking another transaction", guard_rules.number_taken,
    ),
    Guard(
        "number-shared", "an op message that may mean two half messages: another one has its half queue offset too",
        "no later reading shows which of the two was rolled back", guard_rules.number_shared,
    ),
    Guard(
        "cannot-be-written", "appending a record that the broker would have written differently, or to another topic",
        "no consumer gets the message, or gets it too early", guard_rules.cannot_be_written,
    ),
    Guard(
        "younger-copy", "deciding an old copy while the newest stays open",
        "the newest copy is checked again: a second delivery, or a delivery of what was rolled back",
        guard_rules.younger_copy,
    ),
    Guard(
        "immunity", "deciding during the time in which the producer must not be asked",
        "its own decision may follow: a second delivery", guard_rules.immunity,
    ),
    Guard(
        "producer-connected", "a later decision of the producer itself, which nothing can undo",
        "a second delivery, or a delivery of what was rolled back", guard_rules.producer_connected,
    ),
    Guard(
        "another-rmqtx", "two operators acting at once, neither seeing the other's decision", "a second delivery",
        guard_rules.another_rmqtx,
    ),
    Guard(
        "decision-in-flight", "missing a decision that is still in the broker's request queue, or in its op batch "
        "(5.1.0 and later)",
        "a second delivery, or a delivery of what was rolled back", guard_rules.decision_in_flight,
    ),
    Guard(
        "resume-unanswered", "waiting for an answer that the broker never sends (4.3.0 to 4.5.1)",
        "the request times out without an effect",
        guard_rules.resume_unanswered,
    ),
    Guard(
        "resume-compressed", "a half copy whose body no consumer can read (before 5.3.2)",
        "the message is never delivered",
        guard_rules.resume_compressed,
    ),
    Guard(
        "resume-too-old", "a resume that the next check undoes", "another discard copy; the producer is not asked",
        guard_rules.resume_too_old,
    ),
)

GUARD_NAMES = tuple(guard.name for guard in GUARDS)
#: Guards that cannot be overridden.
ABSOLUTE_GUARDS = frozenset(guard.name for guard in GUARDS if guard.is_absolute)


def overridden(names: Iterable[str], reason: str | None, near: Callable[[str, list[str]], str]) -> tuple[str, ...]:
    """Return the guards to override, each once. `near`: advice for an unknown name and the known ones.

    Raises: BadRequest for an unknown guard, one without an override, or no reason.
    """
    found = tuple(dict.fromkeys(names))
    for name in found:
        if name not in GUARD_NAMES:
            raise BadRequest(f"no guard {name!r}", advice=near(name, list(GUARD_NAMES)))
        if name in ABSOLUTE_GUARDS:
            raise BadRequest(f"guard {name} cannot be overridden", advice="leave that transaction out")
    if found and not (reason or "").strip():
        raise BadRequest("--override needs --reason TEXT")
    return found


def refusals(
    situation: Situation, request: ActRequest, overridden: Iterable[str] = (), without: Iterable[str] = ()
) -> Iterator[Refusal]:
    """Yield the refusal of every guard that refuses, except those overridden by name.

    `without`: guards that are applied at another time.
    Order: that of GUARDS.
    """
    overridden, left_out = set(overridden), set(without)
    for guard in GUARDS:
        is_passed = guard.name in left_out or (guard.name in overridden and not guard.is_absolute)
        if not is_passed and (found := guard.refuses(situation, request)) is not None:
            yield Refusal(guard.name, *found)
