"""The first tasks of an audit on Spark: the facts of the stores, and the whole audit of what fits one task.

The task that opens a single store audits it too: a query of a small store waits for this job, and that of the query.
Several stores are opened in parallel; if they fit one task together, the next job has only this task.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rmqtx.readers.log.commit_log import WrittenEnd, log_bytes, written_end
from rmqtx.readers.log.splits import SPLIT_BYTES, SplitPlan
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.store import Store
from rmqtx.spark_tasks.jobs.verdicts import RowForm, with_unread
from rmqtx.spark_tasks.session.handover import ROWS_AT_ONCE
from rmqtx.spark_tasks.session.tasks import from_bytes, to_bytes, working
from rmqtx.verdicts.audit.local_audit import audit_of
from rmqtx.verdicts.evidence.store_facts import StoreFacts, store_facts
from rmqtx.verdicts.model.reading import VerdictReading

#: Rows with `opened`, which is pickled, or with the Arrow bytes of verdicts.
OPENED = pa.schema([("opened", pa.binary()), ("verdicts", pa.binary())])
OPENED_COLUMNS = "opened binary, verdicts binary"
#: A store costs as much as auditing this number of bytes of log, however short its log is.
_STORE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Begun:
    """A store before its log is read: its facts, the base offset of its last segment with data, its written bytes."""

    facts: StoreFacts
    written_end: WrittenEnd
    total_bytes: int


def begin_store(at_ms: int | None, task: tuple[Store, BrokerSettings, int]) -> Begun:
    """Return what is known of a store before its log is read; the task has the moment of reading, too."""
    store, settings, now_ms = task
    facts = store_facts(store, lambda _: settings, at_ms=at_ms, now_ms=now_ms)
    return Begun(facts, written_end(store), log_bytes(store.commit_log))


@dataclass(frozen=True, slots=True)
class Whole:
    """The audit of stores by one task: its reading without batches, and the bytes of the logs that it read."""

    reading: VerdictReading
    total_bytes: int


@dataclass(frozen=True, slots=True)
class AuditAtOnce:
    """Audits stores in one task, by the function of the local engine.

    Shape: rows of OPENED: the first one has Whole; the verdicts follow.
    """

    begun: Sequence[Begun]
    columns: tuple[str, ...]

    def __call__(self, _number: int) -> Iterator[pa.RecordBatch]:
        """Yield rows of OPENED."""
        facts = {one.facts.store.root: one.facts for one in self.begun}
        stores = tuple(one.store for one in facts.values())
        plan = SplitPlan(stores, tuple(one.written_end for one in self.begun))
        # The caller compares copies of one log while the rows pass through it, as after an audit by several jobs.
        reading = audit_of(facts, self.columns, processes=1, with_copies=False)
        batches = list(reading)
        reading.batches = []
        yield _row(opened=pickle.dumps(Whole(reading, plan.total_bytes)))
        for batch in batches:
            for first in range(0, len(batch), ROWS_AT_ONCE):
                yield _row(verdicts=to_bytes([batch.slice(first, ROWS_AT_ONCE)]))


@dataclass(frozen=True, slots=True)
class OpenOrAudit:
    """Opens a store; audits it in the same task if it fits one.

    Shape: rows of OPENED: the first one has Begun, or what AuditAtOnce yields.
    """

    task: tuple[Store, BrokerSettings, int]
    at_ms: int | None
    columns: tuple[str, ...]
    split_bytes: int | None

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield rows of OPENED."""
        begun = begin_store(self.at_ms, self.task)
        if fit_one_task([begun], self.split_bytes):
            yield from AuditAtOnce([begun], self.columns)(number)
        else:
            yield _row(opened=pickle.dumps(begun))


def fit_one_task(begun: Sequence[Begun], split_bytes: int | None) -> bool:
    """Whether these stores are few and small enough to be audited by one task.

    `split_bytes`: the log bytes that a task reads, if they are given. More than SPLIT_BYTES are never judged at once.
    """
    total = sum(one.total_bytes for one in begun) + _STORE_BYTES * (len(begun) - 1)
    return total <= min(split_bytes or SPLIT_BYTES, SPLIT_BYTES)


def _row(**values: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([values.get(name)], pa.binary()) for name in OPENED.names], schema=OPENED
    )


def restored(data: Any) -> Begun | Whole:
    """Return what the first row of `OpenOrAudit` has."""
    found: Begun | Whole = pickle.loads(data)
    return found


def take_over(reading: VerdictReading, whole: VerdictReading) -> None:
    """Add all but rows and habits, which are those of the rows that a caller takes, to the reading of a caller."""
    reading.add_account_of(whole)
    reading.missing.extend(whole.missing)
    reading.check_stops.extend(whole.check_stops)
    reading.predicted |= whole.predicted
    reading.evidence |= whole.evidence


@dataclass(frozen=True, slots=True)
class Formed:
    """Gives the verdicts of `AuditAtOnce` in a form."""

    form: RowForm

    @property
    def __name__(self) -> str:  # Spark shows it
        return "formed"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the verdicts in their form, from rows of OPENED with verdicts."""
        with working():
            pieces = [one for batch in batches for data in batch["verdicts"] for one in from_bytes(data.as_buffer())]
            if pieces:
                # What could not be read of traces is among the findings of the audit.
                yield from self.form(0, with_unread(pa.Table.from_batches(pieces), []).combine_chunks())
