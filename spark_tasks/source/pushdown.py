"""Evaluate conditions of a query in the reader, so that excluded rows are not read or decoded.

Comparisons that the reader can evaluate exactly are taken; all others stay with Spark, which gets the remaining rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from rmqtx.readers.model.errors import UnreadableFile
from rmqtx.readers.model.reading import Reading

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


@dataclass(frozen=True, slots=True)
class PushedConditions:
    """Conditions that all rows must match; None is no condition. Units: upper bounds excluded."""

    from_offset: int | None = None
    to_offset: int | None = None
    from_time_ms: int | None = None
    to_time_ms: int | None = None
    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    stores: frozenset[str] | None = None

    def has_store(self, root: str) -> bool:
        """Whether rows of a store can match."""
        return self.stores is None or root in self.stores

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Whether rows of a queue can match."""
        has_topic = self.topics is None or topic in self.topics
        return has_topic and (self.queue_ids is None or queue_id in self.queue_ids)


_RANGES = ("commit_log_offset", "store_time_ms")


def narrowed(
    conditions: PushedConditions, filters: Iterable[Filter], columns: frozenset[str]
) -> tuple[PushedConditions, list[Filter]]:
    """Return the conditions with the filters added that they can express, and the filters that stay with Spark.

    `columns`: the columns of the table whose conditions are taken; they are never null.
    """
    left: list[Filter] = []
    for one in filters:
        taken = _taken(conditions, one, columns)
        if taken is None:
            left.append(one)
        else:
            conditions = taken
    return conditions, left


def _taken(conditions: PushedConditions, one: Filter, columns: frozenset[str]) -> PushedConditions | None:
    """Return the conditions with one more filter; None if the filter is not taken."""
    path: tuple[str, ...] = getattr(one, "attribute", ())
    if len(path) != 1 or path[0] not in columns:
        return None
    take = _TAKERS.get(type(one).__name__)
    return None if take is None else take(conditions, path[0], getattr(one, "value", None))


def _one_of(conditions: PushedConditions, column: str, values: Iterable[Any]) -> PushedConditions | None:
    wanted = frozenset(value for value in values if value is not None)  # IN (1, NULL) is true only for 1
    if column in _RANGES:  # several values are not a range: values between them do not match
        value = next(iter(wanted)) if len(wanted) == 1 else None
        return _between(conditions, column, value, 0, 1)
    kind = int if column == "queue_id" else str
    if not all(type(value) is kind for value in wanted):
        return None
    if column == "queue_id":
        return replace(conditions, queue_ids=_both(conditions.queue_ids, wanted))
    if column == "topic":
        return replace(conditions, topics=_both(conditions.topics, wanted))
    return replace(conditions, stores=_both(conditions.stores, wanted)) if column == "store" else None


def _both(before: frozenset[Any] | None, wanted: frozenset[Any]) -> frozenset[Any]:
    return wanted if before is None else before & wanted


def _between(
    conditions: PushedConditions, column: str, value: Any, from_step: int | None, to_step: int | None
) -> PushedConditions | None:
    """Return the conditions with a column's range cut to [value + from_step, value + to_step); None is no bound."""
    if column not in _RANGES or type(value) is not int:
        return None
    low = None if from_step is None else value + from_step
    high = None if to_step is None else value + to_step
    if column == "store_time_ms":
        return replace(
            conditions, from_time_ms=_last(conditions.from_time_ms, low), to_time_ms=_first(conditions.to_time_ms, high)
        )
    return replace(
        conditions, from_offset=_last(conditions.from_offset, low), to_offset=_first(conditions.to_offset, high)
    )


def _last(one: int | None, other: int | None) -> int | None:
    return max((bound for bound in (one, other) if bound is not None), default=None)


def _first(one: int | None, other: int | None) -> int | None:
    return min((bound for bound in (one, other) if bound is not None), default=None)


_Taker = Callable[[PushedConditions, str, Any], PushedConditions | None]


def _range(from_step: int | None, to_step: int | None) -> _Taker:
    return lambda conditions, column, value: _between(conditions, column, value, from_step, to_step)


#: By class names of `pyspark.sql.datasource`.
_TAKERS: dict[str, _Taker] = {
    "EqualTo": lambda conditions, column, value: _one_of(conditions, column, [value]),
    "EqualNullSafe": lambda conditions, column, value: None if value is None else _one_of(conditions, column, [value]),
    "In": _one_of,
    "IsNotNull": lambda conditions, _column, _value: conditions,
    "GreaterThan": _range(1, None),
    "GreaterThanOrEqual": _range(0, None),
    "LessThan": _range(None, 0),
    "LessThanOrEqual": _range(None, 1),
}


class TableScan(Protocol):
    """A table as tasks. It is sent to the workers, so it is small and can be pickled."""

    def narrow(self, filters: Iterable[Filter]) -> list[Filter]:
        """Take conditions of a query that can be evaluated exactly; return the others, for Spark."""

    def __len__(self) -> int:
        """Return the number of tasks. Reads directories, no file."""

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, with at least the requested columns.

        Raises: UnreadableFile, FileChanged: a file that cannot be read is an error, not fewer rows.
        """


class Narrowing:
    """A scan that evaluates conditions on the columns `conditioned`, which are never null."""

    conditioned: frozenset[str] = frozenset()

    def __init__(self, conditions: PushedConditions) -> None:
        self.conditions = conditions

    def narrow(self, filters: Iterable[Filter]) -> list[Filter]:
        """Take conditions of a query that can be evaluated exactly; return the others, for Spark."""
        self.conditions, left = narrowed(self.conditions, filters, self.conditioned)
        return left


def whole(reading: Reading) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a reading.

    Raises: UnreadableFile if a finding of the reading reports a file that could not be read.
    """
    yield from reading
    for finding in reading.findings:
        if finding.code == "unreadable-file":
            message = finding.actual or f"cannot read {finding.file}"
            raise UnreadableFile(message, file=finding.file, position_bytes=finding.position_bytes)
