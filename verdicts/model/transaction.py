"""One transaction as a value: a row of TRANSACTIONS with types, for what asks about single transactions.

Tables of many stay Arrow. mypy finds a misspelt column, and one that may be null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import chain
from typing import Any, TypeVar

from rmqtx.verdicts.model.final_record import FinalRecord
from rmqtx.verdicts.model.verdict_words import OPEN_AGAIN_FLAG, Advice, AnswerEffect, NextEvent, State


@dataclass(frozen=True, slots=True)
class Copy:
    """A half copy, or a copy in the discard topic, which has no `checks_count`."""

    store: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    store_time_ms: int
    checks_count: int | None = None


@dataclass(frozen=True, slots=True)
class OpMark:
    """An op mark; without a `half_queue_offset`, a record that settles a half message by its commit-log offset."""

    store: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    half_queue_offset: int | None
    store_time_ms: int


@dataclass(frozen=True, slots=True)
class StateEntry:
    """An entry of a table beside the log."""

    store: str
    kind: str
    key: str
    value: str | None
    position_bytes: int | None


#: What proves the state of a transaction: a record with a place in a queue.
Witness = Copy | OpMark | FinalRecord
_Entry = TypeVar("_Entry", Copy, OpMark, FinalRecord, StateEntry)


@dataclass(frozen=True, slots=True)
class Transaction:
    """One row of TRANSACTIONS.

    Shape: fields as the columns; those with a default are not in every table of transactions (RECONCILED).
    """

    store: str | None
    transaction_id: str
    state: State
    flags: tuple[str, ...]
    reason: str
    advice: Advice
    producer_group: str | None
    topic: str | None
    keys: str | None
    half_store_time_ms: int | None
    decided_time_ms: int | None
    checks_count: int | None
    half_copies: tuple[Copy, ...]
    op_marks: tuple[OpMark, ...]
    final_records: tuple[FinalRecord, ...]
    discard_copies: tuple[Copy, ...]
    queue_id: int | None = None
    born_time_ms: int | None = None
    state_entries: tuple[StateEntry, ...] = ()
    discard_at_ms: int | None = None
    deliveries_count: int | None = None
    reason_code: str | None = None
    causes: tuple[str, ...] | None = None
    next_event: NextEvent | None = None
    next_event_at_ms: int | None = None
    answer_effect: AnswerEffect | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Transaction:
        """Make it from one row of a table of transactions, as Python values; other columns are ignored."""
        values = {name: row[name] for name in _NAMES if name in row}
        values |= {name: _entries(kind, row[name]) for name, kind in _KINDS.items() if name in row}
        causes, event, effect = (values.get(name) for name in ("causes", "next_event", "answer_effect"))
        return cls(**values | {
            "state": State(row["state"]), "advice": Advice(row["advice"]), "flags": tuple(row["flags"]),
            "causes": None if causes is None else tuple(causes),
            "next_event": None if event is None else NextEvent(event),
            "answer_effect": None if effect is None else AnswerEffect(effect),
        })

    def row(self) -> dict[str, Any]:
        """Return it as a row of TRANSACTIONS."""
        return asdict(self)

    def in_store(self, store: str) -> Transaction:
        """Return it with only the records and table entries of one store."""
        return replace(
            self,
            half_copies=tuple(one for one in self.half_copies if one.store == store),
            op_marks=tuple(one for one in self.op_marks if one.store == store),
            final_records=tuple(one for one in self.final_records if one.store == store),
            discard_copies=tuple(one for one in self.discard_copies if one.store == store),
            state_entries=tuple(one for one in self.state_entries if one.store == store),
        )

    @property
    def is_open(self) -> bool:
        """Whether a copy is left to check: it is pending, or decided or discarded and will be checked again."""
        return self.state == State.PENDING or OPEN_AGAIN_FLAG in self.flags

    @property
    def is_decided(self) -> bool:
        """Whether it was committed or rolled back."""
        return self.state in (State.COMMITTED, State.ROLLED_BACK)

    @property
    def newest_half(self) -> Copy | None:
        """Its newest half copy, whether or not that can be read."""
        return next(iter(newest_first(self.half_copies)), None)

    @property
    def witnesses(self) -> Iterator[Witness]:
        """The records that prove its state."""
        return chain(self.half_copies, self.op_marks, self.final_records, self.discard_copies)

    @property
    def offset_marks(self) -> list[OpMark]:
        """Its op marks that name a commit-log offset and no half queue offset."""
        return [mark for mark in self.op_marks if mark.half_queue_offset is None]

    def copies_without_op(
        self, op_cursor: int = 0, *, store: str | None = None, queue_id: int | None = None
    ) -> list[int]:
        """Return the half queue offsets of its half copies that no op message names.

        `op_cursor`: where the check reads op messages from; earlier ones have no effect on what it still reaches.
        `store`, `queue_id`: only the copies there.
        Order: ascending, each once.
        """
        marked = {mark.half_queue_offset for mark in self.op_marks if mark.queue_offset >= op_cursor}
        copies = [
            copy for copy in self.half_copies
            if store in (None, copy.store) and queue_id in (None, copy.queue_id)
        ]
        return sorted({copy.queue_offset for copy in copies} - marked)


def newest_first(copies: Sequence[Copy]) -> list[Copy]:
    """Return half or discard copies in the order of the log, the newest first; of several stores, by their clocks.

    Queue offsets do not give the order: a half queue that was deleted begins again at 0.
    """
    order = "commit_log_offset" if len({copy.store for copy in copies}) <= 1 else "store_time_ms"
    return sorted(copies, key=lambda copy: (-int(getattr(copy, order)), -copy.queue_offset))


_KINDS: dict[str, type[Any]] = {
    "half_copies": Copy, "op_marks": OpMark, "final_records": FinalRecord, "discard_copies": Copy,
    "state_entries": StateEntry,
}
_NAMES = tuple(one.name for one in fields(Transaction) if one.name not in _KINDS)
#: The names of their fields: asking for them is a third of the time of a row.
_OF_KINDS = {kind: tuple(one.name for one in fields(kind)) for kind in _KINDS.values()}


def _entries(kind: type[_Entry], entries: Sequence[Mapping[str, Any]]) -> tuple[_Entry, ...]:
    names = _OF_KINDS[kind]
    return tuple(kind(**{name: entry[name] for name in names if name in entry}) for entry in entries)
