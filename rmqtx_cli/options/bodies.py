"""Bodies of records as text: as they are, in a text column `body`, or by a filter of the user, in `body_decoded`."""

from __future__ import annotations

import shlex

import pyarrow as pa

from rmqtx.readers.jobs.body_decoder import DECODED_FIELD, BodyDecoder
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.tables import RECORDS


def decoder_words(command: str) -> list[str]:
    """Return the words of a filter's command line; it is run without a shell. Raises: BadRequest."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BadRequest(f"--body-decoder {command!r} cannot be split into words: {error}") from error
    if not words:
        raise BadRequest("--body-decoder has no command")
    return words


def decoded_bodies(
    batch: pa.RecordBatch, decoder: BodyDecoder, *, is_text: bool, with_body: bool
) -> pa.RecordBatch:
    """Return the batch with the filter's texts as a further column.

    `with_body`: keep the bodies, as text if `is_text`.
    """
    texts = pa.array(decoder.decoded(batch["body"].to_pylist()), pa.string())
    if is_text:
        batch = with_text_bodies(batch)
    elif not with_body:
        place = batch.schema.get_field_index("body")
        batch = batch.set_column(place, batch.schema.field(place), pa.nulls(batch.num_rows, pa.binary()))
    return batch.append_column(DECODED_FIELD, texts)


def text_schema() -> pa.Schema:
    """Return the schema of RECORDS with bodies as text."""
    body = RECORDS.field("body")
    return RECORDS.set(RECORDS.get_field_index("body"), pa.field("body", pa.string(), metadata=body.metadata))


def with_text_bodies(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with its bodies as text; bytes that are not UTF-8 become backslash escapes."""
    values = [None if v is None else v.decode("utf-8", "backslashreplace") for v in batch["body"].to_pylist()]
    at = batch.schema.get_field_index("body")
    return pa.RecordBatch.from_arrays(
        [pa.array(values, pa.string()) if n == at else column for n, column in enumerate(batch.columns)],
        schema=text_schema(),
    )
