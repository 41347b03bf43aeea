"""Orders in which rows are listed: by columns, as tables, `--fields` and `--sort` name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from readers.model.errors import BadRequest
from readers.model.moments import is_time
from rmqtx_cli.words.near import did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

#: Words for a column that no table shows.
_ALSO_CALLED = {"deadline": "discard_at_ms"}
#: A duration that passes until something happens; what comes first is looked at first.
_UNTIL = "discard_in_ms"
_KEY = "sort key {}"


@dataclass(frozen=True, slots=True)
class SortOrder:
    """One column that rows are sorted by."""

    column: str
    is_descending: bool


def parse_orders(text: str, schema: pa.Schema, heads: Mapping[str, str]) -> list[SortOrder]:
    """The columns that `--sort` names, of a schema that holds those made of others too.

    Raises: BadRequest for a name that no column has, or a column that has no order.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise BadRequest("--sort names no column", advice=f"there are: {', '.join(schema.names)}")
    return [_order(word, schema, heads) for word in words]


def names_of(text: str | None) -> list[str]:
    """The names in a `--sort`, whichever way round they sort."""
    return [word.strip().removeprefix("-") for word in (text or "").split(",") if word.strip()]


def _order(word: str, schema: pa.Schema, heads: Mapping[str, str]) -> SortOrder:
    import pyarrow as pa

    name = word.removeprefix("-")
    known = (name, f"{name}_ms", heads.get(name, ""), _ALSO_CALLED.get(name, ""))
    column = next((one for one in known if one in schema.names), None)
    if column is None:
        raise BadRequest(f"--sort: no column {name!r}", advice=did_you_mean(name, [*schema.names, *heads]))
    kind = schema.field(column).type
    is_words = pa.types.is_list(kind) and pa.types.is_string(kind.value_type)
    if pa.types.is_nested(kind) and not is_words:
        raise BadRequest(f"--sort: {name} has no order", advice="it is a list of records: name another column")
    return SortOrder(column, word.startswith("-") != _largest_first(column))


def _largest_first(column: str) -> bool:
    """Whether one looks at the largest first: at what is old, at what there is much of."""
    is_duration = column.endswith("_ms") and not is_time(column) and column != _UNTIL
    return is_duration or column.endswith(("_count", "_bytes"))


def ordered(rows: pa.Table, orders: Sequence[SortOrder]) -> pa.Table:
    """The rows in an order; equals stay as they are, unknown values come last."""
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = []
    for order in orders:
        values = rows[order.column]
        keys.append(pc.binary_join(values, ",") if pa.types.is_list(values.type) else values)
    names = [_KEY.format(number) for number in range(len(keys))]
    directions = ["descending" if order.is_descending else "ascending" for order in orders]
    found = pc.sort_indices(pa.table(keys, names), sort_keys=list(zip(names, directions, strict=True)))
    return rows.take(found)


def oldest_first(rows: pa.Table) -> pa.Table:
    """Transactions by age; equals by id, so that two runs list them alike."""
    return rows.sort_by([("half_store_time_ms", "ascending"), ("transaction_id", "ascending")])
