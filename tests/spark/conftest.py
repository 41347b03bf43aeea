"""One Spark session for all tests of this folder: its start costs more than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from rmqtx.spark_tasks.session.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Few partitions: each costs a Python worker a start. A JVM that collects in one thread and does not verify the classes
#: of Spark again needs a sixth less of processor time for its first queries (JDK 17).
CONF = {
    "spark.sql.shuffle.partitions": "3", "spark.default.parallelism": "2", "spark.driver.memory": "1g",
    "spark.driver.defaultJavaOptions":
        "-XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two cores."""
    directory = str(tmp_path_factory.mktemp("spark"))
    with session("local[2]", conf=CONF, temporary_directory=directory) as given:
        yield given
