"""What harms most, first: messages that the broker discards soon, then those not delivered, then those delivered more
than once.

No other module ranks transactions: headlines, the command to type next, the report and `rmqtx check` use this order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model import clock
from rmqtx.readers.model.columns import Bools, int64s
from rmqtx.readers.model.moments import HOUR_MS
from rmqtx.readers.model.shell_words import quoted
from rmqtx.verdicts.model.predicted import ASSUMED_SETTINGS, Prediction
from rmqtx.verdicts.model.verdict_words import NextEvent, State
from rmqtx.verdicts.model.witnesses import are_in_several_stores
from rmqtx.verdicts.transactions.futures import UNASKED_WORDS
from rmqtx_cli.options.next_commands import next_line
from rmqtx_cli.words.text import escaped, grouped
from rmqtx_cli.words.times import duration_text, time_text

#: A discard that comes within this time is harm that can still be prevented.
SOON_MS = HOUR_MS
#: The columns of TRANSACTIONS that decide the rank of a row.
HARM_COLUMNS = (
    "store", "transaction_id", "state", "flags", "half_store_time_ms", "discard_at_ms", "next_event", "answer_effect",
)
#: Stores that a sentence names.
_STORES_MAX = 3
_NEVER = 1 << 62


class _Words:
    """A column of few different words, each compared once."""

    def __init__(self, column: pa.Array) -> None:
        encoded = column.dictionary_encode()
        self._known, self._numbers = encoded.dictionary.to_pylist(), int64s(encoded.indices)

    def are(self, *words: str) -> Bools:
        """Which rows have one of some words."""
        found = np.zeros(len(self._numbers), np.bool_)
        for number, known in enumerate(self._known):
            if known in words:
                found |= self._numbers == number
        return found


class _Rows:
    """Some transactions, and which of them fulfil a condition."""

    def __init__(self, batch: pa.RecordBatch, now_ms: int) -> None:
        self.count = batch.num_rows
        self._states = _Words(batch["state"])
        self._flags, self._owners = _Words(pc.list_flatten(batch["flags"])), pc.list_parent_indices(batch["flags"])
        times = batch["discard_at_ms"] if "discard_at_ms" in batch.schema.names else pa.nulls(self.count, pa.int64())
        self.discard_at_ms = np.asarray(pc.fill_null(times, _NEVER)).astype(np.int64)
        self.are_soon = self.discard_at_ms <= now_ms + SOON_MS
        is_given = "next_event" in batch.schema.names
        events = _Words(batch["next_event"] if is_given else pa.nulls(self.count, pa.string()))
        self.are_unasked, self.are_cut = events.are(*UNASKED_WORDS), events.are(NextEvent.CUT)
        self.are_unread = events.are(NextEvent.SKIPPED)
        self._is_known = is_given and batch["next_event"].null_count < self.count
        self._effects = batch["answer_effect"] if self._is_known else None

    @property
    def may_be_asked(self) -> Bools:
        """Those that a producer is asked about; all, where what happens next is not known."""
        if self._effects is None:
            return np.ones(self.count, np.bool_)
        return np.asarray(pc.is_valid(self._effects)).astype(np.bool_)

    def are_asked_with(self, *flags: str) -> Bools:
        """Those that a producer is asked about; those with a flag, where what happens next is not known."""
        return self.flag(*flags) if self._effects is None else self.may_be_asked

    def state(self, state: State) -> Bools:
        return self._states.are(state)

    def flag(self, *names: str) -> Bools:
        found = np.zeros(self.count, np.bool_)
        chosen = self._flags.are(*names)
        if chosen.any():
            found[np.asarray(self._owners)[chosen]] = True
        return found


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of harm. `words`: the states or flags that name it in a command's comment, the first that a row has.

    `sentence`: the kind after a number, in a sentence; empty for a kind that headlines leave out.
    """

    words: tuple[str, ...]
    fits: Callable[[_Rows], Bools]
    sentence: str = ""


def _pending_with(*flags: str) -> Callable[[_Rows], Bools]:
    return lambda rows: rows.state(State.PENDING) & rows.flag(*flags)


#: Pending, and cut off the log by the next start of the broker.
CUT_OFF = "cut off"
#: Pending, and without a slot that the check reads after the next start of the broker.
UNREAD = "not read"
#: Pending, and discarded within SOON_MS; of a stopped broker, within that time after its start.
SOON = "discarded soon"
#: Committed, and the broker may deliver it again.
AGAIN = "delivered again"
#: Rolled back, and the broker may deliver it.
WRONGLY = "delivered though rolled back"
#: All kinds, worst first. A transaction is of the first kind that fits.
KINDS: dict[str, _Kind] = {
    CUT_OFF: _Kind(
        (State.PENDING,), lambda rows: rows.state(State.PENDING) & rows.are_cut,
        "PENDING that the next start of the broker cuts off the log (rmqtx verify)",
    ),
    UNREAD: _Kind(
        (State.PENDING,), lambda rows: rows.state(State.PENDING) & rows.are_unread,
        "PENDING that the check never reads after the next start of the broker (rmqtx verify)",
    ),
    SOON: _Kind((State.PENDING,), lambda rows: rows.state(State.PENDING) & rows.are_soon),
    "never checked": _Kind(
        ("never_asked", "masked", "poison"), _pending_with("never_asked", "masked", "poison"),
        "PENDING that the broker never checks",
    ),
    "lost": _Kind((State.LOST,), lambda rows: rows.state(State.LOST), "LOST (not delivered)"),
    "discarded": _Kind((State.DISCARDED,), lambda rows: rows.state(State.DISCARDED), "DISCARDED (not delivered)"),
    "unknown": _Kind((State.UNDECIDABLE,), lambda rows: rows.state(State.UNDECIDABLE), State.UNDECIDABLE),
    "delivered more than once": _Kind(
        ("duplicate_commit",), lambda rows: rows.flag("duplicate_commit"),
        "delivered more than once",
    ),
    AGAIN: _Kind(
        ("commit_without_op", "open_after_decision"),
        lambda rows: rows.state(State.COMMITTED) & rows.are_asked_with("commit_without_op", "open_after_decision"),
        "COMMITTED that the broker may deliver again",
    ),
    WRONGLY: _Kind(
        ("open_after_decision",),
        lambda rows: rows.state(State.ROLLED_BACK) & rows.are_asked_with("open_after_decision"),
        "ROLLED_BACK that the broker may deliver",
    ),
    "delivered wrongly": _Kind(
        ("commit_after_rollback", "conflict"), lambda rows: rows.flag("commit_after_rollback", "conflict"),
        "both committed and rolled back",
    ),
    "late": _Kind(("expired", "expires_soon", "stalled"), _pending_with("expired", "expires_soon", "stalled")),
    "to tidy up": _Kind(
        ("open_after_decision", "commit_after_discard", "discarded_though_decided"),
        lambda rows: rows.flag("open_after_decision", "commit_after_discard", "discarded_though_decided"),
    ),
    "pending": _Kind((State.PENDING,), lambda rows: rows.state(State.PENDING)),
}


def harm_ranks(batch: pa.RecordBatch, now_ms: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return for each transaction the number of its kind in KINDS; the number of kinds for one without any.

    `batch` has HARM_COLUMNS.
    """
    rows, ranks = _Rows(batch, now_ms), np.full(batch.num_rows, len(KINDS), np.int64)
    for rank, kind in reversed(list(enumerate(KINDS.values()))):
        ranks[kind.fits(rows)] = rank
    return ranks


@dataclass(slots=True)
class _OfStore:
    """Transactions of one store by the time at which its broker discards them.

    Shape: `times`: the pending ones that it discards soon; of them `unasked` are discarded in the next round, without
           asking, and `unaskable` later, and no producer is asked about them either. `has_copies`: some of the pending
           ones are in other stores too, which are copies of its log, and count here alone.
    """

    pending_count: int = 0
    has_copies: bool = False
    times: Counter[int] = field(default_factory=Counter)
    unasked: Counter[int] = field(default_factory=Counter)
    unaskable: Counter[int] = field(default_factory=Counter)


@dataclass(slots=True)
class Harms:
    """The transactions seen so far by kind of harm, with the worst one of each; memory does not grow with their number.

    Units: `now_ms`: the time that "soon" refers to, epoch milliseconds.
    """

    now_ms: int = field(default_factory=lambda: clock.now_ms())
    counts: Counter[str] = field(default_factory=Counter)
    _worst: dict[str, tuple[int, int, str, str]] = field(default_factory=dict)
    _stores: dict[str, _OfStore] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: pa.Table, now_ms: int) -> Harms:
        """Return the harms of some transactions. `rows`: see `add`."""
        found = cls(now_ms)
        for batch in rows.to_batches():
            found.add(batch)
        return found

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the transactions of a batch, which has HARM_COLUMNS; the file of an earlier audit has no times left."""
        if not batch.num_rows:
            return
        ranks, rows = harm_ranks(batch, self.now_ms), _Rows(batch, self.now_ms)
        stored = np.asarray(pc.fill_null(batch["half_store_time_ms"], _NEVER)).astype(np.int64)
        for rank in np.unique(ranks).tolist():
            if rank == len(KINDS):
                continue
            name, mine = list(KINDS)[rank], np.flatnonzero(ranks == rank)
            self.counts[name] += len(mine)
            first = mine[np.lexsort((stored[mine], rows.discard_at_ms[mine]))[0]]
            found = self._example(batch, int(first), name, int(rows.discard_at_ms[first]), int(stored[first]))
            self._worst[name] = min(self._worst.get(name, found), found)
        self._count_by_store(batch, rows, ranks)

    @staticmethod
    def _example(
        batch: pa.RecordBatch, row: int, name: str, discard_at_ms: int, stored_ms: int
    ) -> tuple[int, int, str, str]:
        known = {batch["state"][row].as_py(), *(batch["flags"][row].as_py() or ())}
        word = next((word for word in KINDS[name].words if word in known), KINDS[name].words[0])
        return discard_at_ms, stored_ms, batch["transaction_id"][row].as_py(), word

    def _count_by_store(self, batch: pa.RecordBatch, rows: _Rows, ranks: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        stores, pending = batch["store"], rows.state(State.PENDING)
        are_soon = ranks == list(KINDS).index(SOON)
        has_evidence = "half_copies" in batch.schema.names  # the columns of a large audit leave it out
        shared = are_in_several_stores(batch["half_copies"]) if has_evidence else np.zeros(batch.num_rows, np.bool_)
        for root in pc.unique(stores.filter(pa.array(pending))).to_pylist():
            of, here = self._stores.setdefault(root, _OfStore()), np.asarray(pc.equal(stores, root)).astype(np.bool_)
            of.pending_count += int((here & pending).sum())
            of.has_copies |= bool((here & pending & shared).any())
            soon = are_soon & here
            for counts, chosen in (
                (of.times, soon), (of.unasked, soon & rows.are_unasked),
                (of.unaskable, soon & ~rows.are_unasked & ~rows.may_be_asked),
            ):
                times, numbers = np.unique(rows.discard_at_ms[chosen], return_counts=True)
                counts.update(dict(zip(times.tolist(), numbers.tolist(), strict=True)))

    def worst(self) -> tuple[str, str] | None:
        """Return the id of the transaction that is harmed first or most, and the word that names the harm."""
        name = next((name for name in KINDS if self.counts[name]), None)
        if name is None:
            return None
        _, _, identity, word = self._worst[name]
        return identity, f"{word}, discarded first" if name == SOON else word

    def next_line(self, arguments: str) -> str | None:
        """Return the line with the command that shows this transaction, and changes nothing; None if none is harmed.

        `arguments`: the options that open the same stores or brokers, quoted for a shell.
        """
        if (worst := self.worst()) is None:
            return None
        return next_line(f"rmqtx show {quoted(worst[0])} {arguments}", worst[1])

    def sentences(self, predicted: Mapping[str, Prediction]) -> Iterator[str]:
        """Return what is harmed, worst first: numbers, and when it happens where it can still be prevented."""
        yield from self.soon_sentences(predicted)
        for name, kind in KINDS.items():
            number = self.counts[name]
            if kind.sentence and number:
                yield f"{grouped(number)} {kind.sentence}"

    def start_sentences(self) -> Iterator[str]:
        """Return how many pending transactions the next start cuts off the log, or leaves without a slot."""
        for name in (CUT_OFF, UNREAD):
            if self.counts[name]:
                yield f"{grouped(self.counts[name])} {KINDS[name].sentence}"

    @property
    def is_soon(self) -> bool:
        """Whether a broker discards pending transactions soon."""
        return self.counts[SOON] > 0

    @property
    def stores_with_soon(self) -> set[str]:
        """The stores whose broker discards pending transactions soon."""
        return {root for root, of in self._stores.items() if of.times}

    def soon_sentences(self, predicted: Mapping[str, Prediction], *, with_counts: bool = True) -> Iterator[str]:
        """Return when brokers discard pending transactions, the first one first; nothing if that is not soon.

        `with_counts`: begin with the number of pending transactions.
        """
        harmed = sorted((min(of.times), root) for root, of in self._stores.items() if of.times)
        for _, root in harmed[:_STORES_MAX]:
            of = self._stores[root]
            name = f"{escaped(root)} and the copies of its log" if of.has_copies else escaped(root)
            whose = [name] if len(self._stores) > 1 or of.has_copies else []
            whose += [f"{grouped(of.pending_count)} PENDING"] if with_counts else []
            yield ": ".join([*whose, self._when(of, predicted.get(root))])
        if len(harmed) > _STORES_MAX:
            yield f"the brokers of {len(harmed) - _STORES_MAX} more stores discard pending transactions soon"

    def _when(self, of: _OfStore, known: Prediction | None) -> str:
        is_running = known is not None and known.is_running
        # The time of a stopped broker counts from its start, whenever the sentence is printed.
        from_ms = known.start_ms if known is not None and known.start_ms else self.now_ms
        parts = []
        if of.unasked:
            which = "next" if is_running else "first"
            when = _moment(min(of.unasked), from_ms, is_running)
            parts.append(f"{_many(of.unasked, of)} unasked in its {which} round, {when}")
        asked = of.times - of.unasked - of.unaskable
        for times, condition in ((asked, "unless a producer answers"), (of.unaskable, "and asks no producer")):
            if times:
                parts.append(f"{_many(times, of)} {_span(times, from_ms, condition, is_running)}")
        is_assumed = known is not None and ASSUMED_SETTINGS in known.assumed
        return f"the broker discards {', and '.join(parts)}{' (by default settings)' if is_assumed else ''}"


def _span(times: Counter[int], from_ms: int, condition: str, is_running: bool) -> str:
    """Return until when something happens, on which condition, and when it begins."""
    lefts_ms = [max(0, time_ms - from_ms) for time_ms in (min(times), max(times))]
    first, last = (duration_text(left_ms) for left_ms in lefts_ms)
    if is_running:
        return f"within {last} {condition}, the first in {first}, at {time_text(min(times))}"
    begin = "" if first == last else f", the first {f'after {first}' if lefts_ms[0] else 'at once'}"
    return f"within {last} of its start {condition}{begin}"


def _moment(time_ms: int, from_ms: int, is_running: bool) -> str:
    left_ms = time_ms - from_ms
    if left_ms <= 0:
        return "now" if is_running else "as soon as it starts"
    if is_running:
        return f"in {duration_text(left_ms)}, at {time_text(time_ms)}"
    return f"{duration_text(left_ms)} after it starts"


def _many(times: Counter[int], of: _OfStore) -> str:
    number = times.total()
    if number == of.pending_count > 1:
        return "both" if number == 2 else f"all {grouped(number)}"
    return grouped(number)
