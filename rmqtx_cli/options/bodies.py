"""Bodies of records as text: the table of records with a text column `body`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def text_schema() -> pa.Schema:
    """Return the schema of RECORDS with bodies as text."""
    import pyarrow as pa

    from rmqtx.readers.model.tables import RECORDS

    body = RECORDS.field("body")
    return RECORDS.set(RECORDS.get_field_index("body"), pa.field("body", pa.string(), metadata=body.metadata))


def with_text_bodies(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with its bodies as text; bytes that are not UTF-8 become backslash escapes."""
    import pyarrow as pa

    values = [None if v is None else v.decode("utf-8", "backslashreplace") for v in batch["body"].to_pylist()]
    at = batch.schema.get_field_index("body")
    return pa.RecordBatch.from_arrays(
        [pa.array(values, pa.string()) if n == at else column for n, column in enumerate(batch.columns)],
        schema=text_schema(),
    )
