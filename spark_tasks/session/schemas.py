"""Convert Arrow schemas to Spark's: the same names and types, with each column's description as its comment.

No conversion loses data: a type that Spark does not have is refused, not widened or truncated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from rmqtx.readers.model.moments import with_timestamps

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema of a table's Arrow schema; every column may be null.

    Raises: TypeError for a type that Spark does not have.
    """
    return StructType([_spark_field(field) for field in schema])


def _spark_field(field: pa.Field) -> StructField:
    meaning = (field.metadata or {}).get(b"meaning")
    comment = {} if meaning is None else {"comment": meaning.decode()}
    return StructField(field.name, _spark_type(field.type), True, comment)


def _spark_type(kind: pa.DataType) -> DataType:
    plain: dict[pa.DataType, DataType] = {
        pa.bool_(): types.BooleanType(),
        pa.int8(): types.ByteType(),
        pa.int16(): types.ShortType(),
        pa.int32(): types.IntegerType(),
        pa.int64(): types.LongType(),
        pa.float64(): types.DoubleType(),
        pa.string(): types.StringType(),
        pa.binary(): types.BinaryType(),
        pa.timestamp("ms", "UTC"): types.TimestampType(),
        pa.date32(): types.DateType(),
    }
    if kind in plain:
        return plain[kind]
    if pa.types.is_list(kind):
        return types.ArrayType(_spark_type(kind.value_type), True)
    if pa.types.is_map(kind):
        return types.MapType(_spark_type(kind.key_type), _spark_type(kind.item_type), True)
    if pa.types.is_struct(kind):
        return types.StructType([_spark_field(kind.field(number)) for number in range(kind.num_fields)])
    raise TypeError(f"Spark has no type for {kind}")


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects from a data source with this Spark schema."""
    return to_arrow_schema(schema, timezone="UTC")


def _has_timestamps(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_timestamps(kind.field(number).type) for number in range(kind.num_fields))
    return _has_timestamps(kind.value_type) if pa.types.is_list(kind) else pa.types.is_timestamp(kind)


def as_spark_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a batch in the order of a schema of `arrow_schema`, with its names of inner fields.

    Epoch milliseconds are converted if the schema has timestamps.
    """
    has = set(batch.schema.names)
    chosen = batch.select([name if name in has else f"{name}_ms" for name in schema.names])
    if any(_has_timestamps(field.type) for field in schema):
        chosen = with_timestamps(chosen)
    return chosen if chosen.schema.equals(schema) else chosen.cast(schema)
