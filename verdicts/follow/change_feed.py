"""Changes of verdicts for a stream, kept in the checkpoint until the stream has them.

A step records its changes, numbered, in the database transaction that records its verdicts. The stream reads them by
their numbers, repeatedly if it was killed, until it has committed them: so a kill of either side loses and repeats
nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.errors import BadRequest, FileChanged
from rmqtx.readers.model.tables import CHANGE_DETAILS, CHANGE_GONE, CHANGE_NEW, CHANGE_STATE, VERDICT_CHANGES
from rmqtx.verdicts.follow.change_log import Verdict, changed_rows, packed, unpacked, visible
from rmqtx.verdicts.follow.checkpoint_db import FEED_TABLE, FollowDatabase


@dataclass(frozen=True, slots=True)
class FedBatch:
    """Some changes in a row, to be sent to where they are read; `rows` gives them.

    Shape: `first`: the number of the first change in `data`; `begin` and `end`: the rows of `data` that belong to it.
    """

    first: int
    at_ms: int
    data: bytes
    begin: int
    end: int

    def rows(self) -> pa.RecordBatch:
        """Return the changes (VERDICT_CHANGES)."""
        changes = unpacked(self.data).slice(self.begin, self.end - self.begin)
        count, first = changes.num_rows, self.first + self.begin
        added = {
            "sequence": pa.array(np.arange(first, first + count)),
            "changed_at_ms": pa.array(np.full(count, self.at_ms)),
            "change": pc.case_when(
                pc.make_struct(
                    changes["is_gone"], pc.is_null(changes["before_state"]),
                    pc.not_equal(changes["state"], changes["before_state"]),
                ),
                CHANGE_GONE, CHANGE_NEW, CHANGE_STATE, CHANGE_DETAILS,
            ),
            "state_before": changes["before_state"],
        }
        columns = [added[field.name] if field.name in added else changes[field.name] for field in VERDICT_CHANGES]
        return pa.table(columns, schema=VERDICT_CHANGES).combine_chunks().to_batches()[0]


class ChangeFeed:
    """The changes of a stream in an open checkpoint. A new stream begins with all present verdicts as new ones.

    `at_ms`: the time of the step whose changes are added.
    """

    def __init__(self, database: FollowDatabase) -> None:
        self.database = database
        self.at_ms = 0
        # The numbers of changes that were delivered must not be given again after a power failure.
        database.connection.execute("PRAGMA synchronous = FULL")

    @property
    def id(self) -> str | None:
        """The name of the stream; None before the first one."""
        return self.database.meta("feed_id")

    @property
    def last(self) -> int:
        """The number of the last recorded change, 0 if there was none."""
        return int(self.database.meta("feed_last") or 0)

    def begin(self) -> None:
        """Begin a new stream in place of one that has forgotten changes; all transactions are judged, and each is new.

        A stream that has forgotten nothing stays as it is.
        """
        if self.id is not None and self.database.meta("feed_forgotten") is None:
            return
        run = self.database.connection.execute
        with self.database.transaction():
            run(FEED_TABLE.replace("TABLE", "TABLE IF NOT EXISTS", 1))
            run("DELETE FROM feed")
            self.database.mark_all_unjudged()
            run("DELETE FROM verdicts")
            self.database.set_meta("feed_id", uuid.uuid4().hex)
            self.database.set_meta("feed_last", "0")
            self.database.set_meta("feed_forgotten", None)

    def add(self, verdicts: pa.Table | None, now: Sequence[Verdict], before: Mapping[Verdict, int]) -> None:
        """Record the changes of some judged transactions that `rmqtx follow` would print, and those that are gone."""
        known = {visible(row) for row in before}
        rows = [number for number, row in enumerate(now) if visible(row) not in known]
        last = self.last
        for changes in changed_rows(self.database, verdicts, now, before, rows):
            for count, data in packed(changes):
                self.database.connection.execute(
                    "INSERT INTO feed VALUES (?, ?, ?, ?)", (last + 1, count, self.at_ms, data)
                )
                last += count
        self.database.set_meta("feed_last", str(last))

    def between(self, start: int, end: int) -> Iterator[FedBatch]:
        """Return the changes after the number `start` up to `end`.

        Raises: FileChanged if the checkpoint lacks some of them.
        """
        reached = start
        for first, count, at_ms, data in self.database.connection.execute(
            "SELECT first, rows_count, at_ms, batch FROM feed WHERE first <= ? AND first + rows_count > ? "
            "ORDER BY first",
            (end, start + 1),
        ):
            if first > reached + 1:
                break
            stop = min(first + count - 1, end)
            yield FedBatch(first, at_ms, data, reached + 1 - first, stop + 1 - first)
            reached = stop
        if reached < end:
            raise self._lacks(reached + 1)

    def require(self, sequence: int) -> None:
        """Require that a stream can go on after a number. Raises: FileChanged."""
        if not int(self.database.meta("feed_forgotten") or 0) <= sequence <= self.last:
            raise self._lacks(sequence + 1)

    def _lacks(self, sequence: int) -> FileChanged:
        return FileChanged(
            f"{self.database.path} does not go on with change {sequence}, as the checkpoint of the query does: the two "
            "are not of the same moment", file=self.database.path,
            advice="begin a new query, with another checkpoint of Spark and another file",
        )

    def forget(self, end: int) -> None:
        """Forget the changes up to a number: the stream will not ask for them again."""
        with self.database.transaction():
            self.database.connection.execute("DELETE FROM feed WHERE first + rows_count - 1 <= ?", (end,))
            self.database.set_meta("feed_forgotten", str(end))
        self.database.shrink()


def require_no_feed(database: FollowDatabase) -> None:
    """Refuse a step that a stream would miss. Raises: BadRequest."""
    if database.meta("feed_id") is not None:
        raise BadRequest(
            f"{database.path} is the checkpoint of a stream of verdict changes in Spark", advice="give another file"
        )
