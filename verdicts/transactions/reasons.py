"""The sentence that gives the reason for a verdict: that of the reason code, with the offsets that prove it."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools, Int64s, scatter
from rmqtx.verdicts.model.verdict_inputs import StoreView
from rmqtx.verdicts.model.verdict_words import State
from rmqtx.verdicts.transactions.flags import lost_ops_words
from rmqtx.verdicts.transactions.futures import Futures
from rmqtx.verdicts.transactions.judgement import Codes, Judgement
from rmqtx.verdicts.transactions.reason_codes import NO_CODE, NUMBERS, REASONS

#: The clause for a flag after the sentence, in this order.
_OF_FLAGS = {
    "duplicate_commit": "; committed {commits_count} times and delivered each time",
    "commit_without_op": "; no op message",
    "commit_after_rollback": "; {rollback_before}",
    "conflict": "; {rollback_besides}",
    "commit_after_discard": "; committed after it was discarded",
    "discarded_though_decided": "; discarded although it was decided",
    "discarded_unasked": "; all its checks came within its immunity time, in which the broker does not ask",
    "resumed": "; a resume restarted its checks",
    "checked_again_after_restart": "; after the discard the check reached another copy of it: it began again at an "
    "older cursor",
    "masked": "; an op mark of another record hides it from the check",
    "number_shared": "; another half message has its half queue offset too",
    "number_taken": "; the slot with its half queue offset belongs, or will belong, to another half message",
    "poison": "; the check cannot ask its producer",
    "expires_soon": "; it is close to fileReservedTime",
    "expired": "; it is older than fileReservedTime ({reserved_hours} h): the next round of {check} discards it "
    "without asking",
    "may_be_decided": "{lost_ops}",
}
#: Reason codes whose sentences contain the clause of a flag.
_SAME_AS_CODE = {"masked": "hidden_by_number"}
_STOPPED = "; the check is stopped at {stop}"
_REACHED = "; the check will still reach a copy of it"
_ASKED_AGAIN = f"{_REACHED}: the broker checks it again"


def sentences(judged: Judgement, codes: Codes, flags: Mapping[str, Bools], futures: Futures) -> pa.Array:
    """Return one sentence per transaction: the sentence of its code, with clauses for its flags."""
    found = pa.repeat(pa.scalar(""), judged.chains.count)
    have_clauses = np.zeros(judged.chains.count, np.bool_)
    for chosen, clause in _clauses(judged, codes, flags, futures):
        if chosen.any():
            rows = np.flatnonzero(chosen)
            longer = joined(found.take(pa.array(rows)), _rendered(clause, Values(judged, futures, rows)))
            found = pc.replace_with_mask(found, pa.array(chosen), longer)
            have_clauses |= chosen

    def sentence(code: str, rows: Int64s) -> pa.Array:
        template = REASONS[code].sentence
        whole = template if "{clauses}" in template else template + "{clauses}"
        return _rendered(whole, Values(judged, futures, rows, found if have_clauses[rows].any() else None))

    names = list(REASONS)
    return scatter(
        judged.chains.count, [(codes == number, partial(sentence, names[number])) for number in np.unique(codes)]
    )


def _clauses(
    judged: Judgement, codes: Codes, flags: Mapping[str, Bools], futures: Futures
) -> Iterator[tuple[Bools, str]]:
    """Clauses for flags and for what the check will do, and the transactions that each clause applies to."""
    for flag, clause in _OF_FLAGS.items():
        yield flags[flag] & (codes != NUMBERS.get(_SAME_AS_CODE.get(flag, ""), NO_CODE)), clause
    is_pending, is_never_asked = judged.state.are(State.PENDING), futures.is_never_asked
    yield is_pending & (judged.found.marks_count > 0), "; another of its half messages was rolled back"
    yield (
        is_pending & futures.is_spent,
        "; its {checks_count} checks reach transactionCheckMax {check_max}: the next round of {check} {discards} it "
        "without asking",
    )
    yield is_pending & futures.is_cut, "; the next start of its broker cuts it off the log at {cut}"
    yield is_pending & futures.is_refused, "; its broker does not start on this store"
    yield is_pending & is_never_asked, f"{_STOPPED}, so the broker never checks this transaction"
    is_asked = judged.is_asked_still & (codes != NUMBERS["commit_record_table_unread"])
    yield (
        is_asked & is_never_asked,
        f"{_STOPPED}: the broker checks this transaction again only after the check has passed that message",
    )
    is_asked &= ~is_never_asked
    yield is_asked & futures.is_expired, f"{_REACHED}, older than fileReservedTime, and discards it without asking"
    yield is_asked & futures.is_spent, f"{_REACHED} that had all its checks, and discards it without asking"
    is_asked &= ~futures.is_unasked
    yield is_asked & judged.may_lack_op, f"{_ASKED_AGAIN}, unless the missing bytes contain its op message"
    yield is_asked & ~judged.may_lack_op, _ASKED_AGAIN


def _rendered(template: str, values: Values) -> pa.Array | str:
    """Return a sentence or clause with its values filled in."""
    parts: list[pa.Array | str] = []
    for words, name, _, _ in string.Formatter().parse(template):
        parts += [words] if name is None else [words, getattr(values, name)]
    return joined(*parts)


def joined(*parts: pa.Array | str) -> pa.Array:
    """Concatenate texts row by row."""
    return pc.binary_join_element_wise(*parts, "")


def text(values: Int64s) -> pa.Array:
    """Return numbers as text."""
    return pa.array(values).cast(pa.string())


class Values:
    """The values for the braces in the sentences of REASONS: one text for each of some transactions.

    Units: offsets in bytes of the commit log, or in slots of a queue, as the names say.
    """

    def __init__(
        self, judged: Judgement, futures: Futures, rows: Int64s, clauses: pa.Array | None = None
    ) -> None:
        self._judged = judged
        self._futures = futures
        self._rows = rows
        self._clauses = clauses

    @property
    def clauses(self) -> pa.Array:
        """The clauses for its flags, each after a semicolon; None given: no transaction has any."""
        if self._clauses is None:
            return pa.repeat(pa.scalar(""), len(self._rows))
        return self._clauses.take(pa.array(self._rows))

    @property
    def what(self) -> pa.Array:
        """What is missing or in doubt for an UNDECIDABLE transaction."""
        return pa.array(self._judged.undecidable_what[self._rows].tolist(), pa.string())

    @property
    def check(self) -> pa.Array:
        """Whose check reaches it next; a slave has none."""
        return pc.if_else(pa.array(self._futures.is_of_slave[self._rows]), "its master's check", "the check")

    # -- the half copy that the verdict is about ----------------------------------------------------------------------

    @cached_property
    def _copies(self) -> Int64s:
        return self._judged.found.reason_copy[self._rows]

    @property
    def half_offset(self) -> pa.Array:
        """Its commit-log offset."""
        return text(self._judged.chains.halves.integers("commit_log_offset")[self._copies])

    @property
    def half_number(self) -> pa.Array:
        """The number in a prepared record, which is that of its slot in the state table."""
        return text(self._judged.chains.halves.integers("queue_offset")[self._copies])

    @property
    def open_slot(self) -> pa.Array:
        """Its slot of the state table that is open."""
        return text(self._judged.copies.others.open_slot[self._copies])

    @property
    def decided_slot(self) -> pa.Array:
        """Its slot of the state table that is decided."""
        return text(self._judged.copies.others.decided_slot[self._copies])

    @property
    def checks_made(self) -> pa.Array:
        """Its number of checks in the RocksDB table."""
        numbers = self._judged.copies.others.checks[self._copies]
        return pc.if_else(pa.array(numbers == 1), "1 check", joined(text(numbers), " checks"))

    @property
    def last_half_of_table(self) -> pa.Array:
        """The last half that the broker has written into the RocksDB table."""
        return text(self._judged.copies.others.last_offset[self._copies])

    # -- the newest half copy -----------------------------------------------------------------------------------------

    @cached_property
    def _newest(self) -> Int64s:
        return self._judged.chains.halves.last[self._rows]

    @property
    def newest_queue_offset(self) -> pa.Array:
        """Its half queue offset."""
        return text(self._judged.chains.halves.integers("queue_offset")[self._newest])

    @property
    def newest_offset(self) -> pa.Array:
        """Its commit-log offset."""
        return text(self._judged.chains.halves.integers("commit_log_offset")[self._newest])

    @property
    def newest_slot(self) -> pa.Array:
        """The slot of the half queue that leads to it."""
        return text(self._judged.copies.slot[self._newest])

    @property
    def hiding_offset(self) -> pa.Array:
        """Commit-log offset of the op message of another half message that names its slot."""
        return text(self._judged.copies.hiding_offset[self._newest])

    @property
    def check_cursor(self) -> pa.Array:
        """The cursor of the check in its queue."""
        return text(self._judged.copies.cursor[self._newest])

    @property
    def newest_checks_count(self) -> pa.Array:
        """The number of its checks so far."""
        halves = self._judged.chains.halves
        return text(halves.newest(halves.integers("checks_count", 0))[self._rows])

    # -- what ended it ------------------------------------------------------------------------------------------------

    @property
    def checks_count(self) -> pa.Array:
        """The highest number of checks of its copies."""
        return text(self._judged.found.checks_count[self._rows])

    @property
    def discard_offset(self) -> pa.Array:
        """Commit-log offset of its last discard copy."""
        discards = self._judged.chains.discards
        return text(discards.integers("commit_log_offset")[discards.last[self._rows]])

    @cached_property
    def _final(self) -> Int64s:
        return self._judged.chains.finals.first[self._rows]

    @property
    def final_offset(self) -> pa.Array:
        """Commit-log offset of its first COMMIT record."""
        return text(self._judged.chains.finals.integers("commit_log_offset")[self._final])

    @property
    def half_of_final(self) -> pa.Array:
        """Why the half that the COMMIT record names is not in the log; empty if it is."""
        chains = self._judged.chains
        is_gone = ~(chains.halves.has | chains.discards.has)[self._rows]
        return self._where_half_was(chains.finals.integers("prepared_transaction_offset")[self._final], is_gone)

    @property
    def commits_count(self) -> pa.Array:
        """The number of its COMMIT records."""
        return text(self._judged.chains.commits_count[self._rows])

    def _by_rollback(self, of_record: str, of_op: str) -> pa.Array:
        return pc.if_else(pa.array(self._judged.chains.has_rollback_record[self._rows]), of_record, of_op)

    @property
    def rollback_before(self) -> pa.Array:
        """What rolled it back before it was committed."""
        return self._by_rollback("a ROLLBACK record came before it", "the op before it was a rollback")

    @property
    def rollback_besides(self) -> pa.Array:
        """The evidence that it was also rolled back."""
        return self._by_rollback(
            "a ROLLBACK record names it too; consumers received it nevertheless",
            "the committed copy has more op marks than COMMIT records: it was also rolled back",
        )

    @property
    def lost_ops(self) -> pa.Array:
        """The ops that were only in its broker's memory; one of them may be its own."""
        return lost_ops_words(self._judged).take(pa.array(self._rows))

    @property
    def reserved_hours(self) -> pa.Array:
        """The fileReservedTime of its broker."""
        return self._of_store(lambda view: view.settings.file_reserved_time_hours)

    @property
    def check_max(self) -> pa.Array:
        """The transactionCheckMax of its broker."""
        return self._of_store(lambda view: view.settings.transaction_check_max)

    @property
    def discards(self) -> pa.Array:
        """What the check does with a transaction that had all its checks."""
        is_dropped = self._judged.chains.halves.newest_is(self._judged.copies.others.is_rocksdb)[self._rows]
        return pa.array(["discards", "drops"]).take(pa.array(is_dropped.astype(np.int64)))

    @property
    def cut(self) -> pa.Array:
        """Where the next start cuts the log off."""
        cuts = self._of_store(
            lambda view: -1 if view.future is None or view.future.log_cut is None else view.future.log_cut
        )
        return joined("commit-log offset ", cuts)

    def _of_store(self, number_of: Callable[[StoreView], int]) -> pa.Array:
        return text(self._judged.copies.per_transaction(number_of)[self._rows])

    @property
    def stop(self) -> pa.Array:
        """The place at which the check of its store is stopped."""
        return pa.array(self._futures.places[self._rows].tolist(), pa.string())

    @cached_property
    def _mark(self) -> Int64s:
        return self._judged.found.first_own_mark[self._rows]

    def _of_mark(self, name: str) -> Int64s:
        return self._judged.chains.marks.integers(name)[self._mark]

    @property
    def mark_offset(self) -> pa.Array:
        """Commit-log offset of the first op message or ROLLBACK record that ended it."""
        return text(self._of_mark("commit_log_offset"))

    @property
    def marked_queue_offset(self) -> pa.Array:
        """The half queue offset that it names."""
        return text(self._of_mark("half_queue_offset"))

    @property
    def marked_log_offset(self) -> pa.Array:
        """The commit-log offset that it names."""
        return text(self._of_mark("half_commit_log_offset"))

    @property
    def half_of_mark(self) -> pa.Array:
        """Why the record that it names is not in the log; empty if it is."""
        is_gone = self._judged.chains.half_of_mark[self._mark] < 0
        return self._where_half_was(self._of_mark("half_commit_log_offset"), is_gone)

    def _where_half_was(self, named: Int64s, is_gone: Bools) -> pa.Array:
        """Why the half that a decision names is not there: it left the log, never existed, or its bytes are missing."""
        words = pa.array([
            "", ", its half message is no longer in the log",
            ", and no half message begins at the offset that it names",
            ", and the bytes at the offset that it names are missing",
        ])
        begins = self._judged.copies.per_transaction(lambda view: view.log_begin_offset)[self._rows]
        kinds = np.where(named < begins, 1, 2)
        for missing in (one for view in self._judged.chains.views.values() for one in view.missing):
            kinds[(named >= missing.begin_offset) & (named < missing.end_offset)] = 3
        return words.take(pa.array(np.where(is_gone, kinds, 0)))

    @property
    def asked_by_slot(self) -> pa.Array | str:
        """A clause if the state table still has an open slot for a decided transaction; else empty."""
        others, newest = self._judged.copies.others, self._newest
        if not others.is_asked.any():
            return ""
        is_refused = pa.array(others.is_unanswerable[newest])
        words = joined(
            "; slot ", text(others.open_slot[newest]),
            " of the state table is still open: the broker checks it again, and ",
            pc.if_else(is_refused, "every answer is refused", "every answer writes one more record"),
        )
        return pc.if_else(pa.array(others.is_asked[newest] & self._judged.chains.halves.has[self._rows]), words, "")


