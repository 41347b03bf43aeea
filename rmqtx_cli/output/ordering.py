"""Sort orders of rows, by columns that `--sort` names as tables or `--fields` do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import rows_in_order
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.moments import is_time
from rmqtx_cli.options.columns import ALSO_CALLED
from rmqtx_cli.words.near import nearest_column

#: A duration until an event: the smallest first.
_UNTIL = "discard_in_ms"
_KEY = "sort key {}"


@dataclass(frozen=True, slots=True)
class SortOrder:
    """One column that rows are sorted by."""

    column: str
    is_descending: bool


def parse_orders(text: str, schema: pa.Schema, heads: Mapping[str, str]) -> list[SortOrder]:
    """The sort orders that `--sort` names. `schema`: with derived columns.

    Raises: BadRequest for an unknown column, or one that cannot be sorted by.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise BadRequest("--sort names no column", advice=f"there are: {', '.join(schema.names)}")
    return [_order(word, schema, heads) for word in words]


def names_of(text: str | None) -> list[str]:
    """The column names in a `--sort`, without their directions."""
    return [word.strip().removeprefix("-") for word in (text or "").split(",") if word.strip()]


def _order(word: str, schema: pa.Schema, heads: Mapping[str, str]) -> SortOrder:
    name = word.removeprefix("-")
    known = (name, f"{name}_ms", heads.get(name, ""), ALSO_CALLED.get(name, ""))
    column = next((one for one in known if one in schema.names), None)
    if column is None:
        raise BadRequest(f"--sort: no column {name!r}", advice=nearest_column(name, schema.names, heads))
    kind = schema.field(column).type
    is_words = pa.types.is_list(kind) and pa.types.is_string(kind.value_type)
    if pa.types.is_nested(kind) and not is_words:
        raise BadRequest(f"--sort: {name} is a list of records and cannot be sorted by", advice="name another column")
    return SortOrder(column, word.startswith("-") != _largest_first(column))


def _largest_first(column: str) -> bool:
    """Whether the largest value is listed first: ages, counts, sizes."""
    is_duration = column.endswith("_ms") and not is_time(column) and column != _UNTIL
    return is_duration or column.endswith(("_count", "_bytes"))


def ordered(rows: pa.Table, orders: Sequence[SortOrder]) -> pa.Table:
    """The rows, sorted; equal rows keep their order, null comes last."""
    keys = []
    for order in orders:
        values = rows[order.column]
        keys.append(pc.binary_join(values, ",") if pa.types.is_list(values.type) else values)
    names = [_KEY.format(number) for number in range(len(keys))]
    directions = ["descending" if order.is_descending else "ascending" for order in orders]
    found = pc.sort_indices(pa.table(keys, names), sort_keys=list(zip(names, directions, strict=True)))
    return rows.take(found)


def oldest_first(rows: pa.Table) -> pa.Table:
    """Transactions, oldest first; those of equal age by id, so that each run lists them in the same order."""
    return rows_in_order(rows, ["half_store_time_ms", "transaction_id"])
