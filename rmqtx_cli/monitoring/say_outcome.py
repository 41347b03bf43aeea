"""The outcome of `rmqtx check` as a Nagios line, as JSON, and as Prometheus text."""

from __future__ import annotations

import json
from collections import Counter

from rmqtx.verdicts.model.verdict_words import State, Strength
from rmqtx_cli.monitoring.judge import NAMES, Harm, Outcome, Thresholds
from rmqtx_cli.monitoring.metrics import as_text, of_run
from rmqtx_cli.monitoring.numbers import PENDING, Numbers, StoreNumbers
from rmqtx_cli.monitoring.samples import store_samples
from rmqtx_cli.pages.causes import STRENGTH_WORDS
from rmqtx_cli.pages.headlines import IF_STARTED
from rmqtx_cli.words.text import count, escaped
from rmqtx_cli.words.times import duration_text, time_text


def nagios_line(status: int, text: str, performance: str = "") -> str:
    """One line: the status word, the reasons, and performance data after the bar."""
    plain = escaped(" ".join(text.split())).replace("|", "¦")
    return f"RMQTX {NAMES[status]} - {plain}{'|' + performance if performance else ''}"


def outcome_text(numbers: Numbers, outcome: Outcome) -> str:
    """The reasons, worst first, then the most frequent cause of what they count; without any reason, what was counted.

    Before reasons about pending transactions: when brokers discard some of them, if that is soon.
    """
    if outcome.reasons:
        has_deadline = Harm.DISCARDED_SOON in outcome.harms
        soon = numbers.soon if PENDING in outcome.counted and not has_deadline else []
        return "; ".join([*soon, *(reason for _, reason in outcome.reasons), *_first_cause(numbers, outcome.counted)])
    oldest = numbers.oldest_pending_ms
    age = "" if oldest is None else f", oldest {duration_text(oldest)} ({numbers.oldest_of})"
    text = f"{numbers.pending_count} pending{age}"
    left_ms = _first_discard_left_ms(numbers)
    if left_ms is None or numbers.first_discard is None:
        return text
    started = "" if numbers.first_discard.is_in_use else f", {IF_STARTED}"
    return f"{text}, first discard in {duration_text(max(0, left_ms))}{started}"


def _first_cause(numbers: Numbers, counted: set[str]) -> list[str]:
    """Return a sentence on the cause of most of the counted transactions, if one is known."""
    of_all: Counter[tuple[str, Strength]] = Counter()
    for _, word, strength, number in numbers.causes_in_order(counted):
        of_all[word, strength] += number
    return [
        f"cause: {word} {STRENGTH_WORDS[strength]} {count(number, 'transaction')}"
        for (word, strength), number in of_all.most_common(1)
    ]


def _first_discard_left_ms(numbers: Numbers, store: StoreNumbers | None = None) -> int | None:
    """Time until the broker of a store, or the first of all brokers, discards a pending transaction."""
    first = store or numbers.first_discard
    if first is None or first.first_discard_ms is None:
        return None
    return first.first_discard_ms - numbers.taken_time_ms


def _seconds_left(numbers: Numbers, store: StoreNumbers | None = None) -> float | None:
    left_ms = _first_discard_left_ms(numbers, store)
    return None if left_ms is None else left_ms / 1000


def performance(numbers: Numbers, thresholds: Thresholds, outcome: Outcome) -> str:
    """Performance data as the Nagios plug-in guidelines write it: label=value[unit];warning;critical;minimum.

    A value that could not be determined is U, without a unit.
    """

    def seconds(value_ms: int | None) -> str:
        return "" if value_ms is None else f"{value_ms / 1000:.3f}".rstrip("0").rstrip(".")

    def number(value: int | None) -> str:
        return "" if value is None else str(value)

    def counted(count: int) -> str:
        return number(numbers.counted(count)) or "U"

    oldest_ms = numbers.oldest_pending_ms if numbers.evidence_missing else numbers.oldest_pending_ms or 0
    oldest = "U" if oldest_ms is None else f"{oldest_ms / 1000:.3f}s"
    deadline = "" if thresholds.deadline_ms is None else f"{seconds(thresholds.deadline_ms)}:"  # critical below it
    left = _seconds_left(numbers)
    return " ".join([
        f"oldest_pending={oldest};{seconds(thresholds.warning_age_ms)};{seconds(thresholds.critical_age_ms)};0",
        f"pending={counted(numbers.pending_count)};{number(thresholds.warning_count)};"
        f"{number(thresholds.critical_count)};0",
        f"half_lag={number(numbers.half_lag) or 'U'};;;0",
        f"newly_lost={counted(len(outcome.newly.get('LOST', [])))};;;0",
        f"newly_discarded={counted(outcome.newly_discarded_count)};;;0",
        f"commit_without_op={counted(numbers.commit_without_op_count)};;;0",
        f"never_asked={counted(numbers.never_asked_count)};;;0",
        *([] if left is None else [f"first_discard={left:.3f}s;;{deadline}"]),
        *(f"{label}={number};;;0" for label, number in _by_cause(numbers).items()),
    ])


def _by_cause(numbers: Numbers) -> Counter[str]:
    """Return the number of transactions by label: the cause explains them, or only could."""
    found: Counter[str] = Counter()
    causes = sorted(numbers.causes_in_order(), key=lambda one: (one[2] != Strength.EXPLAINS, one[1]))
    for _, word, strength, number in causes:
        found[f"{'' if strength == Strength.EXPLAINS else 'possible_'}cause_{word}"] += number
    return found


def as_json(numbers: Numbers, outcome: Outcome) -> str:
    """The same as one JSON object; a number is null if missing evidence may hide what it counts."""
    stores: list[dict[str, object]] = [
        {
            "store": store.store,
            "pending_count": numbers.counted(store.pending_count),
            "oldest_pending_ms": store.oldest_pending_ms,
            "commit_without_op_count": numbers.counted(store.commit_without_op_count),
            "never_asked_count": numbers.counted(store.never_asked_count),
            "check_stopped": store.check_stopped,
            "held": store.held,
            "half_next_offset": store.half_next_offset,
            "half_max_offset": store.half_max_offset,
            "half_lag": store.half_lag,
            "discard_max_offset": store.discard_max_offset,
            "first_discard_at_ms": store.first_discard_ms,
            "seconds_until_first_discard": _seconds_left(numbers, store),
            "unforetold_count": store.unforetold_count,
        }
        for store in numbers.stores
    ]
    return json.dumps(
        {
            "status": NAMES[outcome.status],
            "exit_status": outcome.status,
            "summary": outcome_text(numbers, outcome),
            "reasons": [{"status": NAMES[status], "reason": reason} for status, reason in outcome.reasons],
            "taken_time_ms": numbers.taken_time_ms,
            "taken_time": time_text(numbers.taken_time_ms),
            "pending_count": numbers.counted(numbers.pending_count),
            "oldest_pending_ms": numbers.oldest_pending_ms,
            "oldest_transaction_id": numbers.oldest_id,
            "newly_lost": outcome.newly.get(State.LOST, []),
            "newly_discarded_count": numbers.counted(outcome.newly_discarded_count),
            "newly_vanished": outcome.newly_vanished,
            "commit_without_op_count": numbers.counted(numbers.commit_without_op_count),
            "seconds_until_first_discard": _seconds_left(numbers),
            "first_discard_id": numbers.first_discard_id,
            "causes": [
                {"store": store, "cause": word, "strength": strength, "transactions_count": number}
                for store, word, strength, number in numbers.causes_in_order()
            ],
            "stores": stores,
        }
    )


def prometheus_text(numbers: Numbers | None, status: int, now_ms: int, outcome: Outcome | None = None) -> str:
    """The numbers as Prometheus text; without numbers only the failure of the check.

    A metric has no value where missing evidence may hide what it counts.
    """
    samples = of_run("check", status, now_ms)
    if numbers is not None and outcome is not None:
        newly = {
            "rmqtx_newly_lost_transactions": len(outcome.newly.get(State.LOST, [])),
            "rmqtx_newly_discarded_transactions": outcome.newly_discarded_count,
            "rmqtx_newly_vanished_transactions": len(outcome.newly_vanished),
        }
        for name, number in newly.items():
            value = numbers.counted(number)
            samples[name] = [] if value is None else [({}, value)]
        samples |= store_samples(numbers)
    return as_text(samples)
