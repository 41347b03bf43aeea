"""Exports verdicts as files by topic and day. Verdicts change as the log grows, so each run replaces the last export.

The new files are complete before the old ones are removed, and get their final names after that. A reader between these
two steps sees fewer rows, but none twice. After a kill between them the next run removes the new files and writes all
rows again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from rmqtx.readers.model.errors import UnwritableFile
from rmqtx.readers.model.tables import ALL_TABLES
from rmqtx.verdicts.audit.provenance import with_provenance
from rmqtx.verdicts.export.export import EXPORTED
from rmqtx.verdicts.export.export_manifest import Range, replace_manifests
from rmqtx.verdicts.export.partition_files import FileForm, PartitionFiles, WrittenFile
from rmqtx.verdicts.export.partitions import PARTITIONINGS


def export_snapshot(
    batches: Iterable[pa.RecordBatch],
    table: str,
    columns: tuple[str, ...],
    directory: Path,
    form: FileForm,
    made_from: dict[str, Any],
) -> Iterator[pa.RecordBatch]:
    """Write the rows of a table, then replace the content of the directory; return rows of EXPORTED.

    `made_from`: the provenance in each file.
    Raises: UnwritableFile; errors of reading the batches. The directory is then unchanged.
    """
    schema = with_provenance(pa.schema([ALL_TABLES[table].field(name) for name in columns]), made_from)
    files = PartitionFiles(directory, f"{made_from['made_time_ms']}", form, schema, PARTITIONINGS[table])
    try:
        for batch in batches:
            files.write(batch)
        written = files.close()
    except BaseException:
        files.abort()
        raise
    listed = tuple({"name": file.name, "rows_count": file.rows_count} for file in written)
    rows_count = sum(file.rows_count for file in written)
    done = Range("snapshot", 0, 0, 0, None, rows_count, 0, "", listed)
    try:
        replace_manifests(directory, done, written)
    except OSError as error:
        raise UnwritableFile(f"cannot write into {directory}: {error.strerror}", file=directory) from error
    if written:
        yield pa.RecordBatch.from_pylist([_row(table, file) for file in written], schema=EXPORTED)


def _row(table: str, file: WrittenFile) -> dict[str, Any]:
    return {
        "table": table, "topic": file.topic, "day": file.day, "rows_count": file.rows_count,
        "size_bytes": file.size_bytes, "file": file.name,
    }  # fmt: skip
