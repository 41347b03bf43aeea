"""Times as numbers: epoch milliseconds, and the names of the columns that hold them.

A column holds points in time if its name ends in `time_ms` or `_at_ms`; other milliseconds are durations.

For SQL functions, time columns are converted to timestamps.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_ENDINGS = ("time_ms", "_at_ms")
HOUR_MS = 3_600_000
#: Times with a year of four digits. Units: milliseconds.
TIME_FIRST_MS, TIME_END_MS = -62_135_596_800_000, 253_402_300_800_000
#: The year 2200: no broker wrote a later time. Units: milliseconds.
BROKER_TIME_MAX_MS = 7_258_118_400_000


def is_time(name: str) -> bool:
    """Whether a column holds points in time (epoch milliseconds) rather than a duration or a count."""
    return name.endswith(_ENDINGS)


def timestamp_name(name: str) -> str:
    """Return the name of a time column as timestamps: without its unit."""
    return name.removesuffix("_ms")


def timestamp_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with time columns as TIMESTAMP(milliseconds, UTC), named without `_ms`; in lists too."""
    return pa.schema([_field(field) for field in schema], schema.metadata)


def with_timestamps(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with the columns of `timestamp_schema`. A time outside the calendar is null."""
    schema = timestamp_schema(batch.schema)
    arrays = [_array(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _field(field: pa.Field) -> pa.Field:
    if is_time(field.name) and pa.types.is_integer(field.type):
        return field.with_name(timestamp_name(field.name)).with_type(pa.timestamp("ms", "UTC"))
    return field.with_type(_type(field.type))


def _type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_field(kind.field(number)) for number in range(kind.num_fields)])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_type(kind.value_type)))
    return kind


def _array(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values converted to a type that `_type` or `_field` returned."""
    if values.type.equals(kind):
        return values
    mask = values.is_null() if values.null_count else None
    if pa.types.is_list(kind):
        lengths = pc.fill_null(pc.list_value_length(values), 0)
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(pc.cast(lengths, pa.int32()))])
        return pa.ListArray.from_arrays(offsets, _array(values.flatten(), kind.value_type), kind, mask=mask)
    if pa.types.is_struct(kind):
        parts = [_array(part, kind.field(number).type) for number, part in enumerate(values.flatten())]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    reaches = pc.and_(pc.greater_equal(values, TIME_FIRST_MS), pc.less(values, TIME_END_MS))
    return pc.if_else(reaches, values, pa.scalar(None, values.type)).cast(pa.int64()).cast(kind)
