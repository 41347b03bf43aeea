"""The stream of changed verdicts: the audit of `rmqtx follow`, whose changes Spark takes in batches.

The planner on the driver makes the steps; it keeps their changes, numbered, in the checkpoint of the audit until Spark
has committed them. So the offset of a query is a number of a change, and Spark can ask for the same batch again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from rmqtx.readers.model.errors import BadRequest, FileChanged, SourceError
from rmqtx.readers.store.outputs import refuse_inside
from rmqtx.spark_tasks.session.errors import marked
from rmqtx.spark_tasks.session.schemas import arrow_schema, as_spark_batch
from rmqtx.spark_tasks.source.read_options import ReadOptions, Settings, opened
from rmqtx.verdicts.follow.change_feed import ChangeFeed, FedBatch
from rmqtx.verdicts.follow.checkpoint_db import FollowDatabase
from rmqtx.verdicts.follow.follower import Follower

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: How long to wait for the planner of a query that was killed to end.
_WAIT_SECONDS = 30.0
#: Spark asks again at once if nothing is new.
_IDLE_SECONDS = 1.0


#: How far a query is, as JSON: `sequence` is the number of the last change of the `stream`; 0 of "" at the begin.
ChangeOffset = dict[str, Any]


@dataclass(frozen=True)
class FedPartition(InputPartition):
    """One task of a batch: the changes themselves, which are only on the driver."""

    batch: FedBatch


class ChangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the table verdict_changes. Only the planner's instance opens the checkpoint."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        if not options.checkpoint:
            raise BadRequest(
                "the table verdict_changes needs a file for what was read",
                advice='write .option("checkpoint", "/var/lib/rmqtx/changes.sqlite"), on a disk of the driver',
            )
        self._options = options
        self._path = options.checkpoint
        self._schema = arrow_schema(schema)
        self._feed: ChangeFeed | None = None
        self._steps_left: int | None = None
        self._idle_until = 0.0

    def initialOffset(self) -> ChangeOffset:  # noqa: N802
        """Return the begin of a new query. Spark asks for it several times."""
        return {"stream": "", "sequence": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the option `max_rows_per_batch`."""
        return ReadMaxRows(self._options.max_rows_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let the query end after the changes of one step."""
        self._steps_left = 1

    def latestOffset(self, start: ChangeOffset, limit: ReadLimit) -> ChangeOffset:  # noqa: N802
        """Return the end of the next batch; a step is made when all its changes before are given.

        Raises: FileChanged, UnreadableFile, BadRequest.
        """
        with marked():
            feed = self._of(start)
            if start["sequence"]:
                feed.require(start["sequence"])
            else:
                feed.begin()
            if start["sequence"] == feed.last and self._steps_left != 0 and time.monotonic() >= self._idle_until:
                self._step(feed)
            limited = feed.last
            if not isinstance(limit, ReadAllAvailable):
                rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_rows_per_batch
                limited = min(feed.last, start["sequence"] + rows)
            if limited == start["sequence"]:
                return start
            return {"stream": feed.id or "", "sequence": limited}

    def partitions(self, start: ChangeOffset, end: ChangeOffset) -> list[InputPartition]:
        """Return the changes of a batch. Raises: FileChanged if the checkpoint does not have them."""
        with marked():
            self._of(start)
            return [FedPartition(batch) for batch in self._of(end).between(start["sequence"], end["sequence"])]

    def commit(self, end: ChangeOffset) -> None:
        """Forget the changes that Spark will not ask for again."""
        with marked():
            self._of(end).forget(end["sequence"])

    def stop(self) -> None:
        """Close the checkpoint."""
        if self._feed is not None:
            self._feed.database.close()
            self._feed = None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the changes of one task."""
        if not isinstance(partition, FedPartition):
            return
        with marked():
            yield as_spark_batch(partition.batch.rows(), self._schema)

    def _step(self, feed: ChangeFeed) -> None:
        last, is_second = feed.last, False
        while True:
            stores = opened(self._options)
            feed.at_ms = min(store.taken_time_ms for store in stores)
            follower = Follower(feed.database, changes=feed)
            try:
                for _ in follower.step(stores, Settings(self._options)).batches:
                    pass
                break
            except SourceError:  # a broker may delete a file during the reading
                if is_second:
                    raise
                is_second = True
        if self._steps_left is not None:
            self._steps_left -= 1
        if feed.last == last:
            self._idle_until = time.monotonic() + _IDLE_SECONDS

    def _opened(self) -> ChangeFeed:
        if self._feed is None:
            stores = opened(self._options)
            refuse_inside(self._path, stores)
            self._feed = ChangeFeed(FollowDatabase(self._path, stores, wait_seconds=_WAIT_SECONDS))
        return self._feed

    def _of(self, offset: ChangeOffset) -> ChangeFeed:
        feed = self._opened()
        if offset["sequence"] and feed.id != offset["stream"]:
            raise FileChanged(
                f"{self._path} is of the stream {feed.id}, and the query of the stream {offset['stream']}: "
                "the file is another one, or another query uses it", file=self._path,
                advice="begin a new query, with another checkpoint of Spark and another file",
            )
        return feed
