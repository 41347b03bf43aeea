"""The differences between two audits: of two stores, or of one store at two times.

Two rows are the same transaction if id, producer group and topic are equal. Rows are compared part by part, by a hash
of these values, so audits of any size fit into memory. An audit can be
read from a file: Parquet, or Arrow as a stream or a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.jobs.spool import Spool
from rmqtx.readers.model.columns import Bools, Int64s, lists_of
from rmqtx.readers.model.errors import BadText, UnreadableFile
from rmqtx.readers.model.identities import identity_hashes, partition_of
from rmqtx.readers.model.tables import TRANSACTIONS, column
from rmqtx.readers.storage.temporary import RunFolder
from rmqtx.verdicts.model.verdict_words import EVIDENCE

CHANGES: dict[str, str] = {
    "appeared": "it is in the second audit only",
    "vanished": "it is in the first audit only: its records expired, were cut off, or were never copied",
    "changed": "it is in both audits, with other values",
}
_SUFFIXES = (".parquet", ".arrow", ".feather")
#: The compared columns; counts are those of the evidence lists.
COMPARED = ("state", "flags", *(f"{name}_count" for name in EVIDENCE))


def _twice(name: str, kind: pa.DataType, meaning: str, words: str = "") -> list[pa.Field]:
    return [column(f"{name}_before", kind, f"{meaning}, in the first audit", words=words),
            column(f"{name}_after", kind, f"{meaning}, in the second audit", words=words)]


#: One transaction that differs between two audits.
DIFFERENCES = pa.schema(
    [
        TRANSACTIONS.field("transaction_id"),
        TRANSACTIONS.field("producer_group"),
        TRANSACTIONS.field("topic"),
        TRANSACTIONS.field("keys"),
        TRANSACTIONS.field("half_store_time_ms"),
        column("change", pa.string(), f"{', '.join(CHANGES)}", values=CHANGES),
        column("what", pa.list_(pa.string()), f"what changed: {', '.join(COMPARED)}", values=COMPARED),
        *_twice("store", pa.string(), "store of its first witness"),
        *_twice("state", pa.string(), "state", "states"),
        *_twice("flags", pa.list_(pa.string()), "its flags", "flags"),
        *_twice("reason", pa.string(), "the reason for the state"),
        *(field for name in EVIDENCE for field in _twice(f"{name}_count", pa.int64(), f"number of its {name}")),
    ]
)
#: The columns that are kept of a row of TRANSACTIONS.
_NARROW = (
    "store", "transaction_id", "producer_group", "topic", "keys", "half_store_time_ms", "state", "flags", "reason",
)
#: The columns of TRANSACTIONS that a comparison needs.
NEEDED = pa.schema([field for field in TRANSACTIONS if field.name in (*_NARROW, *EVIDENCE)])
NARROW = pa.schema(
    [*(TRANSACTIONS.field(name) for name in _NARROW), *(pa.field(f"{name}_count", pa.int64()) for name in EVIDENCE)]
)
_IDENTITY = ("transaction_id", "producer_group", "topic")
_PARTITIONS = 64
_BATCH_ROWS = 65_536
_ORDERED_ROWS_MAX = 200_000


def differences(
    before: Iterable[pa.RecordBatch], after: Iterable[pa.RecordBatch], *, temporary_directory: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Return the rows of DIFFERENCES between two audits, given as batches with the columns of NEEDED.

    Order: of the first half copy's time, then id; for very many rows, only within parts of the transactions.
    """
    with RunFolder(directory=temporary_directory) as name:
        spool = Spool(_PARTITIONS, Path(name))
        for side, batches in (("before", before), ("after", after)):
            for number, batch in enumerate(batches):
                rows = narrowed(batch)
                hashes = identity_hashes(rows["transaction_id"])
                spool.add(side, [rows], partition_of(hashes, _PARTITIONS), f"{number}")
        yield from _in_order(_of_part(spool, number) for number in range(_PARTITIONS))


def _of_part(spool: Spool, number: int) -> pa.Table:
    before, after = (pa.Table.from_batches(spool.part(side, number), NARROW) for side in ("before", "after"))
    return different(before, after)


def _in_order(parts: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    """Return the rows of some tables in one order, unless they are too many for the memory."""
    waiting, rows_count = [DIFFERENCES.empty_table()], 0
    for part in parts:
        waiting.append(part)
        rows_count += part.num_rows
        if rows_count > _ORDERED_ROWS_MAX:
            for table in waiting:
                yield from table.to_batches(max_chunksize=_BATCH_ROWS)
            waiting, rows_count = [DIFFERENCES.empty_table()], _ORDERED_ROWS_MAX
    left = pa.concat_tables(waiting).sort_by([("half_store_time_ms", "ascending"), ("transaction_id", "ascending")])
    yield from left.to_batches(max_chunksize=_BATCH_ROWS)


def narrowed(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of NEEDED with only the compared columns: rows of NARROW."""
    counts = [pc.fill_null(pc.list_value_length(rows[name]), 0).cast(pa.int64()) for name in EVIDENCE]
    return pa.RecordBatch.from_arrays([*(rows[name] for name in _NARROW), *counts], schema=NARROW)


def different(before: pa.Table, after: pa.Table) -> pa.Table:
    """Return the rows of DIFFERENCES between two tables of NARROW with the same part of the transactions.

    Order: as `before`, then what is in `after` only.
    """
    left, right = _pairs(before, after)
    both = (left >= 0) & (right >= 0)
    differs = {name: _differs(before[name], after[name], left, right, both) for name in COMPARED}
    changed = np.logical_or.reduce(list(differs.values()))
    kept = ~both | changed
    left, right, both = left[kept], right[kept], both[kept]
    masks = [differs[name][kept] for name in COMPARED]
    what = lists_of(COMPARED, masks, int(kept.sum()), DIFFERENCES.field("what").type)
    columns = {"change": _changes(left, right), "what": what}
    for name in NARROW.names:
        sides = _taken(before[name], left), _taken(after[name], right)
        if name in _IDENTITY or name in ("keys", "half_store_time_ms"):
            columns[name] = pc.coalesce(sides[1], sides[0])
        else:
            columns[f"{name}_before"], columns[f"{name}_after"] = sides
    return pa.Table.from_arrays([columns[name] for name in DIFFERENCES.names], schema=DIFFERENCES)


def _pairs(before: pa.Table, after: pa.Table) -> tuple[Int64s, Int64s]:
    """Return the row numbers of the same transaction on both sides, -1 if a side has none.

    Two rows with one identity, which a sound audit does not contain, are matched by their order.
    """
    keys = pa.chunked_array([*_keys(before).chunks, *_keys(after).chunks], pa.string()).combine_chunks()
    codes = np.asarray(keys.dictionary_encode().indices).astype(np.int64)
    first, second = _numbered(codes[: len(before)]), _numbered(codes[len(before) :])
    order = np.lexsort((second[1], second[0]))
    sorted_second = second[0][order] << 20 | second[1][order]
    wanted = first[0] << 20 | first[1]
    places = np.searchsorted(sorted_second, wanted)
    found = np.zeros(len(wanted), np.bool_)
    inside = places < len(sorted_second)
    found[inside] = sorted_second[places[inside]] == wanted[inside]
    right = np.full(len(wanted), -1, np.int64)
    right[found] = order[places[found]]
    only_after = np.setdiff1d(np.arange(len(after)), right[found])
    left = np.concatenate([np.arange(len(wanted)), np.full(len(only_after), -1)])
    return left, np.concatenate([right, only_after])


def _keys(rows: pa.Table) -> pa.ChunkedArray:
    parts = [pc.fill_null(rows[name], "\x00") for name in _IDENTITY]
    joined = pc.binary_join_element_wise(*parts, "\x1f")
    return joined if isinstance(joined, pa.ChunkedArray) else pa.chunked_array([joined])


def _numbered(codes: Int64s) -> tuple[Int64s, Int64s]:
    """Return each code with the number of equal codes before it."""
    order = np.argsort(codes, kind="stable")
    is_first = np.ones(len(codes), np.bool_)
    is_first[1:] = np.diff(codes[order]) != 0
    starts = np.maximum.accumulate(np.where(is_first, np.arange(len(codes)), 0))
    numbers = np.empty(len(codes), np.int64)
    numbers[order] = np.arange(len(codes)) - starts
    return codes, numbers


def _differs(before: pa.ChunkedArray, after: pa.ChunkedArray, left: Int64s, right: Int64s, both: Bools) -> Bools:
    result = np.zeros(len(both), np.bool_)
    sides = _comparable(_taken(before, left[both])), _comparable(_taken(after, right[both]))
    result[both] = np.asarray(pc.not_equal(*sides))
    return result


def _comparable(values: pa.Array) -> pa.Array:
    return pc.binary_join(values, ",") if pa.types.is_list(values.type) else values


def _taken(values: pa.ChunkedArray, rows: Int64s) -> pa.Array:
    taken = values.take(pa.array(rows, mask=rows < 0))
    return pa.concat_arrays([pa.array([], values.type), *taken.chunks])


def _changes(left: Int64s, right: Int64s) -> pa.Array:
    words = np.where(left < 0, "appeared", np.where(right < 0, "vanished", "changed"))
    return pa.array(words, pa.string())


def verdict_file(place: str) -> Path | None:
    """Return the file with the result of an audit that is at a place; None for a store."""
    path = Path(place)
    return path if path.suffix.lower() in _SUFFIXES and not path.is_dir() else None


def read_verdicts(file: Path) -> Iterator[pa.RecordBatch]:
    """Return the rows of NEEDED in a file that an audit wrote with all columns of its release.

    Raises: BadText for a file that lacks columns; UnreadableFile.
    """
    try:
        yield from _of_parquet(file) if file.suffix.lower() == ".parquet" else _of_arrow(file)
    except (OSError, pa.ArrowInvalid) as error:
        cause = str(error).split("\n", 1)[0]
        raise UnreadableFile(f"{file} is not a readable result of an audit: {cause}", file=file) from error


def _of_parquet(file: Path) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as opened:
        _require_columns(opened.schema_arrow, file)
        for batch in opened.iter_batches(columns=NEEDED.names):
            yield batch.select(NEEDED.names).cast(NEEDED)


def _of_arrow(file: Path) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(str(file)) as source:
        try:
            reader = pa.ipc.open_stream(source)
        except pa.ArrowInvalid:  # the other form of the same format
            whole = pa.ipc.open_file(source)
            reader = pa.RecordBatchReader.from_batches(
                whole.schema, (whole.get_batch(number) for number in range(whole.num_record_batches))
            )
        _require_columns(reader.schema, file)
        for batch in reader:
            yield batch.select(NEEDED.names).cast(NEEDED)


def _require_columns(schema: pa.Schema, file: Path) -> None:
    lacking = [name for name in NEEDED.names if name not in schema.names]
    if lacking:
        raise BadText(
            f"{file} is not a complete result of an audit: column {lacking[0]} is missing", file=file,
            advice="write it with rmqtx audit STORE -o FILE, without --fields and --timestamps",
        )
