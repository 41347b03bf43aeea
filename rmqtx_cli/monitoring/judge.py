"""Compares numbers with thresholds: OK, WARNING, CRITICAL or UNKNOWN, and the reasons."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from rmqtx.verdicts.model.verdict_words import State
from rmqtx_cli.monitoring.numbers import ENDED, PENDING, WITHOUT_OP, Memory, Numbers, StoreNumbers, ends_gone
from rmqtx_cli.monitoring.remembered import Became
from rmqtx_cli.pages.headlines import IF_STARTED, in_text
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import duration_text

OK, WARNING, CRITICAL, UNKNOWN = 0, 1, 2, 3
NAMES = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
#: Worst first, as monitoring systems rank them.
_WORST = (CRITICAL, WARNING, UNKNOWN, OK)


class Harm(IntEnum):
    """What a reason is about, in the order of harm: of two reasons with the same status the first one leads."""

    LOST_NEXT = 0
    DISCARDED_SOON = 1
    STOPPED = 2
    LOST = 3
    DISCARDED = 4
    DELIVERED_AGAIN = 5
    PENDING = 6
    LOST_BY_FAILOVER = 7
    HELD = 8
    UNKNOWN = 9


#: What a reason counts: the transactions whose causes are named with it.
_COUNTED = {
    Harm.DISCARDED_SOON: PENDING, Harm.STOPPED: PENDING, Harm.LOST: ENDED, Harm.DISCARDED: ENDED,
    Harm.DELIVERED_AGAIN: WITHOUT_OP, Harm.PENDING: PENDING, Harm.LOST_BY_FAILOVER: PENDING,
}
#: A cursor that has not moved for this time, with half messages ahead of it, is frozen. Units: milliseconds.
_FROZEN_MS_MIN = 120_000


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Ages in milliseconds; `deadline_ms` is the time before the first discard; None for a limit that is not set."""

    warning_age_ms: int | None
    critical_age_ms: int | None
    warning_count: int | None = None
    critical_count: int | None = None
    deadline_ms: int | None = None


@dataclass(slots=True)
class Outcome:
    """The exit status and all reasons for it, worst first. Shape: `harms`: what the reasons are about."""

    status: int = OK
    reasons: list[tuple[int, str]] = field(default_factory=list)
    newly: dict[str, list[str]] = field(default_factory=dict)
    newly_discarded_count: int = 0
    newly_vanished: list[str] = field(default_factory=list)
    harms: list[Harm] = field(default_factory=list)

    def add(self, status: int, reason: str, harm: Harm = Harm.UNKNOWN) -> None:
        """Add a reason; the worst status counts."""
        found = [*zip(self.reasons, self.harms, strict=True), ((status, reason), harm)]
        found.sort(key=lambda one: (_WORST.index(one[0][0]), one[1]))
        self.reasons, self.harms = [pair for pair, _ in found], [harm for _, harm in found]
        self.status = self.reasons[0][0]

    @property
    def counted(self) -> set[str]:
        """What the reasons count."""
        return {_COUNTED[harm] for harm in self.harms if harm in _COUNTED}


def judge(
    numbers: Numbers, thresholds: Thresholds, before: Memory | None, became: Became, memory: str = "its memory"
) -> Outcome:
    """The outcome of one run.

    `before`: numbers of the last run, from the file `memory`. `became`: the states of transactions that were pending
    then and no longer are.
    """
    outcome = Outcome()
    _judge_pending(outcome, numbers, thresholds)
    _judge_changes(outcome, numbers, before, became, memory)
    if numbers.commit_without_op_count:
        number = count(numbers.commit_without_op_count, "transaction")
        outcome.add(WARNING, f"{number} committed without an op message: may be delivered again", Harm.DELIVERED_AGAIN)
    for held in (store.held for store in numbers.stores if store.held is not None):
        outcome.add(WARNING, held, Harm.HELD)
    for store, lacking in numbers.copies_lacking.items():
        outcome.add(WARNING, f"a failover to {store} loses pending transactions: {lacking}", Harm.LOST_BY_FAILOVER)
    if numbers.evidence_missing:
        words = [numbers.undecidable or code if code == "undecidable" else code for code in numbers.evidence_missing]
        outcome.add(UNKNOWN, f"evidence is missing or damaged: {', '.join(words)}")
    return outcome


def _judge_pending(outcome: Outcome, numbers: Numbers, thresholds: Thresholds) -> None:
    """Age and number of what is pending now, and whether the check runs and reaches it."""
    for sentence in numbers.unreached:
        outcome.add(CRITICAL, sentence, Harm.LOST_NEXT)
    for store in numbers.stores:
        if store.check_stopped is not None:
            outcome.add(CRITICAL, store.check_stopped, Harm.STOPPED)
    age = numbers.oldest_pending_ms
    if (status := _passed(age, thresholds.warning_age_ms, thresholds.critical_age_ms)) != OK:
        reason = f"oldest pending is {duration_text(age)} old ({numbers.oldest_id}, {numbers.oldest_of})"
        outcome.add(status, reason, Harm.PENDING)
    pending = numbers.pending_count
    if (status := _passed(pending, thresholds.warning_count, thresholds.critical_count)) != OK:
        outcome.add(status, f"{pending} pending", Harm.PENDING)
    if thresholds.deadline_ms is not None:
        _judge_deadline(outcome, numbers, thresholds.deadline_ms)


def _judge_changes(
    outcome: Outcome, numbers: Numbers, before: Memory | None, became: Became, memory: str
) -> None:
    """What has changed since the last run."""
    for identity, state in became.states.items():
        outcome.newly.setdefault(state, []).append(identity)
    if lost := outcome.newly.get(State.LOST):
        outcome.add(CRITICAL, f"{count(len(lost), 'transaction')} newly lost (first: {lost[0]})", Harm.LOST)
    outcome.newly_vanished = became.vanished
    for store in numbers.stores:
        if sentences := ends_gone(store, before):
            outcome.add(CRITICAL, f"{store.store} is shorter than at an earlier run: {', '.join(sentences)} (if the "
                                  f"store was replaced on purpose, remove {memory})", Harm.LOST)
    if gone := became.vanished:
        number = count(len(gone), "transaction")
        reason = f"the log no longer contains {number} pending at the last run (first: {gone[0]})"
        outcome.add(CRITICAL, reason, Harm.LOST)
    if left := [*became.unanswered, *outcome.newly.get(State.UNDECIDABLE, [])]:
        why = f": {became.why}" if became.why else ""
        number = count(len(left), "transaction")
        outcome.add(UNKNOWN, f"unknown state of {number} pending at the last run{why} (first: {left[0]})")
    outcome.newly_discarded_count = _newly_discarded(numbers, before, len(outcome.newly.get(State.DISCARDED, [])))
    if outcome.newly_discarded_count:
        number = count(outcome.newly_discarded_count, "transaction")
        outcome.add(WARNING, f"{number} newly discarded by the broker", Harm.DISCARDED)
    for store in numbers.stores:
        if store.check_stopped is None and _is_frozen(store, numbers.taken_time_ms, before):
            reason = f"the half cursor has not moved from {store.half_next_offset} ({store.store})"
            outcome.add(CRITICAL, reason, Harm.STOPPED)


def _judge_deadline(outcome: Outcome, numbers: Numbers, deadline_ms: int) -> None:
    first = numbers.first_discard
    if first is not None and first.first_discard_ms is not None:
        left_ms = first.first_discard_ms - numbers.taken_time_ms
        if left_ms <= deadline_ms:
            started = "" if first.is_in_use else f", {IF_STARTED}"
            when = in_text(first.first_discard_ms, numbers.taken_time_ms)
            reason = f"the broker discards the first pending {when}{started} ({numbers.first_discard_id})"
            outcome.add(CRITICAL, reason, Harm.DISCARDED_SOON)
    if numbers.unforetold_count:
        number = count(numbers.unforetold_count, "pending transaction")
        outcome.add(UNKNOWN, f"unknown when the broker discards {number}: {numbers.unforetold_why}")


def _passed(value: int | None, warning: int | None, critical: int | None) -> int:
    if value is None:
        return OK
    if critical is not None and value >= critical:
        return CRITICAL
    return WARNING if warning is not None and value >= warning else OK


def _newly_discarded(numbers: Numbers, before: Memory | None, became_count: int) -> int:
    """Discards since the last run: growth of the discard queue, or states, for versions that write no discard copy."""
    if before is None:
        return 0
    grown = 0
    for store in numbers.stores:
        old = before["stores"].get(store.store, {}).get("discard_max_offset")
        if old is not None and store.discard_max_offset is not None:
            grown += max(0, store.discard_max_offset - old)
    return max(grown, became_count)


def _is_frozen(store: StoreNumbers, now_ms: int, before: Memory | None) -> bool:
    """Whether half messages are ahead of the cursor, and it has not moved since a run long enough ago."""
    if before is None or not store.half_lag or not store.is_in_use:
        return False
    old = before["stores"].get(store.store, {})
    waited = now_ms - before.get("taken_time_ms", now_ms)
    # A half younger than the timeout does not move the cursor either: only an old pending one proves a stopped check.
    hangs = store.oldest_pending_ms is not None and store.oldest_pending_ms > 2 * store.check_interval_ms
    return (
        old.get("half_next_offset") == store.half_next_offset
        and waited >= max(_FROZEN_MS_MIN, 2 * store.check_interval_ms)
        and hangs
    )
