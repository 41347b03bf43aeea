"""Results of an audit in files: Parquet, or Arrow as a stream or a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from rmqtx.readers.model.errors import BadText, UnreadableFile
from rmqtx.verdicts.transactions.diff import NEEDED

SUFFIXES = (".parquet", ".arrow", ".feather")


def read_verdicts(file: Path) -> Iterator[pa.RecordBatch]:
    """Return the rows of NEEDED in a file that an audit wrote with all columns of its release.

    Raises: BadText for a file that lacks columns; UnreadableFile.
    """
    try:
        yield from _of_parquet(file) if file.suffix.lower() == ".parquet" else _of_arrow(file)
    except (OSError, pa.ArrowInvalid) as error:
        cause = str(error).split("\n", 1)[0]
        raise UnreadableFile(f"{file} is not a readable result of an audit: {cause}", file=file) from error


def _of_parquet(file: Path) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as opened:
        _require_columns(opened.schema_arrow, file)
        for batch in opened.iter_batches(columns=NEEDED.names):
            yield batch.select(NEEDED.names).cast(NEEDED)


def _of_arrow(file: Path) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(str(file)) as source:
        try:
            reader = pa.ipc.open_stream(source)
        except pa.ArrowInvalid:  # the other form of the same format
            whole = pa.ipc.open_file(source)
            reader = pa.RecordBatchReader.from_batches(
                whole.schema, (whole.get_batch(number) for number in range(whole.num_record_batches))
            )
        _require_columns(reader.schema, file)
        for batch in reader:
            yield batch.select(NEEDED.names).cast(NEEDED)


def _require_columns(schema: pa.Schema, file: Path) -> None:
    lacking = [name for name in NEEDED.names if name not in schema.names]
    if lacking:
        raise BadText(
            f"{file} is not a complete result of an audit: column {lacking[0]} is missing", file=file,
            advice="write it with rmqtx audit STORE -o FILE, without --fields and --timestamps",
        )
