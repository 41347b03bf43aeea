"""Columns that are derived from others: ages, the place of the newest copy, one part of an evidence list.

Tables for people show them; `--where`, `--fields` and `--fail-on` may name them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.tables import column


@dataclass(frozen=True, slots=True)
class Derived:
    """A column derived from another. Units: as its name; `values`: function of the source values and the time now."""

    field: pa.Field
    source: str
    values: Callable[[pa.Array, int], pa.Array]


def derived_columns(schema: pa.Schema) -> dict[str, Derived]:
    """The columns that can be derived from a table's columns, by name."""
    found = []
    if "half_copies" in schema.names and "half_store_time_ms" in schema.names:
        age = column("age_ms", pa.int64(), "time since the first half copy was stored, until now or --at")
        found = [
            Derived(age, "half_store_time_ms", lambda values, now_ms: _passed(values, now_ms)),
            *(
                Derived(column(name, pa.int64(), f"{part} of the newest half copy"), "half_copies", _newest(part))
                for name, part in (("half", "queue_offset"), ("log_offset", "commit_log_offset"))
            ),
        ]
    if "discard_at_ms" in schema.names:
        left = column("discard_in_ms", pa.int64(), "time until the broker discards it; negative after that")
        found.append(Derived(left, "discard_at_ms", lambda values, now_ms: _left(values, now_ms)))
    return {one.field.name: one for one in found if one.field.name not in schema.names}


def part_of(schema: pa.Schema, name: str) -> Derived | None:
    """One part of each record of an evidence list, or one key of a map, as a column; None for other names.

    `name`: `half_copies.queue_offset`, `properties.KEYS`.
    """
    source, _, part = name.partition(".")
    kind = schema.field(source).type
    if pa.types.is_map(kind):
        one = pa.field(name, kind.item_type)
        return Derived(one, source, lambda values, _: pc.map_lookup(values, part, "first"))
    if not (pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)):
        return None

    def parts(values: pa.Array, _: int) -> pa.Array:
        flat = pc.struct_field(values.flatten(), part)
        lengths = pc.fill_null(pc.list_value_length(values), 0)
        ends = pc.cumulative_sum(pc.cast(lengths, pa.int32()))
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
        return pa.ListArray.from_arrays(offsets, flat, mask=values.is_null() if values.null_count else None)

    return Derived(pa.field(name, pa.list_(kind.value_type.field(part).type)), source, parts)


def with_derived(batch: pa.RecordBatch, derived: Iterable[Derived], now_ms: int) -> pa.RecordBatch:
    """The rows with derived columns added."""
    added = list(derived)
    if not added:
        return batch
    arrays = [*batch.columns, *(one.values(batch.column(one.source), now_ms) for one in added)]
    fields = [*batch.schema, *(one.field for one in added)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, batch.schema.metadata))


def _passed(values: pa.Array, now_ms: int) -> pa.Array:
    return pc.subtract(now_ms, values)


def _left(values: pa.Array, now_ms: int) -> pa.Array:
    return pc.subtract(values, now_ms)


def _newest(part: str) -> Callable[[pa.Array, int], pa.Array]:
    def values(copies: pa.Array, _: int) -> pa.Array:
        return pa.array([rows[-1][part] if rows else None for rows in copies.to_pylist()], pa.int64())

    return values
