"""Column names as typed: a column, a column without its unit, a printed head, a part of evidence, a property.

In a column with a closed list of values, a mistyped value is an error instead of a condition that is never met.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.findings import KINDS
from rmqtx.readers.model.moments import is_time
from rmqtx.verdicts.model.verdict_words import ADVICE, STATES
from rmqtx_cli.words.near import did_you_mean, nearest_column

Heads = Mapping[str, str]
_NO_HEADS: Heads = {}

#: Further names of columns to sort by.
ALSO_CALLED = {"deadline": "discard_at_ms"}


@functools.cache
def value_lists() -> dict[str, tuple[str, ...]]:
    """Return the lists by the name in the metadata `words` of a column; metadata `values` contains a list itself."""
    # The rules of all causes: most command lines have no condition.
    from rmqtx.verdicts.causes import strengths
    from rmqtx.verdicts.transactions import flags, reason_codes

    return {
        "states": tuple(STATES), "flags": tuple(flags.FLAGS),
        "advice": tuple(ADVICE), "reasons": tuple(reason_codes.REASONS), "findings": tuple(KINDS),
        "causes": tuple(strengths.CAUSES), "causes_found": tuple(strengths.cause_words()),
    }


def closed_values(field: pa.Field) -> tuple[str, ...]:
    """Return the values that a column can have; empty if it can have any."""
    metadata = field.metadata or {}
    if b"words" in metadata:
        return value_lists()[metadata[b"words"].decode()]
    return tuple(metadata[b"values"].decode().split(",")) if b"values" in metadata else ()


def check_pattern(name: str, values: tuple[str, ...], pattern: str, option: str) -> None:
    """Check a regular expression against a closed list of values.

    Raises: BadRequest if it matches none of them, so that no row could meet it.
    """
    if values and not pc.any(pc.match_substring_regex(pa.array(values), pattern)).as_py():
        raise BadRequest(f"{option}: no {name} matches {pattern!r}", advice=f"values: {', '.join(values)}")


def check_value(name: str, values: tuple[str, ...], text: str, option: str) -> None:
    """Check a text against a closed list of values.

    Raises: BadRequest if it is not one of them, so that no row could have it.
    """
    if values and text not in values:
        if name == "causes" and text in value_lists()["causes"]:
            advice = f"a cause of whole producer groups: rmqtx diagnose STORE --where 'cause = {text}'"
        else:
            advice = f"for unknown values: '{name} is null'" if text == "null" else did_you_mean(text, values)
        raise BadRequest(f"{option}: {name} is never {text!r}", advice=advice)


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
