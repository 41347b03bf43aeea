"""How tables are written as Parquet: compression, dictionaries, encodings and statistics, chosen by the first rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

#: Rows that show whether the values of a column repeat, and the least number of rows per value for a dictionary.
_SAMPLE_ROWS, _ROWS_PER_VALUE = 4_096, 4


def parquet_options(first: pa.Table) -> dict[str, object]:
    """Return arguments of `pyarrow.parquet.ParquetWriter` for rows like the first ones.

    Columns whose values repeat have dictionaries; for the others they would cost time and space. Other integers are
    stored as differences. Parts of lists have no statistics: no reader selects by them, and they cost a tenth of the
    time.
    """
    sample = first.slice(0, _SAMPLE_ROWS).combine_chunks()
    leaves = [
        leaf for name in sample.schema.names
        for leaf in _leaves(name, pa.concat_arrays([pa.array([], sample[name].type), *sample[name].chunks]))
    ]
    repeating = [path for path, values in leaves if len(pc.unique(values)) * _ROWS_PER_VALUE <= max(len(values), 1)]
    return {
        "compression": "zstd",
        "use_dictionary": repeating,
        "column_encoding": {
            path: "DELTA_BINARY_PACKED" for path, values in leaves
            if path not in repeating and pa.types.is_integer(values.type) and values.type.bit_width >= 32
        },
        "write_statistics": [path for path, _ in leaves if "." not in path],
    }


def _leaves(path: str, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield the Parquet columns of a column with their values."""
    kind = values.type
    if pa.types.is_map(kind):
        for part, inside in (("key", values.keys), ("value", values.items)):
            yield from _leaves(f"{path}.key_value.{part}", inside)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", pc.list_flatten(values))
    elif pa.types.is_struct(kind):
        for number, part in enumerate(values.flatten()):
            yield from _leaves(f"{path}.{kind.field(number).name}", part)
    else:
        yield path, values
