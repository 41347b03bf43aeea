"""Changes of verdicts that a table has not received yet, kept in the checkpoint until the table has them.

A step records its changes in the database transaction that records its verdicts, so no kill can lose or repeat one. A
step that was killed is continued by another attempt, whose changes follow those of the first: what a table receives is
the first verdict before and the last one after (`ChangeLog.net`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from rmqtx.readers.model.tables import FUTURE_COLUMNS, TRANSACTIONS
from rmqtx.verdicts.follow.checkpoint_db import VERDICT_COLUMNS, FollowDatabase
from rmqtx.verdicts.model.verdict_words import State

#: The columns of TRANSACTIONS that are followed; the others are null in followed verdicts.
FOLLOWED = pa.schema([field for field in TRANSACTIONS if field.name not in FUTURE_COLUMNS])
#: What identifies a transaction in a table.
KEY = ("store", "transaction_id", "producer_group", "topic")
#: One changed verdict: the new one, or only its key if a new audit no longer finds it; and what the one before had.
CHANGES = pa.schema([
    *FOLLOWED,
    pa.field("is_gone", pa.bool_(), nullable=False),
    pa.field("before_state", pa.string()),
    pa.field("before_time_ms", pa.int64()),
    pa.field("before_flags", pa.list_(pa.string())),
])
#: Changes in one value of the database.
_ROWS_MAX = 5_000
_BEFORE = {"before_state": "state", "before_time_ms": "half_store_time_ms", "before_flags": "flags"}
_PLACES = {name: VERDICT_COLUMNS.index(name) for name in (*KEY, *_BEFORE.values())}
#: Columns of the reason, which can change with the check cursor although the verdict stays the same.
_WHY = ("reason", "reason_code")
_BUT_WHY = [place for place, name in enumerate(VERDICT_COLUMNS) if name not in _WHY]
#: A verdict in the form of the database.
Verdict = tuple[Any, ...]
_Key = tuple[Any, ...]
_Before = tuple[Any, ...]


def visible(row: Verdict) -> Verdict:
    """Return the part of a verdict, in the form of the database, whose change is reported.

    The reason is not part of it: it contains the check cursor, which moves while the verdict stays the same.
    """
    return row if row[_PLACES["state"]] == State.UNDECIDABLE else tuple(row[place] for place in _BUT_WHY)


def changed_rows(
    database: FollowDatabase, verdicts: pa.Table | None, now: Sequence[Verdict], before: Mapping[Verdict, int],
    rows: Sequence[int],
) -> Iterator[pa.Table]:
    """Return some of the judged transactions as changes, and those that are gone.

    Shape: CHANGES. `verdicts`, `now`: the new verdicts, twice, in one order; `before`: the old ones; `rows`: the
           numbers of the new ones to return.
    """
    keys = partial(_key, database)
    same = frozenset(now)
    old = {keys(row): row for row in before if row not in same}
    if verdicts is not None and rows:
        chosen = verdicts.select(FOLLOWED.names).take(pa.array(rows, pa.int64()))
        befores = _befores([old.get(keys(now[number])) for number in rows])
        yield pa.table([*chosen.columns, pa.array([False] * len(rows)), *befores], schema=CHANGES)
    left = {keys(row) for row in now}
    gone = {key: row for key, row in old.items() if key not in left}
    if gone:
        yield _gone(gone)


def _gone(rows: Mapping[_Key, Verdict]) -> pa.Table:
    columns: dict[str, Any] = dict(zip(KEY, zip(*rows, strict=True), strict=True)) | dict(
        zip(_BEFORE, _befores(list(rows.values())), strict=True)
    )
    arrays = [
        columns[field.name] if isinstance(columns.get(field.name), pa.Array)
        else pa.array(columns[field.name], field.type) if field.name in columns
        else pa.array([True] * len(rows)) if field.name == "is_gone"
        else pa.nulls(len(rows), field.type)
        for field in CHANGES
    ]
    return pa.table(arrays, schema=CHANGES)


def _befores(rows: Sequence[Verdict | None]) -> list[pa.Array]:
    found = []
    for name, column in _BEFORE.items():
        values = [None if row is None else row[_PLACES[column]] for row in rows]
        if column == "flags":
            values = [None if text is None else text.split(",") if text else [] for text in values]
        found.append(pa.array(values, CHANGES.field(name).type))
    return found


def _key(database: FollowDatabase, row: Verdict) -> _Key:
    store, *others = (row[_PLACES[name]] for name in KEY)
    return database.roots[store], *others


def packed(changes: pa.Table) -> Iterator[tuple[int, bytes]]:
    """Return rows of CHANGES as values for the database, each with its number of rows."""
    for first in range(0, changes.num_rows, _ROWS_MAX):
        part = changes.slice(first, _ROWS_MAX)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, CHANGES, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(part)
        yield part.num_rows, sink.getvalue().to_pybytes()


def unpacked(data: bytes) -> pa.Table:
    """Return the rows of a value of `packed`. Raises: ValueError (pa.ArrowInvalid) or TypeError for another value."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
        table = stream.read_all()
    if table.schema != CHANGES:
        raise ValueError("the columns of a recorded change differ")
    return table


class Changes(Protocol):
    """Where a following audit records what changed, in the database transaction that records the verdicts."""

    def add(self, verdicts: pa.Table | None, now: Sequence[Verdict], before: Mapping[Verdict, int]) -> None:
        """Record what changed in some judged transactions; see `changed_rows`."""


class ChangeLog:
    """The changes in an open checkpoint; every method runs inside the caller's database transaction, or reads."""

    def __init__(self, database: FollowDatabase) -> None:
        self._database = database
        last = database.connection.execute("SELECT max(attempt) FROM changes").fetchone()[0]
        self._attempt = 0 if last is None else last + 1

    def add(self, verdicts: pa.Table | None, now: Sequence[Verdict], before: Mapping[Verdict, int]) -> None:
        """Record what changed in some judged transactions, or all of them if the changes are whole."""
        whole = self.is_whole
        rows = [number for number, row in enumerate(now) if whole or row not in before]
        for changes in changed_rows(self._database, verdicts, now, before, rows):
            for count, data in packed(changes):
                self._database.connection.execute(
                    "INSERT INTO changes (attempt, rows_count, batch) VALUES (?, ?, ?)", (self._attempt, count, data)
                )

    # -- what the table has -------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The name of this checkpoint in tables."""
        return self._database.meta("id") or ""

    @property
    def is_whole(self) -> bool:
        """Whether the changes are all present verdicts, for a table whose rows are not those of the last step."""
        return self._database.meta("table_lacks_all") is not None

    @property
    def ready_ms(self) -> int | None:
        """The time of the step whose changes are complete and not known to be in the table."""
        return _number(self._database.meta("step_ready_ms"))

    @property
    def applied_ms(self) -> int | None:
        """The time of the last step that the table has."""
        return _number(self._database.meta("step_applied_ms"))

    def begin_whole(self) -> None:
        """Begin again with a table: all transactions are judged and recorded, from the witnesses that are here."""
        self.clear()
        self._database.set_meta("table_lacks_all", "1")
        self._database.set_meta("step_ready_ms", None)
        self._database.mark_all_unjudged()

    def make_ready(self, at_ms: int) -> None:
        """Close the step; `at_ms` is its time, and later than that of every step before."""
        self._database.set_meta("step_ready_ms", str(at_ms))

    def finish(self) -> None:
        """Record that the table has the changes of the step that is ready."""
        self._database.set_meta("step_applied_ms", self._database.meta("step_ready_ms"))
        self._database.set_meta("step_ready_ms", None)
        self._database.set_meta("table_lacks_all", None)
        self.clear()

    # -- for a table ------------------------------------------------------------------------------------------------

    def count(self) -> int:
        """Return the number of recorded changes."""
        return int(self._database.connection.execute("SELECT coalesce(sum(rows_count), 0) FROM changes").fetchone()[0])

    def clear(self) -> None:
        """Forget all changes."""
        self._database.connection.execute("DELETE FROM changes")

    def net(self) -> Iterator[pa.Table]:
        """Return the changes, each transaction once: with its first verdict before and its last one after.

        Shape: CHANGES.
        """
        return self._net(self._last_ones() if self._has_attempts() else None)

    def _net(self, last: Mapping[int, list[tuple[int, _Before]]] | None) -> Iterator[pa.Table]:
        for number, batch in self._batches():
            if last is None:
                yield batch
            elif number in last:
                rows, befores = zip(*last[number], strict=True)
                columns = dict(zip(_BEFORE, zip(*befores, strict=True), strict=True))
                chosen = batch.take(pa.array(rows, pa.int64()))
                arrays = [
                    pa.array(columns[field.name], field.type) if field.name in columns else chosen[field.name]
                    for field in CHANGES
                ]
                yield pa.table(arrays, schema=CHANGES)

    def _has_attempts(self) -> bool:
        """Whether the changes are of more than one attempt."""
        (count,) = self._database.connection.execute("SELECT count(DISTINCT attempt) FROM changes").fetchone()
        return bool(count > 1)

    def _batches(self) -> Iterator[tuple[int, pa.Table]]:
        # A connection of its own: libraries that write tables take the rows in threads of theirs.
        path = Path(self._database.path).absolute().as_uri()
        with closing(sqlite3.connect(f"{path}?mode=ro", uri=True, check_same_thread=False)) as reader:
            for number, data in reader.execute("SELECT number, batch FROM changes ORDER BY number"):
                try:
                    table = unpacked(data)
                except (pa.ArrowException, TypeError, ValueError) as error:
                    raise self._database.changed(error) from error
                yield number, table

    def _last_ones(self) -> dict[int, list[tuple[int, _Before]]]:
        """Return for each batch the rows that are the last of their transactions, with their first befores."""
        last: dict[_Key, tuple[int, int]] = {}
        first: dict[_Key, _Before] = {}
        for number, batch in self._batches():
            keys = zip(*(batch[name].to_pylist() for name in KEY), strict=True)
            befores = zip(*(batch[name].to_pylist() for name in _BEFORE), strict=True)
            for row, (key, before) in enumerate(zip(keys, befores, strict=True)):
                last[key] = number, row
                first.setdefault(key, before)
        found: dict[int, list[tuple[int, _Before]]] = {}
        for key, (number, row) in last.items():
            found.setdefault(number, []).append((row, first[key]))
        return found


def forget_table(database: FollowDatabase) -> None:
    """Record that a step is made without a table: the next step with one compares the whole table."""
    names = ("step_applied_ms", "step_ready_ms", "table_lacks_all")
    if any(database.meta(name) is not None for name in names):
        with database.transaction():
            for name in names:
                database.set_meta(name, None)
            ChangeLog(database).clear()


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
