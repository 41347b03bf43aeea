"""The copies in a row of TRANSACTIONS: which is the newest, and which no op message names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def newest_first(copies: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return half or discard copies in the order of the log, the newest first; of several stores, by their clocks.

    Queue offsets do not give the order: a half queue that was deleted begins again at 0.
    """
    order = "commit_log_offset" if len({copy["store"] for copy in copies}) <= 1 else "store_time_ms"
    return sorted(copies, key=lambda copy: (-int(copy[order]), -int(copy["queue_offset"])))


def copies_without_op(row: Mapping[str, Any], op_cursor: int = 0, **of: Any) -> list[int]:
    """Half queue offsets of a transaction's half copies that no op message names.

    `op_cursor`: where the check reads op messages from; earlier ones have no effect on what it still reaches. `of`:
    values that the entries of the copies must have, for example their store or queue.
    Order: ascending, each once.
    """
    marked = {mark["half_queue_offset"] for mark in row["op_marks"] if (mark["queue_offset"] or 0) >= op_cursor}
    copies = [copy for copy in row["half_copies"] if all(copy[name] == value for name, value in of.items())]
    return sorted({int(copy["queue_offset"]) for copy in copies} - marked)
