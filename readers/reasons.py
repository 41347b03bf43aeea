"""The sentence that says why a verdict is what it is, with the offsets that prove it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from readers.columns import Int64s, scatter

if TYPE_CHECKING:
    from readers.transactions import Judgement


def reasons_of(judged: Judgement) -> pa.Array:
    """One sentence per transaction, made of a few patterns with the offsets that prove it."""
    chosen = [(judged.state == state, partial(make, judged)) for state, make in _MAKERS.items()]
    return _with_oddities(judged, scatter(judged.chains.count, chosen))


def _committed_reasons(judged: Judgement, rows: Int64s) -> pa.Array:
    finals = judged.finals
    gone = ~(judged.halves.has | judged.discards.has)[rows]
    return _join(
        "COMMIT record at commit-log offset ", _text(finals.integers("commit_log_offset")[finals.first[rows]]),
        pa.array([", its half message is no longer in the log", ""]).take(pa.array(np.where(gone, 0, 1))),
    )


def _rolled_back_reasons(judged: Judgement, rows: Int64s) -> pa.Array:
    marks = judged.marks
    own = marks.lowest(np.arange(len(marks)), len(marks), ~judged.is_foreign_mark)[rows]
    return _join(
        "op message at commit-log offset ", _text(marks.integers("commit_log_offset")[own]),
        " ended half queue offset ", _text(marks.integers("half_queue_offset")[own]), ", no COMMIT record",
    )


def _newest(judged: Judgement, rows: Int64s) -> tuple[pa.Array, pa.Array]:
    newest = judged.halves.last[rows]
    return _text(judged.halves.integers("queue_offset")[newest]), _text(judged.cursor_per_copy[newest])


def _pending_reasons(judged: Judgement, rows: Int64s) -> pa.Array:
    newest, cursor = _newest(judged, rows)
    waiting = ~judged.is_half_copy[judged.halves.last[rows]]
    return pc.if_else(
        pa.array(waiting),
        "the half message was diverted by a delay and waits to come back to the half topic",
        _join(
            "half queue offset ", newest, " is not before the check cursor ", cursor, ", no op, no COMMIT record"
        ),
    )


def _discarded_reasons(judged: Judgement, rows: Int64s) -> pa.Array:
    if not len(judged.discards):
        return _dropped_reasons(judged, rows)
    last = judged.discards.last[rows]
    copied = _join(
        "copy in TRANS_CHECK_MAX_TIME_TOPIC at commit-log offset ",
        _text(judged.discards.integers("commit_log_offset")[last]),
        " after ", _text(judged.checks_count[rows]), " checks",
    )
    return pc.if_else(pa.array(judged.is_without_copy[rows]), _dropped_reasons(judged, rows), copied)


def _dropped_reasons(judged: Judgement, rows: Int64s) -> pa.Array:
    return _join(
        "checked ", _text(judged.newest_checks[rows]), " times, then dropped by the check (no copy, as before 4.5.2)"
    )


def _lost_reasons(judged: Judgement, rows: Int64s) -> pa.Array:
    newest, cursor = _newest(judged, rows)
    return _join(
        "every copy, the newest at half queue offset ", newest, ", lies before the check cursor ", cursor,
        ": no op, no COMMIT record, no discard copy",
    )


def _undecidable_reasons(judged: Judgement, rows: Int64s) -> pa.Array:
    return pa.array(judged.undecidable_reason[rows].tolist(), pa.string())


_MAKERS: dict[str, Callable[[Judgement, Int64s], pa.Array]] = {
    "COMMITTED": _committed_reasons, "ROLLED_BACK": _rolled_back_reasons, "PENDING": _pending_reasons,
    "DISCARDED": _discarded_reasons, "LOST": _lost_reasons, "UNDECIDABLE": _undecidable_reasons,
}


def _with_oddities(judged: Judgement, reasons: pa.Array) -> pa.Array:
    additions: list[tuple[str, pa.Array | str]] = [
        ("duplicate_commit", _join("; committed ", _text(judged.commits_count), " times, so delivered as often")),
        ("commit_without_op", "; no op message"),
        ("commit_after_rollback", "; the op before it was a rollback"),
        ("conflict", "; the committed copy has more op marks than COMMIT records: it was rolled back too"),
        ("commit_after_discard", "; committed after it was discarded"),
        ("discarded_though_decided", "; discarded although it was decided"),
        ("resumed", "; checked again after it was discarded"),
        ("masked", "; an op number of another record hides it from the check"),
        ("poison", "; the check cannot ask for it"),
        ("expires_soon", "; it nears fileReservedTime"),
    ]
    for flag, sentence in additions:
        rows = judged.flags[flag]
        if rows.any():
            reasons = pc.if_else(pa.array(rows), _join(reasons, sentence), reasons)
    if judged.is_closable.any():
        again = _join(reasons, "; a copy is still before the check: it will be asked again")
        reasons = pc.if_else(pa.array(judged.is_closable), again, reasons)
    return reasons


def _text(values: Int64s) -> pa.Array:
    return pa.array(values).cast(pa.string())


def _join(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")
