"""How far the check is behind the end of the half queue: one rule for every command."""

from __future__ import annotations


def half_lag(next_offset: int | None, end_offset: int | None) -> int | None:
    """Return the half copies between the check's cursor and the end of the half queue; None if unknown.

    `end_offset`: None or 0 without a queue. Then nothing is behind if the cursor is at the begin too; a cursor further
    on proves that the queue's files are missing.
    """
    if not end_offset:
        return None if next_offset else 0
    return None if next_offset is None else max(0, end_offset - next_offset)
