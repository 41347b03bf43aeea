"""The directories of exported rows, by topic and day (`topic=orders/day=2026-01-02`), as Hive, Spark and Arrow read.

A producer can write any topic name, so in a directory's name everything except letters, digits, `_`, `-` and `.` is
escaped: no name can point outside the directory. The rows contain the original name.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.moments import BROKER_TIME_MAX_MS

#: The partition of unknown values.
UNKNOWN = "__HIVE_DEFAULT_PARTITION__"
_DAY = "day"
_DAY_MS = 86_400_000
#: Days since 1970 that a calendar of four-digit years reaches.
_DAYS_END = 2_932_897
_NAME_BYTES_MAX = 180
_EPOCH = datetime.date(1970, 1, 1)


def days_of(times_ms: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return the UTC day of each time; null if it is unknown, or no broker wrote it."""
    is_known = pc.and_(pc.greater_equal(times_ms, 0), pc.less(times_ms, BROKER_TIME_MAX_MS))
    known = pc.if_else(is_known, times_ms, pa.scalar(None, pa.int64()))
    return known.cast(pa.timestamp("ms", "UTC")).cast(pa.date32())


@dataclass(frozen=True, slots=True)
class Partition:
    """Rows of one topic and day. `day` is a number of days since 1970 UTC; `levels` are the names of directories."""

    topic: str | None
    day: int | None
    levels: tuple[str, ...]

    @property
    def directory(self) -> str:
        """Its directory, relative to the export's."""
        topic = UNKNOWN if not self.topic else escaped_name(self.topic)
        names = {_DAY: UNKNOWN if self.day is None else self.day_text}
        return "/".join(f"{level}={names.get(level, topic)}" for level in self.levels)

    @property
    def day_text(self) -> str | None:
        """The day as 2026-01-02."""
        return None if self.day is None else (_EPOCH + datetime.timedelta(days=self.day)).isoformat()


def escaped_name(name: str) -> str:
    """Return a name as part of a directory's name: reserved or unprintable as %XX, long ones cut, with a digest."""
    text = "".join(c if _is_plain(c) else "".join(f"%{byte:02X}" for byte in c.encode()) for c in name)
    if len(text.encode()) <= _NAME_BYTES_MAX:
        return text
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    cut = text.encode()[: _NAME_BYTES_MAX - 18].decode(errors="ignore")
    return f"{re.sub('%[0-9A-F]?$', '', cut)}~{digest}"


def _is_plain(character: str) -> bool:
    if character.isascii():
        return character.isalnum() or character in "_-."
    return character.isprintable() and character.isalnum()


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The columns of a table with topic and day; None if the table has no such column: then the level is omitted.

    A level has the name of its column, and the column has the level's value in all rows below it.
    """

    topic_column: str | None
    time_column: str

    @property
    def levels(self) -> tuple[str, ...]:
        """The names of the levels of directories."""
        return (_DAY,) if self.topic_column is None else (self.topic_column, _DAY)

    @property
    def columns(self) -> list[str]:
        """The columns that determine the partition."""
        return [self.time_column] if self.topic_column is None else [self.topic_column, self.time_column]

    def split(self, rows: pa.RecordBatch) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        """The rows of each partition. Order: kept within a partition."""
        topics, names = self._topics(rows)
        days = self._days(rows)
        codes = topics * (_DAYS_END + 1) + days
        order = np.argsort(codes, kind="stable")
        for group in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
            if len(group):
                first = group[0]
                day = int(days[first]) if days[first] < _DAYS_END else None
                yield Partition(names[int(topics[first])], day, self.levels), rows.take(pa.array(group))

    def _topics(self, rows: pa.RecordBatch) -> tuple[Int64s, list[str | None]]:
        if self.topic_column is None:
            return np.zeros(rows.num_rows, np.int64), [None]
        encoded = rows[self.topic_column].dictionary_encode()
        names = [*encoded.dictionary.to_pylist(), None]
        return np.asarray(pc.fill_null(encoded.indices, len(names) - 1)).astype(np.int64), names

    def _days(self, rows: pa.RecordBatch) -> Int64s:
        days = np.asarray(pc.fill_null(rows[self.time_column], -1)).astype(np.int64) // _DAY_MS
        return np.where((days >= 0) & (days < _DAYS_END), days, _DAYS_END)


PARTITIONINGS: dict[str, Partitioning] = {
    "records": Partitioning("topic", "store_time_ms"),
    "halves": Partitioning("real_topic", "store_time_ms"),
    "ops": Partitioning(None, "store_time_ms"),
    "traces": Partitioning("topic", "store_time_ms"),
    "transactions": Partitioning("topic", "half_store_time_ms"),
}
