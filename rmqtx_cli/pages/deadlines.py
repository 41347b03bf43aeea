"""Deadlines in words: when the broker discards a transaction, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rmqtx.verdicts.model.next_event import NextEvent
from rmqtx.verdicts.model.predicted import EFFECTS, EVENTS
from rmqtx.verdicts.model.state import State
from rmqtx_cli.words.durations import duration_text
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import time_text

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx.verdicts.deadlines.deadline import Deadline
import pyarrow.compute as pc

from rmqtx.verdicts.model.predicted import Prediction

#: What a prediction assumes, in a few words.
_ASSUMED = {"settings": "settings", "version": "release", "log": "a log without damage"}
#: The condition under which a deadline is true while the broker is stopped.
IF_STARTED = "if the broker starts now"


def deadline_text(deadline: Deadline, now_ms: int) -> str:
    """When the broker discards a transaction, and why; or why it never does, or why that is unknown."""
    if deadline.discard_at_ms is None:
        assert deadline.why is not None
        return f"{'never' if deadline.why.is_known else 'unknown'}: {deadline.why.text}"
    when = f"{time_text(deadline.discard_at_ms)}, {in_text(deadline.discard_at_ms, now_ms)}"
    cause = "it is then older than fileReservedTime" if deadline.is_expired else "all its checks are then used up"
    started = "" if deadline.is_running else f", {IF_STARTED}"
    later = " or a round later" if deadline.may_be_later else ""
    asked = ", and no producer is asked before"
    if deadline.checks_to_come:
        asked = f", after {count(deadline.checks_to_come, 'more check')} without an answer"
    return f"{when}{later}{started}: {cause}{asked}"


def _event_text(event: str | None) -> str | None:
    """What happens next, in words; nothing if the deadline has all, or if it is not known."""
    return None if event in (None, NextEvent.NONE, NextEvent.UNKNOWN) else EVENTS[NextEvent(event)]


def next_text(transaction: Mapping[str, Any], deadline: Deadline, now_ms: int) -> str:
    """What the broker does next with a transaction, when, what an answer does then, and what is assumed; or nothing."""
    event = _event_text(transaction["next_event"])
    if event is None:
        return ""
    time_ms = transaction["next_event_at_ms"]
    when = "" if time_ms is None else f"{',' if ',' in event else ''} {in_text(time_ms, now_ms)}"
    started = f" {IF_STARTED}" if when and not deadline.is_running else ""
    answer = EFFECTS.get(transaction["answer_effect"])
    effect = "" if answer is None else f"; {answer}"
    assumed = ", ".join(_ASSUMED[name] for name in deadline.assumed)
    return f"{event}{when}{started}{effect}{f' (assumed: {assumed})' if assumed else ''}"


def in_text(time_ms: int, now_ms: int) -> str:
    """The time until a moment: "in 5m", or "now" where it has passed."""
    return f"in {duration_text(time_ms - now_ms)}" if time_ms > now_ms else "now"


def deadline_lines(rows: pa.Table, predicted: Mapping[str, Prediction], now_ms: int) -> Iterator[str]:
    """The first deadline of pending transactions: one line for running brokers, one for stopped ones."""
    pending = rows.filter(pc.equal(rows["state"], State.PENDING)).select(["store", "transaction_id", "discard_at_ms"])
    for is_running in (True, False):
        roots = [root for root, known in predicted.items() if known.is_running is is_running]
        mine = [row for row in pending.to_pylist() if row["store"] in roots and row["discard_at_ms"] is not None]
        if not mine:
            continue
        first = min(mine, key=lambda row: (row["discard_at_ms"], row["transaction_id"]))
        started = "" if is_running else f", {IF_STARTED}"
        time_ms = first["discard_at_ms"]
        yield f"the broker discards the first of them {in_text(time_ms, now_ms)}, at {time_text(time_ms)}{started}"
