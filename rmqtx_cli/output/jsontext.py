"""Arrow columns as JSON text, a column at a time, without a Python object per value; the rows in UTF-8.

One object per line, or one list of objects.

Unknown is null. Lists are lists, maps are objects, bytes are base64. Each time in milliseconds is followed by the same
time as text: `"store_time_ms":1767323045678,"store_time":"2026-01-02T03:04:05.678Z"`, inside evidence too.
"""

from __future__ import annotations

import base64
import json
import sys
from functools import cache
from typing import IO, TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.moments import TIME_END_MS, TIME_FIRST_MS, is_time, timestamp_name
from rmqtx.verdicts.audit.provenance import METADATA_KEY
from rmqtx_cli.output.streams import pieces

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx_cli.output.views import View


#: Parts of one text per row: a constant, or a text for each row.
_Parts = list[pa.Array | str]

_PLAIN = r"^[ !#-\[\]-~]*$"
_PLAIN_FIRST, _PLAIN_LAST = ord(" "), ord("~")
#: Characters of a date in ISO 8601.
_DATE_CHARACTERS = len("2026-01-02")


def json_rows(batch: pa.RecordBatch, end: str = "") -> pa.StringArray:
    """One JSON object per row of a batch, each followed by `end`."""
    if batch.num_columns == 0 or batch.num_rows == 0:
        return pa.array(["{}" + end] * batch.num_rows, pa.string())
    return _object(batch.schema.names, batch.columns, end)


def text_bytes(texts: pa.StringArray) -> pa.Buffer:
    """All texts one after another, without a copy."""
    begin, end = (int.from_bytes(bytes(texts.buffers()[1][place : place + 4]), sys.byteorder)
                  for place in (4 * texts.offset, 4 * (texts.offset + len(texts))))
    return texts.buffers()[2].slice(begin, end - begin)


def json_texts(column: pa.Array) -> pa.StringArray:
    """One JSON value per value of a column, `null` for null. Raises: TypeError for a type that no table has."""
    return _joined(_value(column), len(column))


def _value(column: pa.Array) -> _Parts:
    """The JSON values of a column as parts that must be joined.

    Each part of a row costs as much as a short text, so what is the same in all rows is a constant.
    Raises: TypeError for a type that no table has.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _value(column.cast(kind.value_type))
    if column.null_count == len(column):
        return ["null"]
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        texts = column.cast(pa.string())
    elif pa.types.is_timestamp(kind):
        return _in_marks('"', timestamp_texts(column), '"')
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
        return _strings(column.cast(pa.string()))
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or kind == pa.binary_view():
        texts = pa.array([_base64(value) for value in column.to_pylist()], pa.string())
    elif pa.types.is_map(kind):
        texts = pa.array([_map(value) for value in column.to_pylist()], pa.string())
    elif pa.types.is_list(kind):
        return _lists(column)
    elif pa.types.is_struct(kind):
        names = [kind.field(number).name for number in range(kind.num_fields)]
        texts = _object(names, column.flatten())
        if column.null_count:
            texts = pc.if_else(column.is_valid(), texts, _text(None))
    elif pa.types.is_floating(kind):
        texts = pa.array([None if v is None else json.dumps(v) for v in column.to_pylist()], pa.string())
    else:
        raise TypeError(f"no JSON form for {kind}")
    return [_known(texts)]


def time_texts(column: pa.Array) -> pa.StringArray:
    """Epoch milliseconds as ISO 8601 in UTC; null where unknown or outside the calendar."""
    reachable = pc.and_(pc.greater_equal(column, _number(TIME_FIRST_MS)), pc.less(column, _number(TIME_END_MS)))
    return timestamp_texts(pc.if_else(reachable, column, _number(None)).cast(pa.timestamp("ms")))


def timestamp_texts(column: pa.Array) -> pa.StringArray:
    """Timestamps in UTC as ISO 8601."""
    # A cast writes a blank where ISO 8601 has a T; strftime takes thirty times as long.
    plain = column.cast(pa.timestamp(column.type.unit)).cast(pa.string())
    return pc.binary_join_element_wise(pc.binary_replace_slice(plain, _DATE_CHARACTERS, _DATE_CHARACTERS + 1, "T"),
                                       _text("Z"), _text(""))


def quoted(text: str) -> str:
    """A JSON string in which everything that is not printable is escaped; other letters stay readable."""
    plain = json.dumps(text, ensure_ascii=False)
    return plain if plain.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in plain)


def _object(names: list[str], columns: list[pa.Array], end: str = "") -> pa.StringArray:
    parts: _Parts = []
    for name, column in zip(names, columns, strict=True):
        parts += [("," if parts else "{") + quoted(name) + ":", *_value(column)]
        if is_time(name) and pa.types.is_integer(column.type):
            parts += ["," + quoted(timestamp_name(name)) + ":", *_in_marks('"', time_texts(column), '"')]
    return _joined([*parts, "}" + end], len(columns[0]))


def _joined(parts: _Parts, count: int) -> pa.StringArray:
    """The parts of each row as one text; constants between two columns are joined once."""
    merged: _Parts = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    if len(merged) == 1:
        return merged[0] if not isinstance(merged[0], str) else pa.array([merged[0]] * count, pa.string())
    return pc.binary_join_element_wise(*(_text(one) if isinstance(one, str) else one for one in merged), _text(""))


def _in_marks(before: str, texts: pa.Array, after: str) -> _Parts:
    """Texts between two marks, `null` for null."""
    if not texts.null_count:
        return [before, texts, after]
    if texts.null_count == len(texts):
        return ["null"]
    return [_known(pc.binary_join_element_wise(_text(before), texts, _text(after), _text("")))]


def _known(texts: pa.Array) -> pa.Array:
    return pc.fill_null(texts, _text("null")) if texts.null_count else texts


def _strings(column: pa.Array) -> _Parts:
    if _are_all_plain(column):
        return _in_marks('"', column, '"')
    plain = pc.fill_null(pc.match_substring_regex(column, _PLAIN), True)
    strange = pc.invert(plain)
    wrapped = pc.binary_join_element_wise(_text('"'), column, _text('"'), _text(""))
    return [_known(
        pc.replace_with_mask(wrapped, strange, pa.array([quoted(v) for v in column.filter(strange).to_pylist()],
                                                        pa.string()))
    )]


def _are_all_plain(column: pa.Array) -> bool:
    """Whether no text needs an escape; of texts behind nulls this is not known."""
    data = np.frombuffer(text_bytes(column) if column.buffers()[2] is not None else b"", np.uint8)
    return not len(data) or not (
        data.min() < _PLAIN_FIRST or data.max() > _PLAIN_LAST or (data == ord('"')).any() or (data == ord("\\")).any()
    )


def _lists(column: pa.Array) -> _Parts:
    values = pc.list_flatten(column)
    if not len(values) and not column.null_count:
        return ["[]"]
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(np.asarray(pc.fill_null(pc.list_value_length(column), 0)), out=offsets[1:])
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), json_texts(values)), _text(","))
    return _in_marks("[", pc.if_else(column.is_valid(), joined, _text(None)) if column.null_count else joined, "]")


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


#: Between two elements of a list.
_BETWEEN = b",\n"


class JsonLinesPort:
    """One object per line; before them the provenance, if the schema contains it."""

    def __init__(self, stream: IO[bytes], schema: pa.Schema, _view: View) -> None:
        self._stream = stream
        meta = (schema.metadata or {}).get(METADATA_KEY)
        if meta is not None:
            self._stream.write(b'{"meta":' + meta + b"}\n")

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows, each on its own line."""
        for part in pieces(batch):
            self._stream.write(text_bytes(json_rows(part, "\n")))

    def flush(self) -> None:
        """Flush the rows."""
        self._stream.flush()

    def finish(self) -> None:
        """Nothing to write at the end."""


class JsonPort:
    """One list of objects, one on each line; without rows an empty list."""

    def __init__(self, stream: IO[bytes], _schema: pa.Schema, _view: View) -> None:
        self._stream = stream
        self._separator = b"["

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows as more elements of the list."""
        for part in pieces(batch):
            rows = text_bytes(json_rows(part, _BETWEEN.decode()))
            self._stream.write(self._separator)
            self._stream.write(rows.slice(0, rows.size - len(_BETWEEN)))
            self._separator = _BETWEEN

    def finish(self) -> None:
        """Close the list."""
        self._stream.write(b"]\n" if self._separator != b"[" else b"[]\n")
