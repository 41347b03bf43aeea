"""The Spark session: an existing one, one of Spark Connect, or one that rmqtx starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rmqtx.readers.model.own_process import allow_pandas
from rmqtx.readers.storage.temporary import temporary_files_in
from rmqtx.spark_tasks.session.errors import SparkUnavailable
from rmqtx.spark_tasks.session.packages import send_packages
from rmqtx.spark_tasks.session.workers import check_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def session(
    master: str | None = None, remote: str | None = None, conf: Mapping[str, str] | None = None, *,
    temporary_directory: str | None = None, is_checked: bool = True,
) -> Iterator[SparkSession]:
    """Open a session for the block. `is_checked`: test first that its workers can run tasks.

    Under spark-submit, or if this process has a session, it is used, without a change to its settings, and not stopped.
    The packages of rmqtx are sent to the workers of a session that is not local.
    With `remote`, or SPARK_REMOTE and no master, a session of a Spark Connect server. Else rmqtx starts a driver on
    `master`, or on all cores of this machine.
    Raises: SparkUnavailable, with what is missing, or what differs on the workers.
    """
    with _opened(master, remote, conf or {}, temporary_directory) as spark:
        if is_checked:
            check_workers(spark)
        yield spark


@contextmanager
def _opened(
    master: str | None, remote: str | None, conf: Mapping[str, str], temporary_directory: str | None
) -> Iterator[SparkSession]:
    if find_spec("pyspark") is None:
        raise SparkUnavailable("pyspark is not installed", advice="pip install 'rmqtx[spark]'")
    allow_pandas()
    remote = remote or (None if master else os.environ.get("SPARK_REMOTE"))
    given = given_session()
    if given is not None:
        send_packages(given)
        with temporary_files_in(temporary_directory):
            yield given
    elif remote:
        from rmqtx.spark_tasks.session.connect import remote_session

        with temporary_files_in(temporary_directory), remote_session(remote, conf) as spark:
            yield spark
    else:
        from rmqtx.spark_tasks.session.driver import own_session  # PySpark

        with own_session(master or "local[*]", conf, temporary_directory) as spark:
            yield spark


def is_submitted() -> bool:
    """Whether spark-submit runs this process: then the environment has the port of its JVM."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def given_session() -> SparkSession | None:
    """Return the session from spark-submit or a notebook in this process; None if there is none."""
    if not is_submitted() and "pyspark" not in sys.modules:
        return None
    import pyspark.sql

    if is_submitted() or pyspark.SparkContext._active_spark_context is not None:
        return pyspark.sql.SparkSession.builder.getOrCreate()
    return None
