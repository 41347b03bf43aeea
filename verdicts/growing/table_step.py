"""One step of a table of verdicts: which rows it closes, which it replaces, and which it adds. The rule is only here.

One row is one state of one transaction, and from when to when it held. Its other columns are kept current; a new state
closes the row and begins another. `valid_to` is null in the current rows, which are those of a new audit.

The changes come from the checkpoint, with the state that each transaction had before. If the table does not have the
rows of the step before (it is new, it was restored, the checkpoint is new), the changes are all present verdicts, and
the states before are read from the table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.errors import FileChanged
from rmqtx.readers.model.moments import timestamp_schema, with_timestamps
from rmqtx.readers.model.tables import column
from rmqtx.verdicts.export.partitions import days_of
from rmqtx.verdicts.follow.change_log import CHANGES, FOLLOWED, KEY, ChangeLog
from rmqtx.verdicts.model.verdict_words import State

_MOMENT = pa.timestamp("ms", "UTC")
#: Why a row is closed.
STATE_CHANGED, GONE = "state", "gone"
VERDICTS = pa.schema([
    *timestamp_schema(FOLLOWED),
    column("valid_from", _MOMENT, "when rmqtx first found the transaction in this state"),
    column("valid_to", _MOMENT, "when rmqtx found that it no longer holds; null for a current row"),
    column(
        "closed_by", pa.string(), "why the row is closed: the transaction has another state, or a new audit no longer "
        "finds it, because its files expired or were replaced", values=(STATE_CHANGED, GONE),
    ),
    column("day", pa.date32(), "UTC day of the first half copy, by which the table is partitioned"),
])
#: States and flags of verdicts that are about to change. Their rows are in files of their own, which are small and
#: rewritten often: a later record, a cursor or the time changes them.
UNSETTLED_STATES = (State.PENDING, State.LOST, State.UNDECIDABLE)
UNSETTLED_FLAGS = ("commit_without_op", "open_after_decision", "may_be_decided")
#: Rows that a step ends: `closed_by` is why, or null if a row with the same state replaces it.
ENDED = pa.schema([
    *(CHANGES.field(name) for name in KEY),
    pa.field("before_state", pa.string(), nullable=False),
    pa.field("before_day", pa.date32()),
    pa.field("was_unsettled", pa.bool_(), nullable=False),
    pa.field("closed_by", pa.string()),
])
#: The columns of the current rows that a step compares with.
CURRENT = pa.schema([
    *(CHANGES.field(name) for name in KEY),
    pa.field("state", pa.string()),
    pa.field("flags", pa.list_(pa.string())),
    pa.field("day", pa.date32()),
    pa.field("valid_from", pa.timestamp("ms", "UTC")),
])
#: When the state of a replaced row began.
VALID_SINCE = pa.schema([VERDICTS.field(name) for name in (*KEY, "valid_from")])


def rows_of(verdicts: pa.Table, at_ms: int) -> pa.Table:
    """Return current rows for verdicts with the columns of FOLLOWED, valid from a time on."""
    verdicts = verdicts.select(FOLLOWED.names).combine_chunks()
    days = days_of(verdicts["half_store_time_ms"])
    batches = [with_timestamps(batch) for batch in verdicts.to_batches()]
    rows = pa.Table.from_batches(batches, timestamp_schema(FOLLOWED))
    count = rows.num_rows
    moments = pa.array([at_ms] * count, pa.int64()).cast(_MOMENT)
    return pa.table(
        [*rows.columns, moments, pa.nulls(count, _MOMENT), pa.nulls(count, pa.string()), days], schema=VERDICTS
    )


def are_unsettled(states: pa.ChunkedArray, flags: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whether each verdict is about to change."""
    found = pc.is_in(states, value_set=pa.array(UNSETTLED_STATES))
    joined = pc.fill_null(pc.binary_join(flags, ","), "")
    for flag in UNSETTLED_FLAGS:
        found = pc.or_(found, pc.match_substring(joined, flag))
    return found


def closed(rows: pa.Table, at_ms: int, closed_by: pa.ChunkedArray | pa.Array) -> pa.Table:
    """Return the rows with the time and the reason of their end."""
    ended = pa.array([at_ms] * rows.num_rows, pa.int64()).cast(_MOMENT)
    return with_column(with_column(rows, "valid_to", ended), "closed_by", closed_by)


def with_column(rows: pa.Table, name: str, values: pa.ChunkedArray | pa.Array) -> pa.Table:
    """Return the rows with other values in a column."""
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(place), values)


def key_texts(rows: pa.Table) -> pa.Array:
    """Return a text for each row that is equal for rows of the same transaction, and only for those."""
    columns = [_combined(rows[name]) for name in KEY]
    lengths = [pc.cast(pc.fill_null(pc.binary_length(one), -1), pa.string()) for one in columns]
    return pc.binary_join_element_wise(*lengths, *columns, " ", null_handling="replace", null_replacement="")


def _combined(values: pa.ChunkedArray) -> pa.Array:
    combined = values.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


@dataclass(frozen=True, slots=True)
class TableStep:
    """A step that is ready; a table has it, or does not have it.

    Shape: `current`: the current rows of the table (CURRENT) if the changes are all present verdicts, else None.
    """

    log: ChangeLog
    at_ms: int
    stores: tuple[str, ...]
    current: pa.Table | None = None

    @property
    def token(self) -> int:
        """The number that a table keeps for each store of its last step."""
        return step_token(self.log.id, self.at_ms)

    def ended(self) -> pa.Table:
        """Return the current rows of the table that are closed or replaced. Shape: ENDED."""
        found = [self._ended(changes) for changes in self._changes()]
        if self.current is not None:
            found.append(self._not_found(self.current))
        return pa.concat_tables(found) if found else ENDED.empty_table()

    def rows(self) -> Iterator[pa.Table]:
        """Return the current rows that are added.

        Shape: VERDICTS, and `is_replacement`: whether the row continues one with the same state.
        """
        return map(self._added, self._changes())

    def _added(self, changes: pa.Table) -> pa.Table:
        left = changes.filter(pc.invert(changes["is_gone"]))
        replaces = pc.fill_null(pc.equal(left["state"], left["before_state"]), False)
        return rows_of(left, self.at_ms).append_column("is_replacement", replaces)

    def end(self, rows: pa.Table, ended: pa.Table) -> tuple[pa.Table, pa.Table, pa.Table]:
        """Divide rows of the table by what becomes of them.

        Shape: the rows that stay as they are; those that are closed, with their ends; and key and `valid_from` of those
               that are replaced. The second and third together have each row of `ended` (ENDED) that was found.
        """
        keys = key_texts(ended)
        places = pc.index_in(key_texts(rows), value_set=keys)
        are_ended = pc.and_(pc.is_null(rows["valid_to"]), pc.is_valid(places))
        hit = rows.filter(are_ended)
        closed_by = ended["closed_by"].take(places.filter(are_ended))
        are_closed = pc.is_valid(closed_by)
        replaced = hit.filter(pc.invert(are_closed)).select(VALID_SINCE.names)
        return (
            rows.filter(pc.invert(are_ended)),
            closed(hit, self.at_ms, closed_by).filter(are_closed),
            replaced,
        )

    def _ended(self, changes: pa.Table) -> pa.Table:
        ends = changes.filter(pc.is_valid(changes["before_state"]))
        is_changed = pc.fill_null(pc.not_equal(ends["state"], ends["before_state"]), False)
        closed_by = pc.if_else(
            ends["is_gone"], GONE, pc.if_else(is_changed, STATE_CHANGED, pa.scalar(None, pa.string()))
        )
        days = days_of(ends["before_time_ms"]) if self.current is None else ends["before_day"]
        return pa.table(
            [*(ends[name] for name in KEY), ends["before_state"], days,
             are_unsettled(ends["before_state"], ends["before_flags"]), closed_by], schema=ENDED
        )

    def _changes(self) -> Iterator[pa.Table]:
        if self.current is None:
            return self.log.net()
        return map(partial(_compared, self.current, key_texts(self.current)), self.log.net())

    def _not_found(self, current: pa.Table) -> pa.Table:
        """Return the current rows of the table that the present verdicts do not have."""
        keys = key_texts(current)
        is_found = np.zeros(current.num_rows, np.bool_)
        for changes in self._changes():
            places = pc.drop_null(pc.index_in(key_texts(changes), value_set=keys))
            is_found[places.to_numpy()] = True
        left = current.filter(pa.array(~is_found))
        return pa.table(
            [*(left[name] for name in KEY), left["state"], left["day"], are_unsettled(left["state"], left["flags"]),
             pa.array([GONE] * left.num_rows, pa.string())],
            schema=ENDED,
        )


def _compared(current: pa.Table, keys: pa.Array, changes: pa.Table) -> pa.Table:
    """Return present verdicts with the state and the day of the current row of each in the table."""
    left = changes.filter(pc.invert(changes["is_gone"]))
    places = pc.index_in(key_texts(left), value_set=keys)
    left = with_column(left, "before_state", current["state"].take(places))
    left = with_column(left, "before_flags", current["flags"].take(places))
    return left.append_column("before_day", current["day"].take(places))


def continued(added: pa.Table, valid_since: pa.Table) -> pa.Table:
    """Return added rows in the form of the table; those that replace a row (VALID_SINCE) begin when that row began.

    Shape: VERDICTS.
    """
    rows = added.select(VERDICTS.names)
    if not valid_since.num_rows:
        return rows
    before = valid_since["valid_from"].take(pc.index_in(key_texts(rows), value_set=key_texts(valid_since)))
    return with_column(rows, "valid_from", pc.if_else(added["is_replacement"], before, rows["valid_from"]))


def table_differs(place: str, missing_count: int) -> FileChanged:
    """Return the error for a table that lacks current rows that rmqtx wrote."""
    return FileChanged(
        f"{place} lacks {missing_count} current rows that rmqtx wrote: another program changed it", file=place,
        advice="run again: all its rows are then compared",
    )


def step_token(checkpoint: str, at_ms: int) -> int:
    """Return the token of a checkpoint's step: 63 bits, because Delta Lake keeps a number."""
    return int.from_bytes(hashlib.blake2b(f"{checkpoint} {at_ms}".encode(), digest_size=8).digest()) >> 1
