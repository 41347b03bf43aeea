"""Arrow columns as JSON text, a column at a time, without a Python object per value.

Unknown is null. Lists are lists, maps are objects, bytes are base64. Each time in milliseconds is followed by the same
time as text: `"store_time_ms":1767323045678,"store_time":"2026-01-02T03:04:05.678Z"`, inside evidence too.
"""

from __future__ import annotations

import base64
import json
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from readers.model.moments import TIME_END_MS, TIME_FIRST_MS, is_time, timestamp_name

_PLAIN = r"^[ !#-\[\]-~]*$"


def json_rows(batch: pa.RecordBatch) -> pa.StringArray:
    """One JSON object per row of a batch."""
    if batch.num_columns == 0 or batch.num_rows == 0:
        return pa.array(["{}"] * batch.num_rows, pa.string())
    return _object(batch.schema.names, batch.columns)


def json_texts(column: pa.Array) -> pa.StringArray:
    """One JSON value per value of a column, `null` for null.

    Raises: TypeError for a type that no table has.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return json_texts(column.cast(kind.value_type))
    if pa.types.is_null(kind):
        return pa.array(["null"] * len(column), pa.string())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        texts = column.cast(pa.string())
    elif pa.types.is_timestamp(kind):
        texts = pc.binary_join_element_wise('"', timestamp_texts(column), '"', "")
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
        texts = _strings(column.cast(pa.string()))
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or kind == pa.binary_view():
        texts = pa.array([_base64(value) for value in column.to_pylist()], pa.string())
    elif pa.types.is_map(kind):
        texts = pa.array([_map(value) for value in column.to_pylist()], pa.string())
    elif pa.types.is_list(kind):
        texts = _lists(column)
    elif pa.types.is_struct(kind):
        names = [kind.field(number).name for number in range(kind.num_fields)]
        texts = pc.if_else(column.is_valid(), _object(names, column.flatten()), _text(None))
    elif pa.types.is_floating(kind):
        texts = pa.array([None if v is None else json.dumps(v) for v in column.to_pylist()], pa.string())
    else:
        raise TypeError(f"no JSON form for {kind}")
    return pc.fill_null(texts, _text("null"))


def time_texts(column: pa.Array) -> pa.StringArray:
    """Epoch milliseconds as ISO 8601 in UTC; null where unknown or outside the calendar."""
    reachable = pc.and_(pc.greater_equal(column, _number(TIME_FIRST_MS)), pc.less(column, _number(TIME_END_MS)))
    return timestamp_texts(pc.if_else(reachable, column, _number(None)).cast(pa.timestamp("ms")))


def timestamp_texts(column: pa.Array) -> pa.StringArray:
    """Timestamps in UTC as ISO 8601."""
    return pc.strftime(column, format="%Y-%m-%dT%H:%M:%SZ")


def quoted(text: str) -> str:
    """A JSON string in which everything that is not printable is escaped; other letters stay readable."""
    plain = json.dumps(text, ensure_ascii=False)
    return plain if plain.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in plain)


def _object(names: list[str], columns: list[pa.Array]) -> pa.StringArray:
    parts: list[pa.Array | pa.Scalar] = []
    for name, column in zip(names, columns, strict=True):
        parts += [_text(("," if parts else "{") + quoted(name) + ":"), json_texts(column)]
        if is_time(name) and pa.types.is_integer(column.type):
            twin = pc.binary_join_element_wise(_text('"'), time_texts(column), _text('"'), _text(""))
            parts += [_text("," + quoted(timestamp_name(name)) + ":"), pc.fill_null(twin, _text("null"))]
    return pc.binary_join_element_wise(*parts, _text("}"), _text(""))


def _strings(column: pa.Array) -> pa.Array:
    if len(column) == 0:
        return column
    plain = pc.match_substring_regex(column, _PLAIN)
    wrapped = pc.binary_join_element_wise(_text('"'), column, _text('"'), _text(""))
    if pc.all(plain, min_count=0).as_py():  # nulls do not count
        return wrapped
    plain = pc.fill_null(plain, True)
    strange = pc.invert(plain)
    return pc.replace_with_mask(wrapped, strange, pa.array([quoted(v) for v in column.filter(strange).to_pylist()]))


def _lists(column: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int64())
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
    values = json_texts(pc.list_flatten(column))
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets.cast(pa.int32()), values), _text(","))
    texts = pc.binary_join_element_wise(_text("["), joined, _text("]"), _text(""))
    return pc.if_else(column.is_valid(), texts, _text(None))


@cache
def _text(text: str | None) -> pa.Scalar:
    """A constant; making one costs more than joining it a thousand times."""
    return pa.scalar(text, pa.string())


@cache
def _number(number: int | None) -> pa.Scalar:
    return pa.scalar(number, pa.int64())


def _base64(value: bytes | None) -> str | None:
    return None if value is None else f'"{base64.b64encode(value).decode("ascii")}"'


def _map(pairs: list[tuple[str, str]] | None) -> str | None:
    if pairs is None:
        return None
    return "{" + ",".join(f"{quoted(key)}:{'null' if v is None else quoted(v)}" for key, v in pairs) + "}"
