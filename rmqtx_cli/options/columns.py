"""Column names as typed: a column, a column without its unit, a printed head, a part of evidence, a property."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.moments import is_time
from rmqtx_cli.options.closed_values import closed_values
from rmqtx_cli.words.near import nearest_column

Heads = Mapping[str, str]
_NO_HEADS: Heads = {}

#: Further names of columns to sort by.
ALSO_CALLED = {"deadline": "discard_at_ms"}


@dataclass(frozen=True, slots=True)
class Path:
    """The column, or part of a column, that a name refers to in a schema.

    `type`: of the values compared; `field`: the part of a struct or map; `values`: all possible values, if that is a
    closed list.
    """

    name: str
    column: str
    field: str | None
    type: pa.DataType
    is_list: bool
    is_map: bool
    values: tuple[str, ...] = ()

    @property
    def is_duration(self) -> bool:
        """Whether its values are durations in milliseconds."""
        name = self.field or self.column
        return name.endswith("_ms") and not is_time(name)

    @property
    def is_time(self) -> bool:
        """Whether its values are epoch milliseconds."""
        return is_time(self.field or self.column)


def resolve(name: str, schema: pa.Schema, heads: Heads = _NO_HEADS) -> Path:
    """Return the column, list value, evidence field or map key that a name refers to.

    `heads`: columns by their heads in a printed table.
    Raises: BadRequest, with similar names.
    """
    column, _, field = name.partition(".")
    column = _known(column, list(schema.names), f"no column {column!r}", heads)
    kind = schema.field(column).type
    values = closed_values(schema.field(column))
    if pa.types.is_map(kind):
        if not field:
            raise BadRequest(f"{column} is a map", advice=f"add one of its keys: {column}.KEYS")
        return Path(name, column, field, kind.item_type, is_list=False, is_map=True)
    if not pa.types.is_list(kind):
        if field:
            raise BadRequest(f"{column} has no part {field!r}")
        return Path(name, column, None, kind, is_list=False, is_map=False, values=values)
    inner = kind.value_type
    if not pa.types.is_struct(inner):
        if field:
            raise BadRequest(f"{column} has no part {field!r}")
        return Path(name, column, None, inner, is_list=True, is_map=False, values=values)
    names = [inner.field(number).name for number in range(inner.num_fields)]
    if not field:
        raise BadRequest(f"{column} is a list of records", advice=f"add a part: {column}.{names[1]}")
    field = _known(field, names, f"{column} has no part {field!r}")
    part = inner.field(field)
    return Path(name, column, field, part.type, is_list=True, is_map=False, values=closed_values(part))


def _known(name: str, names: list[str], problem: str, heads: Heads = _NO_HEADS) -> str:
    if name in names:
        return name
    if f"{name}_ms" in names:
        return f"{name}_ms"
    if name in heads:
        return heads[name]
    if f"{name}_count" in names:
        return f"{name}_count"
    raise BadRequest(problem, advice=nearest_column(name, names, heads))


def chosen_columns(
    fields: str | None, schema: pa.Schema, default: list[str], heads: Heads = _NO_HEADS, more: Iterable[str] = ()
) -> list[str]:
    """Return the columns of `--fields`, in its order; `all` is every column; the default without `--fields`.

    A part of evidence is written as in `--where`: half_copies.queue_offset. `more`: columns computed from others.
    Raises: BadRequest for an unknown column.
    """
    if fields is None:
        return default
    if fields.strip() == "all":
        return list(schema.names)
    words = [word.strip() for word in fields.split(",") if word.strip()]
    if not words:
        raise BadRequest("--fields is empty", advice=f"columns: {', '.join(schema.names)}")
    names = [*schema.names, *more]
    return list(dict.fromkeys(_one_column(word, names, schema, heads) for word in words))


def _one_column(word: str, names: list[str], schema: pa.Schema, heads: Heads) -> str:
    column, dot, _ = word.partition(".")
    column = _known(column, names, f"no column {column!r}", heads)
    if not dot or column not in schema.names:
        return _known(word, names, f"no column {word!r}", heads)
    path = resolve(word, schema, heads)
    return f"{path.column}.{path.field}"
