"""The session: quiet, local, and gone without a trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _packages(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import readers.splits
    import spark_tasks.session

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"file": [readers.splits.__file__, spark_tasks.session.__file__]})


def test_workers_import_the_packages_of_this_process(spark: SparkSession) -> None:
    import readers.splits
    import spark_tasks.session

    rows = spark.range(0, 4, 1, 2).mapInArrow(_packages, "file string").distinct().collect()
    assert {row.file for row in rows} == {readers.splits.__file__, spark_tasks.session.__file__}
