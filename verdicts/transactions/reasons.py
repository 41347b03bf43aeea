"""The sentence that says why a verdict is what it is, made of its code with the offsets that prove it."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from functools import cached_property, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from readers.model.columns import Bools, Int64s, scatter
from verdicts.transactions.check_reach import CheckReach
from verdicts.transactions.judgement import Judgement
from verdicts.transactions.reason_choice import Codes
from verdicts.transactions.reason_codes import NUMBERS, REASONS
from verdicts.transactions.undecided_ops import lost_ops_words

#: What is said of a flag behind the sentence, in this order.
_OF_FLAGS = {
    "duplicate_commit": "; committed {commits_count} times, so delivered as often",
    "commit_without_op": "; no op message",
    "commit_after_rollback": "; {rollback_before}",
    "conflict": "; {rollback_besides}",
    "commit_after_discard": "; committed after it was discarded",
    "discarded_though_decided": "; discarded although it was decided",
    "resumed": "; a resume had it checked again",
    "checked_again_after_restart": "; after it was discarded the check came to another copy of it: it began again at "
    "an older cursor",
    "masked": "; an op number of another record hides it from the check",
    "poison": "; the check cannot ask for it",
    "expires_soon": "; it nears fileReservedTime",
    "may_be_decided": "{lost_ops}",
}
_STOPPED = "; the check is stopped at {stop}"
_ASKED_AGAIN = "; a copy is still before the check: it will be asked again"


def sentences(judged: Judgement, codes: Codes, flags: Mapping[str, Bools], reach: CheckReach) -> pa.Array:
    """One sentence per transaction: that of its code, and what is odd about it."""
    oddities = pa.repeat(pa.scalar(""), judged.chains.count)
    for chosen, clause in _clauses(judged, codes, flags, reach):
        if chosen.any():
            rows = np.flatnonzero(chosen)
            said = joined(oddities.take(pa.array(rows)), _rendered(clause, Values(judged, reach, rows)))
            oddities = pc.replace_with_mask(oddities, pa.array(chosen), said)

    def sentence(code: str, rows: Int64s) -> pa.Array:
        template = REASONS[code].sentence
        whole = template if "{oddities}" in template else template + "{oddities}"
        return _rendered(whole, Values(judged, reach, rows, oddities))

    names = list(REASONS)
    return scatter(
        judged.chains.count, [(codes == number, partial(sentence, names[number])) for number in np.unique(codes)]
    )


def _clauses(
    judged: Judgement, codes: Codes, flags: Mapping[str, Bools], reach: CheckReach
) -> Iterator[tuple[Bools, str]]:
    """What is odd about transactions, and what the check does about them: clauses behind their sentences."""
    for flag, clause in _OF_FLAGS.items():
        yield flags[flag], clause
    is_pending, is_never_asked = judged.state == "PENDING", reach.is_never_asked
    yield is_pending & (judged.marks_count > 0), "; another half message of it was rolled back"
    yield reach.is_spent, "; it had all its {checks_count} checks: the next round gives it up without asking"
    yield is_pending & is_never_asked, f"{_STOPPED} and never comes to it"
    is_asked = judged.is_asked_still & (codes != NUMBERS["commit_record_table_unread"])
    yield (
        is_asked & is_never_asked,
        f"{_STOPPED} before a copy of it: it is asked again only once that is out of the way",
    )
    is_asked &= ~is_never_asked
    yield is_asked & judged.may_lack_op, f"{_ASKED_AGAIN}, unless its op message is missing"
    yield is_asked & ~judged.may_lack_op, _ASKED_AGAIN


def _rendered(template: str, values: Values) -> pa.Array | str:
    """A sentence or clause with its values."""
    parts: list[pa.Array | str] = []
    for words, name, _, _ in string.Formatter().parse(template):
        parts += [words] if name is None else [words, getattr(values, name)]
    return joined(*parts)


def joined(*parts: pa.Array | str) -> pa.Array:
    """Texts one behind the other, for each row."""
    return pc.binary_join_element_wise(*parts, "")


def text(values: Int64s) -> pa.Array:
    """Numbers as text."""
    return pa.array(values).cast(pa.string())


class Values:
    """What stands in braces in the sentences of REASONS, for some transactions: one text each.

    Units: offsets in bytes of the commit log, or in entries of a queue, as the names say.
    """

    def __init__(
        self, judged: Judgement, reach: CheckReach, rows: Int64s, oddities: pa.Array | None = None
    ) -> None:
        self._judged = judged
        self._reach = reach
        self._rows = rows
        self._oddities = oddities

    @property
    def oddities(self) -> pa.Array:
        """What is odd about it, each behind a semicolon."""
        assert self._oddities is not None
        return self._oddities.take(pa.array(self._rows))

    @property
    def what(self) -> pa.Array:
        """What an UNDECIDABLE one lacks, or rests on."""
        return pa.array(self._judged.undecidable_what[self._rows].tolist(), pa.string())

    # -- the half copy that the verdict is about ----------------------------------------------------------------------

    @cached_property
    def _copies(self) -> Int64s:
        return self._judged.reason_copy[self._rows]

    @property
    def half_offset(self) -> pa.Array:
        """Where it stands in the log."""
        return text(self._judged.halves.integers("commit_log_offset")[self._copies])

    @property
    def half_number(self) -> pa.Array:
        """The number in a prepared record, which says its slot of the state table."""
        return text(self._judged.halves.integers("queue_offset")[self._copies])

    @property
    def open_slot(self) -> pa.Array:
        """Its slot of the state table that is open."""
        return text(self._judged.others.open_slot[self._copies])

    @property
    def decided_slot(self) -> pa.Array:
        """Its slot of the state table that is decided."""
        return text(self._judged.others.decided_slot[self._copies])

    @property
    def checks_made(self) -> pa.Array:
        """How often it was asked for, by the RocksDB table."""
        numbers = self._judged.others.checks[self._copies]
        return pc.if_else(pa.array(numbers == 1), "1 check", joined(text(numbers), " checks"))

    @property
    def last_half_of_table(self) -> pa.Array:
        """The last half that the RocksDB table has taken in."""
        return text(self._judged.others.last_offset[self._copies])

    # -- the newest half copy -----------------------------------------------------------------------------------------

    @cached_property
    def _newest(self) -> Int64s:
        return self._judged.halves.last[self._rows]

    @property
    def newest_queue_offset(self) -> pa.Array:
        """Its number in the half queue."""
        return text(self._judged.halves.integers("queue_offset")[self._newest])

    @property
    def check_cursor(self) -> pa.Array:
        """The cursor of the check in its queue."""
        return text(self._judged.cursor_per_copy[self._newest])

    @property
    def newest_checks_count(self) -> pa.Array:
        """The checks that it had behind it."""
        return text(self._judged.newest_checks[self._rows])

    # -- what ended it ------------------------------------------------------------------------------------------------

    @property
    def checks_count(self) -> pa.Array:
        """The most checks that any copy had."""
        return text(self._judged.checks_count[self._rows])

    @property
    def discard_offset(self) -> pa.Array:
        """Where its last discard copy stands."""
        discards = self._judged.discards
        return text(discards.integers("commit_log_offset")[discards.last[self._rows]])

    @cached_property
    def _final(self) -> Int64s:
        return self._judged.finals.first[self._rows]

    @property
    def final_offset(self) -> pa.Array:
        """Where its first COMMIT record stands."""
        return text(self._judged.finals.integers("commit_log_offset")[self._final])

    @property
    def half_of_final(self) -> pa.Array:
        """What became of the half that the COMMIT record names, where it is not there."""
        judged = self._judged
        is_gone = ~(judged.halves.has | judged.discards.has)[self._rows]
        return self._where_half_was(judged.finals.integers("prepared_transaction_offset")[self._final], is_gone)

    @property
    def commits_count(self) -> pa.Array:
        """How many COMMIT records it has."""
        return text(self._judged.commits_count[self._rows])

    def _by_rollback(self, of_record: str, of_op: str) -> pa.Array:
        return pc.if_else(pa.array(self._judged.has_rollback_record[self._rows]), of_record, of_op)

    @property
    def rollback_before(self) -> pa.Array:
        """What rolled it back before it was committed."""
        return self._by_rollback("a ROLLBACK record came before it", "the op before it was a rollback")

    @property
    def rollback_besides(self) -> pa.Array:
        """What shows that it was rolled back too."""
        return self._by_rollback(
            "a ROLLBACK record names it too: consumers got it all the same",
            "the committed copy has more op marks than COMMIT records: it was rolled back too",
        )

    @property
    def lost_ops(self) -> pa.Array:
        """The ops that its broker had in memory, one of which may be its own."""
        return lost_ops_words(self._judged).take(pa.array(self._rows))

    @property
    def stop(self) -> pa.Array:
        """Where the check of its store is stopped."""
        return pa.array(self._reach.places[self._rows].tolist(), pa.string())

    @cached_property
    def _mark(self) -> Int64s:
        return self._judged.first_own_mark[self._rows]

    def _of_mark(self, name: str) -> Int64s:
        return self._judged.marks.integers(name)[self._mark]

    @property
    def mark_offset(self) -> pa.Array:
        """Where the first op message or ROLLBACK record that ended it stands."""
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
        """What became of the record that it names, where that is not there."""
        is_gone = self._judged.chains.half_of_mark[self._mark] < 0
        return self._where_half_was(self._of_mark("half_commit_log_offset"), is_gone)

    def _where_half_was(self, named: Int64s, is_gone: Bools) -> pa.Array:
        """What became of the half that a decision names: it left the log, or was never there."""
        words = pa.array([
            "", ", its half message is no longer in the log", ", and no half message begins where it says",
            ", and what stood where it says is missing",
        ])  # fmt: skip
        kinds = np.where(named < self._judged.log_begin[self._rows], 1, 2)
        for view in self._judged.views.values():
            for missing in view.missing:
                kinds[(named >= missing.begin_offset) & (named < missing.end_offset)] = 3
        return words.take(pa.array(np.where(is_gone, kinds, 0)))

    @property
    def asked_by_slot(self) -> pa.Array | str:
        """That the state table still asks for what is decided; nothing where it does not."""
        others, newest = self._judged.others, self._newest
        if not others.is_asked.any():
            return ""
        is_refused = pa.array(others.is_unanswerable[newest])
        words = joined(
            "; slot ", text(others.open_slot[newest]), " of the state table is still open: it is asked again, and ",
            pc.if_else(is_refused, "every answer is refused", "every answer writes one more record"),
        )
        return pc.if_else(pa.array(others.is_asked[newest] & self._judged.halves.has[self._rows]), words, "")


