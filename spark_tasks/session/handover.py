"""Pass large results from tasks to the driver: as files if both use the same disk, else through Spark.

Spark's methods keep every result in the driver's JVM (`collect`, and `toLocalIterator` of 4.3, which releases none
until its end), so results that pass through the JVM are fetched in parts.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import StorageLevel

from rmqtx.readers.jobs.spool import taken_batches
from rmqtx.readers.storage.temporary import RunFolder
from rmqtx.spark_tasks.session.packages import is_local
from rmqtx.spark_tasks.session.progress import described
from rmqtx.spark_tasks.session.tasks import from_bytes, to_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

#: Bytes that the driver fetches at once through Spark.
FETCHED_BYTES_MAX = 64 << 20
#: Rows in one value: the JVM copies a value several times.
ROWS_AT_ONCE = 8_192

#: The columns of rows with results: one of `file` and `data` is set.
HANDED = pa.schema([("number", pa.int32()), ("size_bytes", pa.int64()), ("file", pa.string()), ("data", pa.binary())])
HANDED_COLUMNS = "number int, size_bytes long, file string, data binary"


@dataclass(frozen=True, slots=True)
class Handover:
    """The place for results of tasks: a directory that the driver can read, or None for Spark's rows."""

    directory: str | None

    def give(self, number: int, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of HANDED for the results of a task; `number` is the task's number."""
        if not batches:
            return
        if self.directory is not None:
            # A task that is retried writes another file; only the row of the successful attempt arrives.
            file = f"{self.directory}/{number}-{uuid.uuid4().hex}.arrow"
            with pa.OSFile(file, "wb") as sink, pa.ipc.new_file(sink, batches[0].schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            yield _row(number, sum(batch.nbytes for batch in batches), file, None)
            return
        for piece in (batch.slice(first, ROWS_AT_ONCE) for batch in batches
                      for first in range(0, batch.num_rows, ROWS_AT_ONCE)):
            data = to_bytes([piece])
            yield _row(number, len(data), None, data)

    def keeps(self, frame: DataFrame) -> DataFrame:
        """Return a frame with rows of HANDED, persisted for a query of sizes and then of rows."""
        # On disk, so that its size never takes the memory that tasks need.
        return frame.persist(StorageLevel.DISK_ONLY)

    def computed(self, frame: DataFrame, what: str) -> dict[int, int]:
        """Compute a frame that is kept, and return the sizes of its results in bytes, by number.

        `what`: a description of the computation.
        """
        sizes_bytes: dict[int, int] = {}
        with described(frame.sparkSession, what):
            rows = frame.select("number", "size_bytes").collect()
        for row in rows:
            sizes_bytes[row[0]] = sizes_bytes.get(row[0], 0) + row[1]
        return sizes_bytes

    def taken(self, frame: DataFrame, sizes_bytes: Mapping[int, int]) -> Iterator[pa.RecordBatch]:
        """Yield the results in a persisted frame, for the numbers in `sizes_bytes`. Order: of the numbers."""
        group: list[int] = []
        for number in sorted(sizes_bytes):
            if group and sum(sizes_bytes[member] for member in group) + sizes_bytes[number] > self._taken_bytes_max:
                yield from _fetched(frame, group)
                group = []
            group.append(number)
        if group:
            yield from _fetched(frame, group)

    def taken_at_once(self, frame: DataFrame) -> Iterator[pa.RecordBatch]:
        """Compute a frame whose results are small, and yield them: one job, and nothing is kept.

        Order: of the numbers.
        """
        with described(frame.sparkSession, "audit: fetch the rows"):
            rows = frame.select("number", "file", "data").collect()
        yield from _results(rows)

    @property
    def _taken_bytes_max(self) -> int:
        return FETCHED_BYTES_MAX if self.directory is None else 1 << 62


def _row(number: int, size_bytes: int, file: str | None, data: bytes | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([value], field.type) for value, field in zip((number, size_bytes, file, data), HANDED, strict=True)],
        schema=HANDED,
    )


def _fetched(frame: DataFrame, numbers: list[int]) -> Iterator[pa.RecordBatch]:
    wanted = frame.filter(frame["number"].between(numbers[0], numbers[-1]) & frame["size_bytes"].isNotNull())
    with described(frame.sparkSession, "fetch the rows"):
        rows = wanted.select("number", "file", "data").collect()
    chosen = set(numbers)
    yield from _results([row for row in rows if row["number"] in chosen])


def _results(rows: list[Row]) -> Iterator[pa.RecordBatch]:
    for row in sorted(rows, key=lambda row: int(row["number"])):
        yield from from_bytes(row["data"]) if row["file"] is None else taken_batches(Path(row["file"]))


@contextmanager
def handover(spark: SparkSession, temporary_directory: str | None = None) -> Iterator[Handover]:
    """Return the handover that a session's tasks can use; files are removed at the end."""
    if not _is_on_this_machine(spark):
        yield Handover(None)
        return
    # After an interrupt a task may still write there: its files are removed with the session's folder.
    with RunFolder("handover", temporary_directory, ignore_cleanup_errors=True) as directory:
        yield Handover(directory)


def _is_on_this_machine(spark: SparkSession) -> bool:
    """Whether tasks run on this machine, in the driver's process tree."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):  # the driver is a server on any machine
        return False
    return is_local(str(spark.conf.get("spark.master", "")))
