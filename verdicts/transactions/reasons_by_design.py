"""The same sentences for prepared records and transactions in RocksDB: in words that fit their design."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from readers.model.columns import Bools, Int64s
from readers.old_tables.beside_log import NONE
from verdicts.transactions.judgement import Judgement

_FOR_EVER = "pending for ever"


def joined(*parts: pa.Array | str) -> pa.Array:
    """Texts one behind the other, for each row."""
    return pc.binary_join_element_wise(*parts, "")


def text(values: Int64s) -> pa.Array:
    """Numbers as text."""
    return pa.array(values).cast(pa.string())


def first_that_holds(
    copies: Int64s, choices: list[tuple[Bools, pa.Array | str]], otherwise: pa.Array | str
) -> pa.Array:
    """For each of some half copies the words of the first choice that holds for it."""
    words = otherwise
    for chosen, sentence in reversed(choices):
        words = pc.if_else(pa.array(chosen[copies]), sentence, words)
    return words


def of_newest(
    judged: Judgement,
    rows: Int64s,
    reasons: pa.Array,
    *,
    prepared: Callable[[Judgement, Int64s], pa.Array] | None = None,
    rocksdb: Callable[[Judgement, Int64s], pa.Array] | None = None,
) -> pa.Array:
    """The reasons, or those made for the newest half copy where that is of another design."""
    newest = judged.told_copy[rows]
    for chosen, make in ((judged.others.is_prepared, prepared), (judged.others.is_rocksdb, rocksdb)):
        if make is None or not chosen.any():
            continue
        mine = chosen[newest] & judged.halves.has[rows]
        if mine.any():
            reasons = pc.if_else(pa.array(mine), make(judged, newest), reasons)
    return reasons


def _place(judged: Judgement, copies: Int64s) -> pa.Array:
    return text(judged.halves.integers("commit_log_offset")[copies])


def prepared_pending(judged: Judgement, copies: Int64s) -> pa.Array:
    """Why a prepared record is pending, and who asks for it."""
    others = judged.others
    slot, number = text(others.open_slot[copies]), text(judged.halves.integers("queue_offset")[copies])
    decided = text(others.decided_slot[copies])
    unproved = f" of the state table is decided, and the log has no such record: nobody asks, {_FOR_EVER}"
    asked = joined("; the broker asks for it: slot ", slot, " of the state table is open")
    remade = ", and a broker that did not stop cleanly numbers that table anew: it refuses answers to other numbers"
    refused = joined(
        "; the broker asks for slot ", slot, " of the state table, and the record's number is ", number,
        f": every answer is refused, {_FOR_EVER}",
    )
    anew = "; its broker did not stop cleanly, and the next start makes the state table anew: "
    refused_then = joined(
        anew, "it then asks for slot ", slot, ", the record's number is ", number,
        f", and every answer is refused, {_FOR_EVER}",
    )
    words = first_that_holds(
        copies,
        [
            (others.is_unanswerable & others.is_foretold, refused_then),
            (others.is_unanswerable, refused),
            (others.is_asked & others.is_foretold, joined(anew, "it then asks for slot ", slot, ", the record's own")),
            (others.is_asked & others.is_remade, joined(asked, remade)),
            (others.is_asked, asked),
            (others.was_asked, joined("; the broker asked for it: slot ", decided, " of the state table was open")),
            (others.refuses_commit, f"; brokers from 3.2 on never ask, those from 4.3 on refuse a commit: {_FOR_EVER}"),
            (others.is_foretold & ~others.never_asks, f"{anew}it leaves this out, and nobody asks, {_FOR_EVER}"),
            (others.is_table_damaged & ~others.never_asks, "; whether the broker asks is not known: its state table is"
             " damaged"),
            ((others.decided_slot != NONE) & ~others.never_asks, joined("; slot ", decided, unproved)),
            (others.has_tables & ~others.never_asks, f"; no slot of the state table has it: nobody asks, {_FOR_EVER}"),
            (others.may_ask, "; whether the broker asks is not known: its state table was not read"),
        ],
        f"; brokers of 3.2 to 4.2 never ask: {_FOR_EVER}",
    )
    return joined(
        "prepared record at commit-log offset ", _place(judged, copies),
        ", neither COMMIT nor ROLLBACK record names it", words,
    )


def _checks(numbers: Int64s) -> pa.Array:
    return pc.if_else(pa.array(numbers == 1), "1 check", joined(text(numbers), " checks"))


def rocksdb_pending(judged: Judgement, copies: Int64s) -> pa.Array:
    """Why a half in RocksDB is pending, and what its table says."""
    others = judged.others
    last = text(others.last_offset[copies])
    known = first_that_holds(
        copies,
        [
            (others.is_recorded, joined(" is in the RocksDB table after ", _checks(others.checks[copies]))),
            (~others.has_tables, " cannot have been dropped yet (the RocksDB table was not read)"),
            (others.last_offset == NONE, " is open as far as the store tells: the RocksDB table has no half yet"),
        ],
        joined(" is open as far as the store tells: the RocksDB table ends at half ", last),
    )
    return joined("half message at commit-log offset ", _place(judged, copies), known, ", no op, no COMMIT record")


def rocksdb_dropped(judged: Judgement, copies: Int64s) -> pa.Array:
    """Why a half in RocksDB is discarded."""
    return joined(
        "half message at commit-log offset ", _place(judged, copies),
        " is not in the RocksDB table, which ends at half ",
        text(judged.others.last_offset[copies]), ": the broker dropped it and wrote no copy",
    )


def rocksdb_never_known(judged: Judgement, copies: Int64s) -> pa.Array:
    """Why a half in RocksDB is lost."""
    return joined(
        "half message at commit-log offset ", _place(judged, copies),
        " lacks __transactionId__ or REAL_TOPIC: it never comes into the RocksDB table, and nobody asks",
    )


def still_asked(judged: Judgement, rows: Int64s) -> pa.Array | str:
    """That the state table still asks for what is decided; nothing where it does not."""
    others = judged.others
    if not others.is_asked.any():
        return ""
    newest = judged.halves.last[rows]
    answer = first_that_holds(
        newest, [(others.is_unanswerable, "every answer is refused")], "every answer writes one more record"
    )
    words = joined(
        "; slot ", text(others.open_slot[newest]), " of the state table is still open: it is asked again, and ", answer
    )
    return pc.if_else(pa.array(others.is_asked[newest] & judged.halves.has[rows]), words, "")


def where_half_was(judged: Judgement, rows: Int64s, named: Int64s, gone: Bools) -> pa.Array:
    """What became of the half that a decision names, where it is not there: it left the log, or was never there."""
    words = pa.array([
        "", ", its half message is no longer in the log", ", and no half message begins where it says",
        ", and what stood where it says is missing",
    ])
    kinds = np.where(named < judged.log_begin[rows], 1, 2)
    for view in judged.views.values():
        for missing in view.missing:
            kinds[(named >= missing.begin_offset) & (named < missing.end_offset)] = 3
    return words.take(pa.array(np.where(gone, kinds, 0)))


def ended_by_offset(judged: Judgement, rows: Int64s, marks: Int64s, reasons: pa.Array) -> pa.Array:
    """The reasons of what was rolled back, or others where its mark names a commit-log offset."""
    by_offset = np.asarray(pc.is_valid(judged.marks.table["half_commit_log_offset"]))[marks]
    if not by_offset.any():
        return reasons
    place, named = (
        text(judged.marks.integers(name)[marks]) for name in ("commit_log_offset", "half_commit_log_offset")
    )
    gone = judged.chains.half_of_mark[marks] < 0
    lacking = where_half_was(judged, rows, judged.marks.integers("half_commit_log_offset")[marks], gone)
    ended = joined(
        "op message at commit-log offset ", place, " ended the half message at ", named, ", no COMMIT record"
    )
    rolled = joined(
        "ROLLBACK record at commit-log offset ", place, " names the prepared record at ", named, lacking,
        ", no COMMIT record", still_asked(judged, rows),
    )
    told = pc.if_else(pa.array(judged.has_rollback_record[rows]), rolled, ended)
    return pc.if_else(pa.array(by_offset), told, reasons)
