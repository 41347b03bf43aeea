"""The rows of a table of verdicts: a transaction's verdict, and from when to when it held.

One row is one state of one transaction. Its other columns are kept current; a new state closes the row and begins
another. `valid_to` is null in the current rows, which are those of a new audit.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.moments import timestamp_schema, with_timestamps
from rmqtx.readers.model.tables import column
from rmqtx.verdicts.export.partitions import days_of
from rmqtx.verdicts.follow.change_log import FOLLOWED, KEY
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
])  # fmt: skip
#: States and flags of verdicts that are about to change. Their rows are in files of their own, which are small and
#: rewritten often: a later record, a cursor or the time changes them.
UNSETTLED_STATES = (State.PENDING, State.LOST, State.UNDECIDABLE)
UNSETTLED_FLAGS = ("commit_without_op", "open_after_decision", "may_be_decided")


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
