"""A Spark session that is quiet, keeps to itself and leaves nothing behind; or the one that is given."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import readers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Where `readers` and `spark_tasks` are imported from: the workers must find the same.
_PACKAGES_DIRECTORY = Path(readers.__file__).resolve().parent.parent


@contextmanager
def session(
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    *,
    temporary_directory: str | None = None,
) -> Iterator[SparkSession]:
    """A session of our own, stopped at the end."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = tempfile.mkdtemp(prefix="rmqtx-spark-", dir=temporary_directory)
    settings = {
        "spark.master": master or "local[*]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.driver.maxResultSize": "0",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": f"file:{folder}/warehouse",
        "spark.executorEnv.PYTHONPATH": str(_PACKAGES_DIRECTORY),
        **(conf or {}),
    }
    builder = SparkSession.builder.appName("rmqtx")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
