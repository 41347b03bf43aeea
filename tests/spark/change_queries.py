"""A query of the stream verdict_changes, without Spark: it calls the reader in Spark's order, and can be killed."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from rmqtx.readers.model.tables import VERDICT_CHANGES
from rmqtx.readers.store.store import open_store
from rmqtx.spark_tasks.data_source import RmqtxDataSource
from rmqtx.spark_tasks.source.change_reader import ChangeOffset, ChangeStreamReader
from rmqtx.spark_tasks.source.read_options import Settings, parse_options
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.follow.change_log import KEY

Row = dict[str, Any]
SETTINGS = Settings(parse_options({"path": "/"}))
#: Columns of an audit that a change has, without those that a change of the cursor rewrites.
COMPARED = [
    name for name in VERDICT_CHANGES.names[4:] if name not in ("reason", "reason_code")
]


class KilledError(BaseException):
    """The process was killed."""


def never() -> None:
    """A query that is not killed."""


@dataclass
class ChangeQuery:
    """What Spark keeps of a query: the offsets of its batches, those that are committed, and the rows of its sink.

    Shape: `batches`: the end of each batch that was begun; `sink`: its rows, which a batch that is repeated replaces.
    """

    roots: Sequence[Path]
    checkpoint: Path
    options: dict[str, str] = field(default_factory=dict)
    batches: list[str] = field(default_factory=list)
    committed_count: int = 0
    sink: dict[int, list[Row]] = field(default_factory=dict)
    moment: Callable[[], None] = never

    def reader(self) -> ChangeStreamReader:
        """A reader as the planner makes it."""
        source = pickle.loads(pickle.dumps(RmqtxDataSource(self.given)))
        reader = source.streamReader(source.schema())
        assert isinstance(reader, ChangeStreamReader)
        return reader

    @property
    def given(self) -> dict[str, str]:
        """The options of the query."""
        paths = json.dumps(list(map(str, self.roots)))
        return {"table": "verdict_changes", "paths": paths, "checkpoint": str(self.checkpoint), **self.options}

    def run(self) -> int:
        """Run with the trigger AvailableNow until it ends by itself; returns the number of batches."""
        reader, count = self.reader(), 0
        reader.prepareForTriggerAvailableNow()
        try:
            while self._batch(reader):
                count += 1
        finally:
            reader.stop()
        return count

    def _batch(self, reader: ChangeStreamReader) -> bool:
        start = self._start(reader)
        if len(self.batches) == self.committed_count:
            self.moment()
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            if end == start:
                return False
            self.moment()
            self.batches.append(json.dumps(end))
            if self.committed_count:
                reader.commit(start)
        end = json.loads(self.batches[self.committed_count])
        self.moment()
        self.sink[self.committed_count] = self._rows(reader, start, end)
        self.moment()
        self.committed_count += 1
        return True

    def _start(self, reader: ChangeStreamReader) -> ChangeOffset:
        if not self.committed_count:
            return reader.initialOffset()
        offset: ChangeOffset = json.loads(self.batches[self.committed_count - 1])
        return offset

    def _rows(self, reader: ChangeStreamReader, start: ChangeOffset, end: ChangeOffset) -> list[Row]:
        partitions = pickle.loads(pickle.dumps(reader.partitions(start, end)))
        worker = self.reader()
        return [row for partition in partitions for part in worker.read(partition) for row in part.to_pylist()]

    def killed(self) -> bool:
        """Run until `moment` kills it; returns whether it did."""
        with suppress(KilledError):
            self.run()
            return False
        return True

    def rows(self) -> list[Row]:
        """All rows of the sink in the order of the batches."""
        return [row for number in sorted(self.sink) for row in self.sink[number]]

    def assert_is_audit(self) -> list[Row]:
        """No change is there twice, none is missing, and their sum is an audit; returns the rows."""
        rows = self.rows()
        assert_sum(rows, audit([open_store(root) for root in self.roots], SETTINGS).table())
        return rows


def assert_sum(rows: list[Row], audited: pa.Table) -> None:
    """The changes follow each other without a gap, and what they leave is the audit."""
    assert [row["sequence"] for row in rows] == list(range(1, len(rows) + 1))
    now: dict[tuple[str, ...], Row] = {}
    for row in rows:
        key = tuple(row[name] for name in KEY)
        before = now.pop(key, None)
        assert row["state_before"] == (None if before is None else before["state"]), row
        if row["change"] == "gone":
            assert (before is None, row["state"]) == (False, None)
            continue
        kind = "new" if before is None else "details" if row["state"] == before["state"] else "state"
        assert row["change"] == kind
        now[key] = row
    wanted = [repr({name: row[name] for name in COMPARED}) for row in audited.to_pylist()]
    found = [repr({name: row[name] for name in COMPARED}) for row in now.values()]
    differing = sorted(set(wanted) ^ set(found))
    assert not differing, f"{len(differing)} rows only in the sum or only in the audit: {differing[:4]}"
    assert len(wanted) == len(found)
