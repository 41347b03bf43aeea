"""Whether each executor reads the stores, and the same files as this machine: for `rmqtx doctor`."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rmqtx.readers.model.errors import RmqtxError
from rmqtx.readers.storage.segments import open_file
from rmqtx.readers.store.store import open_store
from rmqtx.spark_tasks.session.errors import translated
from rmqtx.spark_tasks.session.tasks import cores_count
from rmqtx.spark_tasks.session.workers import HELD_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_READ_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class StoreSeen:
    """A store as one process sees it. Shape: `failure` is a message, None if the first bytes of its log were read."""

    store: str
    segments_count: int = 0
    size_bytes: int = 0
    failure: str | None = None


def store_seen(place: str) -> StoreSeen:
    """Return a store as this process sees it: its commit log is listed, and the first bytes are read."""
    try:
        segments = open_store(place).commit_log
        if segments:
            first = segments[0]
            with open_file(first.file, first.size_bytes, first.modified_ns) as file:
                file.read(0, min(_READ_BYTES, first.size_bytes))
    except (RmqtxError, OSError) as error:
        return StoreSeen(place, failure=str(error))
    return StoreSeen(place, len(segments), sum(segment.size_bytes for segment in segments))


class _Looked:
    """The task: the stores as an executor sees them, as JSON, after some seconds in which others get tasks."""

    def __init__(self, places: Sequence[str]) -> None:
        self._places = tuple(places)
        self.__name__ = "stores_seen"  # Spark shows it

    def __call__(self, _number: int) -> str:
        time.sleep(HELD_SECONDS)
        seen = [asdict(store_seen(place)) for place in self._places]
        return json.dumps({"executor": [socket.gethostname(), os.getppid()], "seen": seen})


def stores_seen(spark: SparkSession, places: Sequence[str]) -> dict[tuple[str, int], list[StoreSeen]]:
    """Return the stores as the executors see them, by executor: see `WorkerFacts.executor`. Order: as given.

    Raises: SparkUnavailable.
    """
    from pyspark.sql.functions import udf

    count = cores_count(spark)
    look = udf(_Looked(places), "string", useArrow=False)
    with translated():
        rows = spark.range(0, count, 1, count).select(look("id").alias("seen")).collect()
    found = (json.loads(row["seen"]) for row in rows)
    return {
        (one["executor"][0], one["executor"][1]): [StoreSeen(**values) for values in one["seen"]] for one in found
    }
