"""Times between the events of a transaction, and counts of its checks: columns for summaries, not of TRANSACTIONS."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.tables import column
from rmqtx.verdicts.check.check_rules import is_younger
from rmqtx.verdicts.model.verdict_words import State
from rmqtx.verdicts.transactions.chains import Chains
from rmqtx.verdicts.transactions.judgement import Judgement

#: What `judge` adds to its rows if a caller asks for it.
MEASURES = pa.schema(
    [
        column("born_to_half_ms", pa.int64(), "from the producer's clock at the message to its first half copy"),
        column(
            "half_to_decision_ms", pa.int64(),
            "from the first half copy to the first COMMIT record, or to the first op message or ROLLBACK record of a "
            "rollback; null without a decision",
        ),
        column(
            "decision_to_op_ms", pa.int64(),
            "from the COMMIT record to its op message; null unless the transaction has exactly one of each, which name "
            "one half copy",
        ),
        column("born_to_decision_ms", pa.int64(), "from the producer's clock at the message to that decision"),
        column("commits_count", pa.int64(), "COMMIT records of a half copy that the log has"),
        column("checked_commits_count", pa.int64(), "those of them whose half copy had been checked"),
        column(
            "immune_checks_count", pa.int64(),
            "half copies that the check put back while CHECK_IMMUNITY_TIME_IN_SECONDS was not over",
        ),
    ]
)

#: Checks of a half copy that the log no longer has.
_GONE = -1


class Measures:
    """The measures of judged transactions; each is made when it is asked for."""

    def __init__(self, judged: Judgement) -> None:
        self.judged = judged
        self.chains: Chains = judged.chains

    def column(self, name: str) -> pa.Array:
        """Return a column of MEASURES, one value per transaction."""
        return _COLUMNS[name](self)

    @cached_property
    def half_ms(self) -> pa.Array:
        """The store time of the first half copy; null if an earlier one may have expired with its file."""
        return _without(self.chains.half_store_time_ms, self.judged.may_begin_earlier)

    @cached_property
    def decided_ms(self) -> pa.Array:
        """The store time of the first COMMIT record, else of the first record of a rollback; null if undecided."""
        judged = self.judged
        finals, marks, first_own_mark = self.chains.finals, self.chains.marks, judged.found.first_own_mark
        committed, rolled_back = judged.state.are(State.COMMITTED), judged.state.are(State.ROLLED_BACK)
        unknown = ~(committed | rolled_back) | judged.may_lack_final | judged.may_lack_op & rolled_back
        times = np.zeros(self.chains.count, np.int64)
        some = committed & finals.has
        times[some] = finals.integers("store_time_ms")[finals.first[some]]
        marked = rolled_back & (first_own_mark < len(marks))
        times[marked] = marks.integers("store_time_ms")[first_own_mark[marked]]
        return pa.array(times, mask=unknown | ~(some | marked))

    def decision_to_op(self) -> pa.Array:
        """Return the time from each COMMIT record to its op message."""
        finals, marks, halves = self.chains.finals, self.chains.marks, self.chains.halves
        some = np.flatnonzero((finals.counts == 1) & (marks.counts == 1) & ~self.chains.has_rollback_record)
        final, mark = finals.first[some], marks.first[some]
        named, offsets = finals.integers("prepared_transaction_offset"), halves.integers("commit_log_offset")
        copy = self.chains.half_of_mark[mark]
        is_pair = (copy >= 0) & (finals.rank[final] < marks.rank[mark])
        is_pair &= named[final] == (offsets[copy] if len(offsets) else -1)
        some, final, mark = some[is_pair], final[is_pair], mark[is_pair]
        times, known = np.zeros(self.chains.count, np.int64), np.zeros(self.chains.count, np.bool_)
        times[some] = marks.integers("store_time_ms")[mark] - finals.integers("store_time_ms")[final]
        known[some] = True
        return pa.array(times, mask=~known)

    @cached_property
    def has_counted_checks(self) -> Bools:
        """Transactions whose half copies carry the number of their checks: those in the half topic."""
        is_in, halves = self.judged.copies.is_in_half_topic, self.chains.halves
        found: Bools = halves.has if is_in.all() else halves.any_of(is_in)
        return found & ~self.judged.may_begin_earlier

    @cached_property
    def checks_of_commits(self) -> tuple[Int64s, Int64s]:
        """For each COMMIT record whose half copy is in the log: its transaction, and the checks before that copy."""
        finals, halves = self.chains.finals, self.chains.halves
        rows = np.flatnonzero(
            self.chains.named_finals & ~self.chains.replicated_finals & self.has_counted_checks[finals.number]
        )
        owner, checks = finals.number[rows], np.zeros(len(rows), np.int64)
        counts = halves.integers("checks_count", 0)
        is_checked = halves.any_of(counts > 0)
        chosen = np.flatnonzero(is_checked[owner])
        if not len(chosen):
            return owner, checks
        mine = np.flatnonzero(is_checked[halves.number] & self.judged.copies.is_in_half_topic)
        named = finals.integers("prepared_transaction_offset")[rows[chosen]]
        places, codes = np.unique(
            np.concatenate([halves.integers("commit_log_offset")[mine], named]), return_inverse=True
        )
        keys = halves.number[mine] * len(places) + codes[: len(mine)]
        wanted = owner[chosen] * len(places) + codes[len(mine):]
        order = np.argsort(keys, kind="stable")
        at = order[np.minimum(np.searchsorted(keys[order], wanted), len(order) - 1)]
        checks[chosen] = np.where(keys[at] == wanted, counts[mine[at]], _GONE)
        return owner[checks != _GONE], checks[checks != _GONE]

    def commits(self, least_checks: int) -> pa.Array:
        """Return the number of COMMIT records of half copies with this number of checks or more; null if unknown."""
        owner, checks = self.checks_of_commits
        counts = np.bincount(owner[checks >= least_checks], minlength=self.chains.count)
        return pa.array(counts.astype(np.int64), mask=~self.has_counted_checks)

    def immune_checks(self) -> pa.Array:
        """Return the number of copies that the check put back before the immunity time since the birth was over.

        The copy has the property TRAN_PREPARED_QUEUE_OFFSET, which later copies keep.
        """
        halves = self.chains.halves
        count = np.zeros(self.chains.count, np.int64)
        if halves.table["prepared_queue_offset"].null_count < len(halves):
            age_ms = halves.integers("store_time_ms") - halves.integers("born_time_ms")
            immune = (halves.integers("prepared_queue_offset") >= 0) & is_younger(
                age_ms, 1_000 * halves.integers("immunity_seconds", 0), self.judged.copies.may_equal_immunity
            )
            count = halves.count_of(immune)
        return pa.array(count, mask=~self.has_counted_checks)


def _without(values: pa.Array, unknown: Bools) -> pa.Array:
    return pc.if_else(pa.array(unknown), pa.scalar(None, values.type), values) if unknown.any() else values


_COLUMNS: dict[str, Callable[[Measures], pa.Array]] = {
    "born_to_half_ms": lambda one: pc.subtract(one.half_ms, one.chains.born_time_ms),
    "half_to_decision_ms": lambda one: pc.subtract(one.decided_ms, one.half_ms),
    "decision_to_op_ms": Measures.decision_to_op,
    "born_to_decision_ms": lambda one: pc.subtract(one.decided_ms, one.chains.born_time_ms),
    "commits_count": lambda one: one.commits(0),
    "checked_commits_count": lambda one: one.commits(1),
    "immune_checks_count": Measures.immune_checks,
}
