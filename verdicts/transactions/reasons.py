"""The sentence that says why a verdict is what it is, with the offsets that prove it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from readers.model.columns import Bools, Int64s, scatter
from verdicts.transactions.check_reach import CheckReach
from verdicts.transactions.judgement import Judgement
from verdicts.transactions.reasons_by_design import (
    ended_by_offset,
    joined,
    of_newest,
    prepared_pending,
    rocksdb_dropped,
    rocksdb_never_known,
    rocksdb_pending,
    still_asked,
    text,
    where_half_was,
)
from verdicts.transactions.undecided_ops import lost_ops_words

#: Ends the reason of what is decided in RocksDB without an op, where its table was not read.
PERHAPS_ASKED = "only the RocksDB table tells whether it will be asked again, and it is not there to be read"


def reasons_of(judged: Judgement, flags: Mapping[str, Bools], reach: CheckReach) -> pa.Array:
    """One sentence per transaction, made of a few patterns with the offsets that prove it."""
    chosen = [(judged.state == state, partial(make, judged)) for state, make in _MAKERS.items()]
    return _with_oddities(judged, flags, reach, scatter(judged.chains.count, chosen))


def _committed_reasons(judged: Judgement, rows: Int64s) -> pa.Array:
    finals = judged.finals
    first = finals.first[rows]
    gone = ~(judged.halves.has | judged.discards.has)[rows]
    return joined(
        "COMMIT record at commit-log offset ", text(finals.integers("commit_log_offset")[first]),
        where_half_was(judged, rows, finals.integers("prepared_transaction_offset")[first], gone),
        still_asked(judged, rows),
    )


def _rolled_back_reasons(judged: Judgement, rows: Int64s) -> pa.Array:
    marks = judged.marks
    own = marks.lowest(np.arange(len(marks)), len(marks), ~judged.is_foreign_mark)[rows]
    reasons = joined(
        "op message at commit-log offset ", text(marks.integers("commit_log_offset")[own]),
        " ended half queue offset ", text(marks.integers("half_queue_offset")[own]), ", no COMMIT record",
    )
    return ended_by_offset(judged, rows, own, reasons)


def _newest(judged: Judgement, rows: Int64s) -> tuple[pa.Array, pa.Array]:
    newest = judged.halves.last[rows]
    return text(judged.halves.integers("queue_offset")[newest]), text(judged.cursor_per_copy[newest])


def _pending_reasons(judged: Judgement, rows: Int64s) -> pa.Array:
    newest, cursor = _newest(judged, rows)
    waiting = judged.chains.is_diverted[judged.halves.last[rows]]
    reasons = pc.if_else(
        pa.array(waiting),
        "the half message was diverted by a delay and waits to come back to the half topic",
        joined(
            "half queue offset ", newest, " is not before the check cursor ", cursor, ", no op, no COMMIT record"
        ),
    )
    reasons = pc.if_else(
        pa.array(judged.is_copied_later[rows]),
        joined("half queue offset ", newest, " was before the check then: it wrote another copy of it later"),
        reasons,
    )
    return of_newest(judged, rows, reasons, prepared=prepared_pending, rocksdb=rocksdb_pending)


def _discarded_reasons(judged: Judgement, rows: Int64s) -> pa.Array:
    if not len(judged.discards):
        return _dropped_reasons(judged, rows)
    last = judged.discards.last[rows]
    copied = joined(
        "copy in TRANS_CHECK_MAX_TIME_TOPIC at commit-log offset ",
        text(judged.discards.integers("commit_log_offset")[last]),
        " after ", text(judged.checks_count[rows]), " checks",
    )
    return pc.if_else(pa.array(judged.is_without_copy[rows]), _dropped_reasons(judged, rows), copied)


def _dropped_reasons(judged: Judgement, rows: Int64s) -> pa.Array:
    reasons = joined(
        "checked ", text(judged.newest_checks[rows]), " times, then dropped by the check (no copy, as before 4.5.2)"
    )
    return of_newest(judged, rows, reasons, rocksdb=rocksdb_dropped)


def _lost_reasons(judged: Judgement, rows: Int64s) -> pa.Array:
    newest, cursor = _newest(judged, rows)
    reasons = joined(
        "every copy, the newest at half queue offset ", newest, ", lies before the check cursor ", cursor,
        ": no op, no COMMIT record, no discard copy",
    )
    return of_newest(judged, rows, reasons, rocksdb=rocksdb_never_known)


def _undecidable_reasons(judged: Judgement, rows: Int64s) -> pa.Array:
    return pa.array(judged.undecidable_reason[rows].tolist(), pa.string())


_MAKERS: dict[str, Callable[[Judgement, Int64s], pa.Array]] = {
    "COMMITTED": _committed_reasons, "ROLLED_BACK": _rolled_back_reasons, "PENDING": _pending_reasons,
    "DISCARDED": _discarded_reasons, "LOST": _lost_reasons, "UNDECIDABLE": _undecidable_reasons,
}


def _with_oddities(
    judged: Judgement, flags: Mapping[str, Bools], reach: CheckReach, reasons: pa.Array
) -> pa.Array:
    def by_design(of_prepared: str, of_others: str) -> pa.Array | str:
        rolled_back = judged.has_rollback_record
        return pc.if_else(pa.array(rolled_back), of_prepared, of_others) if rolled_back.any() else of_others

    additions: list[tuple[str, pa.Array | str]] = [
        ("duplicate_commit", joined("; committed ", text(judged.commits_count), " times, so delivered as often")),
        ("commit_without_op", "; no op message"),
        (
            "commit_after_rollback",
            by_design("; a ROLLBACK record came before it", "; the op before it was a rollback"),
        ),
        (
            "conflict",
            by_design(
                "; a ROLLBACK record names it too: consumers got it all the same",
                "; the committed copy has more op marks than COMMIT records: it was rolled back too",
            ),
        ),
        ("commit_after_discard", "; committed after it was discarded"),
        ("discarded_though_decided", "; discarded although it was decided"),
        ("resumed", "; a resume had it checked again"),
        (
            "checked_again_after_restart",
            "; after it was discarded the check came to another copy of it: it began again at an older cursor",
        ),
        ("masked", "; an op number of another record hides it from the check"),
        ("poison", "; the check cannot ask for it"),
        ("expires_soon", "; it nears fileReservedTime"),
        ("may_be_decided", lost_ops_words(judged)),
    ]
    for flag, sentence in additions:
        rows = flags[flag]
        if rows.any():
            reasons = pc.if_else(pa.array(rows), joined(reasons, sentence), reasons)
    ended = (judged.state == "PENDING") & (judged.marks_count > 0)
    if ended.any():
        reasons = pc.if_else(
            pa.array(ended), joined(reasons, "; another half message of it was rolled back"), reasons
        )
    stopped = joined("; the check is stopped at ", pa.array(reach.places.tolist(), pa.string()))
    never = reach.is_never_asked
    if (spent := reach.is_spent).any():
        last = joined(reasons, "; it had all its ", text(judged.checks_count),
                      " checks: the next round gives it up without asking")
        reasons = pc.if_else(pa.array(spent), last, reasons)
    if (waiting := never & (judged.state == "PENDING")).any():
        reasons = pc.if_else(pa.array(waiting), joined(reasons, stopped, " and never comes to it"), reasons)
    if judged.is_asked_still.any():
        asked = pc.if_else(
            pa.array(judged.may_lack_op),
            "; a copy is still before the check: it will be asked again, unless its op message is missing",
            "; a copy is still before the check: it will be asked again",
        )
        if never.any():
            asked = pc.if_else(pa.array(never), joined(stopped, " before a copy of it: it is asked again only once "
                                                       "that is out of the way"), asked)
        again = joined(reasons, pc.if_else(pa.array(judged.is_perhaps_asked), f"; {PERHAPS_ASKED}", asked))
        reasons = pc.if_else(pa.array(judged.is_asked_still), again, reasons)
    return reasons

