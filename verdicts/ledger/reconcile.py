"""The advice for transactions after a comparison with a business ledger.

The state of a transaction does not change: it is what the broker recorded (`judge.py`). The ledger shows the outcome of
the local transaction. If both agree, nothing needs to be done; if the broker has no decision, the advice is the
decision of the ledger; if the broker has the opposite decision, nothing can undo it, and the reason states this. A
ledger without a clear entry for the transaction decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools, Int64s, scatter
from rmqtx.readers.model.tables import DISCARD_COPY, FINAL_RECORD, HALF_COPY, OP_MARK, TRANSACTIONS, column
from rmqtx.readers.storage.temporary import RunFolder
from rmqtx.verdicts.model.marked_copies import REDELIVERED
from rmqtx.verdicts.model.verdict_words import OPEN_AGAIN_FLAG, Advice, State

WORDS: dict[str, str] = {
    "done": "one ledger row matches: the local transaction was done",
    "not_done": "one ledger row matches: it was not done (or no row matches, and --missing-is-not-done is given)",
    "unknown": "one ledger row matches neither condition, or both; or the transaction has no value to look up a row",
    "missing": "no ledger row matches",
    "several": "several ledger rows match, or one that matches other transactions too: the right one is unknown",
}
OUTCOMES: dict[str, str] = {
    "act": "the ledger decides it, and the advice can be carried out",
    "contradiction": "broker and ledger contradict each other, or it was delivered more than once: nothing can undo it",
    "open": "the ledger does not decide it, or what the broker did is unknown",
    "agrees": "broker and ledger have the same decision: nothing to do",
}


def _same(name: str) -> pa.Field:
    return TRANSACTIONS.field(name)


#: One transaction with the result of the ledger.
RECONCILED = pa.schema(
    [
        _same("store"),
        _same("transaction_id"),
        _same("state"),
        _same("flags"),
        column("ledger_word", pa.string(), f"{', '.join(WORDS)}: the result of the ledger", values=WORDS),
        column("outcome", pa.string(), f"{', '.join(OUTCOMES)}: the result of the comparison", values=OUTCOMES),
        column(
            "advice", pa.string(),
            "commit, rollback, close, resume, redeliver, wait or none, based on broker and ledger", words="advice",
        ),
        column("reason", pa.string(), "the reason for the advice"),
        column("ledger_row", pa.string(), "the compared columns of the ledger row; null unless one row matches"),
        column("ledger_rows_count", pa.int64(), "ledger rows that match it"),
        column("transactions_count", pa.int64(), "transactions that match those rows, itself included"),
        _same("producer_group"),
        _same("topic"),
        _same("keys"),
        _same("half_store_time_ms"),
        _same("decided_time_ms"),
        _same("checks_count"),
        column("state_reason", pa.string(), "the reason for the state"),
        column("half_copies", HALF_COPY, "every half copy, in log order"),
        column("op_marks", OP_MARK, "every op mark on one of its copies"),
        column("final_records", FINAL_RECORD, "all its COMMIT records"),
        column("discard_copies", DISCARD_COPY, "its copies in the discard topic"),
    ]
)

#: The ledger rows of each transaction. `says`, of one row: 0 neither, 1 done, 2 not done, 3 both.
LOOKED_UP = pa.schema(
    [
        pa.field("has_key", pa.bool_()),
        pa.field("ledger_rows_count", pa.int64()),
        pa.field("transactions_count", pa.int64()),
        pa.field("says", pa.int8()),
        pa.field("ledger_row", pa.string()),
    ]
)
SAYS_DONE, SAYS_NOT_DONE, SAYS_BOTH = 1, 2, 3

Reason = Callable[[Int64s], pa.Array]


@dataclass(frozen=True, slots=True)
class _Case:
    """Some rows, and the advice for them; `own`: that of the transaction."""

    rows: Bools
    outcome: str
    advice: Advice | Literal["own"]
    reason: Reason


def reconciled(
    verdicts: pa.RecordBatch, looked_up: pa.RecordBatch, *, missing_is_not_done: bool = False
) -> pa.RecordBatch:
    """Return verdicts with the result of the ledger and the advice.

    Shape:  `verdicts` are rows of TRANSACTIONS, `looked_up` of LOOKED_UP, in the same order; returns RECONCILED.
            `missing_is_not_done`: only a local transaction that was done writes a row.
    Order:  kept.
    """
    return _Advice(verdicts, looked_up, missing_is_not_done=missing_is_not_done).batch()


class _Advice:
    """The rules, over all rows of a batch at once."""

    def __init__(self, verdicts: pa.RecordBatch, looked_up: pa.RecordBatch, *, missing_is_not_done: bool) -> None:
        self.verdicts = verdicts
        self.looked_up = looked_up
        self.count = verdicts.num_rows
        self.missing_is_not_done = missing_is_not_done
        self.own_advice = verdicts["advice"]
        self.words = self._words()
        self.halves = _lengths(verdicts["half_copies"])
        self.discards = _lengths(verdicts["discard_copies"])
        self.finals = _lengths(verdicts["final_records"])
        self.cases = [*self._cases_of_done(), *self._cases_of_not_done(), *self._cases_of_no_word()]

    def batch(self) -> pa.RecordBatch:
        """The rows of RECONCILED."""
        outcome, advice = np.full(self.count, "", "U13"), np.full(self.count, "", "U9")
        left = np.ones(self.count, np.bool_)
        parts: list[tuple[Bools, Reason]] = []
        for case in self.cases:  # the first that fits
            rows = left & case.rows
            outcome[rows], left[rows] = case.outcome, False
            advice[rows] = case.advice
            parts.append((rows, case.reason))
        own = advice == "own"
        given = pc.if_else(pa.array(own), self.own_advice, pa.array(advice, pa.string()))
        columns = {
            "ledger_word": self.words, "outcome": pa.array(outcome, pa.string()), "advice": given,
            "reason": scatter(self.count, parts), "state_reason": self.verdicts["reason"],
            **{name: self.looked_up[name] for name in ("ledger_row", "ledger_rows_count", "transactions_count")},
        }
        arrays = [columns[name] if name in columns else self.verdicts[name] for name in RECONCILED.names]
        return pa.RecordBatch.from_arrays(arrays, schema=RECONCILED)

    # -- values -----------------------------------------------------------------------------------------------------

    def _words(self) -> pa.Array:
        found = _numbers(self.looked_up["ledger_rows_count"])
        shared = _numbers(self.looked_up["transactions_count"])
        says = _numbers(self.looked_up["says"])
        has_key = _truths(self.looked_up["has_key"])
        one = (found == 1) & (shared == 1)
        words = np.select(
            [~has_key, (found > 1) | (shared > 1), one & (says == SAYS_DONE), one & (says == SAYS_NOT_DONE), one],
            ["unknown", "several", "done", "not_done", "unknown"],
            "not_done" if self.missing_is_not_done else "missing",
        )
        return pa.array(words, pa.string())

    def _is(self, state: State) -> Bools:
        return _truths(pc.equal(self.verdicts["state"], state))

    def _has(self, flag: str) -> Bools:
        flags = self.verdicts["flags"]
        found = np.zeros(self.count, np.bool_)
        parents = pc.list_parent_indices(flags).to_numpy(zero_copy_only=False)
        found[parents[_truths(pc.equal(pc.list_flatten(flags), flag))]] = True
        return found

    def _advised(self, advice: Advice) -> Bools:
        return _truths(pc.equal(self.own_advice, advice))

    # -- the rules --------------------------------------------------------------------------------------------------

    def _cases_of_done(self) -> list[_Case]:
        done = _truths(pc.equal(self.words, "done"))
        return [
            *self._done_and_redelivered(done & self._has(REDELIVERED)),
            *self._done_without_decision(done),
            *self._done_and_decided(done),
            _Case(done, "open", Advice.NONE, _text(
                "done in the ledger, but what the broker did is unknown: a commit could deliver it twice"
            )),
        ]

    def _done_and_redelivered(self, rows: Bools) -> list[_Case]:
        return [
            _Case(rows & self._advised(Advice.CLOSE), "act", Advice.CLOSE, _text(
                "rmqtx redeliver sent a copy of it, but the broker will check it again and could deliver it a second "
                "time"
            )),
            _Case(rows & self._has(OPEN_AGAIN_FLAG), "contradiction", Advice.NONE, _text(
                "rmqtx redeliver sent a copy of it, and the broker will check it again: an answer COMMIT delivers it a "
                "second time"
            )),
            _Case(rows, "agrees", Advice.NONE, _text("delivered, as in the ledger: rmqtx redeliver sent a copy of it")),
        ]

    def _done_without_decision(self, done: Bools) -> list[_Case]:
        pending, discarded = done & self._is(State.PENDING), done & (self._is(State.DISCARDED) | self._is(State.LOST))
        has_half = self.halves > 0
        unreadable = (pending | discarded) & self._has("bad_body")
        return [
            _Case(unreadable, "contradiction", Advice.NONE, _text(
                "done in the ledger, but a copy is marked as compressed and is not: a commit would deliver a message "
                "that no consumer can read; the application must send it again"
            )),
            _Case(pending & has_half, "act", Advice.COMMIT, self._with_newest(
                "done in the ledger, and the broker has no decision: commit its newest half copy"
            )),
            _Case(pending, "open", Advice.WAIT, _text(
                "done in the ledger, but no half copy is in the half topic yet: wait until it returns there"
            )),
            _Case(discarded & has_half, "act", Advice.COMMIT, self._with_newest(
                "done in the ledger, but the broker discarded it: commit its newest half copy (not the discard copy, "
                "whose number could hide another half message)"
            )),
            _Case(discarded & (self.discards > 0), "act", Advice.RESUME, _text(
                "done in the ledger, but the broker discarded it, and no half copy is left in the log: resume puts "
                "the discard copy back as a new half copy, which can then be committed"
            )),
            _Case(discarded, "contradiction", Advice.NONE, _text(
                "done in the ledger, but no copy of it is left in the log: the application must send it again"
            )),
        ]

    def _done_and_decided(self, done: Bools) -> list[_Case]:
        committed, rolled_back = done & self._is(State.COMMITTED), done & self._is(State.ROLLED_BACK)
        again = (self.halves > 0) & self._advised(Advice.CLOSE)
        twice = committed & (self.finals > 1)
        has_open = (self.halves > 0) & self._has(OPEN_AGAIN_FLAG)
        can_be_redelivered = (self.halves > 0) & ~self._has("bad_body") & ~self._has("delayed_half")
        return [
            _Case(twice & again, "contradiction", Advice.CLOSE, self._delivered_often(
                "; the broker will check it again and could deliver it once more: close it"
            )),
            _Case(
                twice, "contradiction", Advice.NONE, self._delivered_often("; a delivered message cannot be taken back")
            ),
            _Case(committed & again, "act", Advice.CLOSE, _text(
                "committed, as in the ledger, but the broker will check it again and could deliver it a second time"
            )),
            _Case(committed, "agrees", Advice.NONE, _text("committed, as in the ledger")),
            _Case(rolled_back & (again | has_open), "open", Advice.WAIT, self._with_newest(
                "done in the ledger, but a rollback of an older copy was recorded: the broker will check the newest "
                "copy, and the producer's answer COMMIT delivers it"
            )),
            _Case(rolled_back & can_be_redelivered, "act", Advice.REDELIVER, self._with_newest(
                "done in the ledger, but the broker recorded a rollback: redeliver its newest half copy"
            )),
            _Case(rolled_back, "contradiction", Advice.NONE, _text(
                "done in the ledger, but the broker recorded a rollback, and no copy is left that it can deliver: the "
                "application must send the message again"
            )),
        ]

    def _cases_of_not_done(self) -> list[_Case]:
        not_done = _truths(pc.equal(self.words, "not_done"))
        pending, committed = not_done & self._is(State.PENDING), not_done & self._is(State.COMMITTED)
        discarded = not_done & self._is(State.DISCARDED)
        ended = discarded | not_done & (self._is(State.LOST) | self._is(State.ROLLED_BACK))
        has_half = self.halves > 0
        again = has_half & self._advised(Advice.CLOSE)
        return [
            _Case(not_done & self._has(REDELIVERED), "contradiction", Advice.NONE, _text(
                "not done in the ledger, but rmqtx redeliver sent a copy of it: consumers must compensate"
            )),
            _Case(pending & has_half, "act", Advice.ROLLBACK, self._with_newest(
                "not done in the ledger, and the broker has no decision: roll back its newest half copy"
            )),
            _Case(pending, "open", Advice.WAIT, _text(
                "not done in the ledger, but no half copy is in the half topic yet: wait until it returns there"
            )),
            _Case(committed & again, "contradiction", Advice.CLOSE, self._delivered_wrongly(
                "; the broker will check it again and could deliver it once more: close it"
            )),
            _Case(committed, "contradiction", Advice.NONE, self._delivered_wrongly("; consumers must compensate")),
            _Case(discarded & has_half & self._advised(Advice.WAIT), "act", Advice.ROLLBACK, self._with_newest(
                "discarded, and not done in the ledger, but the broker will check it again, and an answer COMMIT "
                "would deliver it: roll back its newest half copy"
            )),
            _Case(ended & again, "act", Advice.CLOSE, self._with_newest(
                "not delivered, as in the ledger, but the broker will check it again, and an answer COMMIT would "
                "deliver it: close its newest half copy"
            )),
            _Case(ended, "agrees", Advice.NONE, _text("not delivered, as in the ledger")),
            _Case(not_done, "open", Advice.NONE, _text(
                "not done in the ledger, but what the broker did is unknown"
            )),
        ]

    def _cases_of_no_word(self) -> list[_Case]:
        found, shared = (_numbers(self.looked_up[name]) for name in ("ledger_rows_count", "transactions_count"))
        both = _numbers(self.looked_up["says"]) == SAYS_BOTH
        rest = np.ones(self.count, np.bool_)
        return [
            _Case(~_truths(self.looked_up["has_key"]), "open", "own", _text(
                "it has no value to look up a ledger row"
            )),
            _Case(found > 1, "open", "own", lambda rows: _joined(
                _strings(found[rows]), " ledger rows match: the right one is unknown"
            )),
            _Case(shared > 1, "open", "own", lambda rows: _joined(
                "its ledger row matches ", _strings(shared[rows]), " transactions: the right one is unknown"
            )),
            _Case(found == 0, "open", "own", _text("the ledger has no row for it")),
            _Case(both, "open", "own", _text("its ledger row meets both conditions, done and not done")),
            _Case(rest, "open", "own", _text("its ledger row meets neither condition, done nor not done")),
        ]

    # -- reasons ----------------------------------------------------------------------------------------------------

    def _with_newest(self, sentence: str) -> Reason:
        def reason(rows: Int64s) -> pa.Array:
            copies = self.verdicts["half_copies"].take(pa.array(rows))
            offset, place = (_strings(_newest(copies, name)) for name in ("queue_offset", "commit_log_offset"))
            return _joined(sentence, ": queue offset ", offset, " at commit-log offset ", place)

        return reason

    def _delivered_often(self, ending: str) -> Reason:
        def reason(rows: Int64s) -> pa.Array:
            return _joined(
                "done once in the ledger, but it was delivered ", _strings(self.finals[rows]),
                " times: COMMIT records at commit-log offsets ", self._final_places(rows), ending,
            )

        return reason

    def _delivered_wrongly(self, ending: str) -> Reason:
        def reason(rows: Int64s) -> pa.Array:
            return _joined(
                "not done in the ledger, but it was delivered: COMMIT record at commit-log offset ",
                self._final_places(rows), ending,
            )

        return reason

    def _final_places(self, rows: Int64s) -> pa.Array:
        finals = self.verdicts["final_records"].take(pa.array(rows))
        places = pc.struct_field(pc.list_flatten(finals), "commit_log_offset").cast(pa.string())
        offsets = np.concatenate([[0], np.cumsum(_lengths(finals))]).astype(np.int32)
        return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), places), ", ")


def _newest(copies: pa.Array, name: str) -> Int64s:
    """A field of the last entry of each list; every list has one."""
    ends = np.cumsum(_lengths(copies)) - 1
    values: Int64s = np.asarray(pc.struct_field(pc.list_flatten(copies), name))
    return values[ends]


def _lengths(lists: pa.Array) -> Int64s:
    return _numbers(pc.list_value_length(lists))


def _numbers(values: pa.Array) -> Int64s:
    return np.asarray(pc.fill_null(values, 0)).astype(np.int64)


def _truths(values: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.fill_null(values, False)).astype(np.bool_)


def _strings(values: Int64s) -> pa.Array:
    return pa.array(values).cast(pa.string())


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _text(sentence: str) -> Reason:
    return lambda rows: pa.array([sentence] * len(rows), pa.string())


def by_outcome(
    batches: Iterable[pa.RecordBatch], *, temporary_directory: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Return the rows of RECONCILED, those that need an action first.

    Order: of OUTCOMES, then as given. Rows with an action pass at once; the rest waits in files.
    """
    first, *later = OUTCOMES
    with RunFolder(directory=temporary_directory) as name:
        files = {outcome: Path(name) / f"{outcome}.arrow" for outcome in later}
        with ExitStack() as stack:
            writers = {}
            for outcome, file in files.items():
                sink = stack.enter_context(pa.OSFile(str(file), "wb"))
                writers[outcome] = stack.enter_context(pa.ipc.new_file(sink, RECONCILED))
            for batch in batches:
                for outcome in pc.unique(batch["outcome"]).to_pylist():
                    rows = batch.filter(pc.equal(batch["outcome"], outcome))
                    if outcome == first:
                        yield rows
                    else:
                        writers[outcome].write_batch(rows)
        for file in files.values():
            with pa.memory_map(str(file)) as opened:
                reader = pa.ipc.open_file(opened)
                yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
