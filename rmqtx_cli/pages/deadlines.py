"""Deadlines in words: when the broker gives up on a transaction, and from when on that counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rmqtx_cli.words.durations import duration_text
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import time_text

if TYPE_CHECKING:
    import pyarrow as pa

    from verdicts.deadlines.discard_times import Deadline
    from verdicts.model.predicted import Prediction

#: What the deadline of a stopped broker's store counts from.
IF_STARTED = "if its broker starts now"


def deadline_text(deadline: Deadline, now_ms: int) -> str:
    """When one transaction is given up on, and why it is; or why it is not."""
    if deadline.discard_at_ms is None:
        assert deadline.why is not None
        return f"{'never' if deadline.why.is_known else 'not known'}: {deadline.why.text}"
    when = f"{time_text(deadline.discard_at_ms)}, {in_text(deadline.discard_at_ms, now_ms)}"
    cause = "it is older than fileReservedTime then" if deadline.is_expired else "its checks are spent then"
    started = "" if deadline.is_running else f", {IF_STARTED}"
    later = " or a round later" if deadline.may_be_later else ""
    return f"{when}{later}{started}: {cause}, after {count(deadline.checks_to_come, 'more check')} without an answer"


def in_text(time_ms: int, now_ms: int) -> str:
    """How far off a time is."""
    return f"in {duration_text(time_ms - now_ms)}" if time_ms > now_ms else "now"


def deadline_lines(rows: pa.Table, predicted: Mapping[str, Prediction], now_ms: int) -> Iterator[str]:
    """What there is to say of the deadlines of pending transactions: the first one of each kind of store."""
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
