"""The command line with an audit on Spark that does not end by itself: `python -m tests.spark.slow_audit MARK ...`.

MARK is a file that appears when a worker is in the middle of a task.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx_cli import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Endless:
    """A task that says that it has begun, and sleeps."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            Path(self.mark).touch()
            time.sleep(600)
            yield batch


def endless_audit(spark: SparkSession, *_: Any, **__: Any) -> VerdictReading:
    """What stands in for `rmqtx.spark_tasks.jobs.audit.audit`."""
    spark.range(0, 4, 1, 4).mapInArrow(Endless(sys.argv[1]), "id long").count()
    return VerdictReading(TRANSACTIONS, [])


if __name__ == "__main__":
    import rmqtx.spark_tasks.jobs.audit

    rmqtx.spark_tasks.jobs.audit.audit = endless_audit
    sys.exit(main.status_of(sys.argv[2:]))
