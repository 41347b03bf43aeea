"""Deadlines in words: when the broker discards a transaction, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rmqtx_cli.words.durations import duration_text
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import time_text

if TYPE_CHECKING:
    import pyarrow as pa

    from verdicts.deadlines.deadline import Deadline
    from verdicts.model.predicted import Prediction

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


def in_text(time_ms: int, now_ms: int) -> str:
    """The time until a moment: "in 5m", or "now" where it has passed."""
    return f"in {duration_text(time_ms - now_ms)}" if time_ms > now_ms else "now"


def deadline_lines(rows: pa.Table, predicted: Mapping[str, Prediction], now_ms: int) -> Iterator[str]:
    """The first deadline of pending transactions: one line for running brokers, one for stopped ones."""
    import pyarrow.compute as pc

    pending = rows.filter(pc.equal(rows["state"], "PENDING")).select(["store", "transaction_id", "discard_at_ms"])
    for is_running in (True, False):
        roots = [root for root, known in predicted.items() if known.is_running is is_running]
        mine = [row for row in pending.to_pylist() if row["store"] in roots and row["discard_at_ms"] is not None]
        if not mine:
            continue
        first = min(mine, key=lambda row: (row["discard_at_ms"], row["transaction_id"]))
        started = "" if is_running else f", {IF_STARTED}"
        time_ms = first["discard_at_ms"]
        yield f"the broker discards the first of them {in_text(time_ms, now_ms)}, at {time_text(time_ms)}{started}"
