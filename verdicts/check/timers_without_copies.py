"""The checks without put-backs, as pure functions: the timer of 3.0 and 3.1, and the check of RocksDB (5.4.0+).

Both check the open transactions of a table beside the log and write nothing to the log, so they start from that table,
and a transaction has only one record.

Source: store/transaction/TransactionStateService.java (3.1.4, class file); broker/transaction/rocksdb/
TransactionalMessageRocksDBService.java, store/rocksdb/MessageRocksDBStorage.java (5.5.0, class files);
docs/formats/state_table.md#timer,
docs/formats/rocksdb_transactions.md#check.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from rmqtx.verdicts.check.check_rules import RECORD_AGE_MAY_EQUAL, is_younger

#: Keys that the RocksDB check reads at a time.
KEYS_PER_SCAN = 2_000


class Asking(StrEnum):
    """The action of a run on an open record."""

    ASKED = "asked"
    UNANSWERABLE = "unanswerable"
    DROPPED = "dropped"
    UNREADABLE = "unreadable"


class OpenRecord(NamedTuple):
    """A prepared record or a half in the table beside the log.

    Shape: `row`: the row of its values, -1 if the log does not have the record. `queue_offset`: the number in a check
           request: the slot's number (3.1), the half's own queue offset (RocksDB). `own_queue_offset`: the number in
           the record. `checks_count` and `immunity_seconds` are of RocksDB.
    """

    row: int
    commit_log_offset: int
    queue_offset: int | None
    own_queue_offset: int | None
    born_time_ms: int = 0
    checks_count: int | None = None
    immunity_seconds: int | None = None

    @property
    def is_readable(self) -> bool:
        """Whether the broker finds the record."""
        return self.row >= 0


class AskingStep(NamedTuple):
    """One action of a run. `record` is the state after it."""

    action: Asking
    record: OpenRecord
    time_ms: int


@dataclass(frozen=True, slots=True)
class AskingRound:
    """One run: its actions, the records that it skipped as too young or immune, and why the next run differs."""

    begin_ms: int
    steps: tuple[AskingStep, ...]
    immune_count: int
    young_count: int
    stop: str


END = "the end of the table"
CANCELLED = "the end of the timer: its file is full and has no open slot"
SWITCHED_OFF = "checkTransactionMessageEnable is false"


# --- 3.0 and 3.1 ------------------------------------------------------------------------------------------------------


def timer_runs(
    records: tuple[OpenRecord, ...], begin_ms: int, interval_ms: int, *, is_full: bool, is_enabled: bool = True
) -> Iterator[AskingRound]:
    """Play the runs of one table file's timer, without end unless it cancels itself.

    `records`: the open slots of the file, by number. Each run checks each of them once, without a limit and at any age:
    seconds times 1,000 overflow, so every slot looks old.
    """
    steps = tuple(AskingStep(_answerable(record), record, 0) for record in records)
    while True:
        stop = CANCELLED if is_full and not records else END
        if not is_enabled:
            yield AskingRound(begin_ms, (), 0, 0, SWITCHED_OFF)
        else:
            yield AskingRound(begin_ms, tuple(step._replace(time_ms=begin_ms) for step in steps), 0, 0, stop)
            if stop == CANCELLED:
                return
        begin_ms += interval_ms  # at a fixed rate


def _answerable(record: OpenRecord) -> Asking:
    if not record.is_readable:
        return Asking.UNREADABLE
    return Asking.ASKED if record.queue_offset == record.own_queue_offset else Asking.UNANSWERABLE


# --- RocksDB ----------------------------------------------------------------------------------------------------------


class AskingSettings(NamedTuple):
    """The settings that the RocksDB check uses. Units: milliseconds."""

    time_out_ms: int
    check_max: int
    interval_ms: int


def rocksdb_passes(
    records: tuple[OpenRecord, ...], settings: AskingSettings, begin_ms: int
) -> Iterator[AskingRound]:
    """Play the passes of the RocksDB check over its keys, without end.

    `records`: by commit-log offset, which is the order of the keys. If the last key of a scan is dropped, the next scan
    begins after it and skips one key in this pass.
    """
    while True:
        kept: list[OpenRecord] = []
        steps: list[AskingStep] = []
        immune_count = young_count = place = 0
        while place < len(records):
            scan = records[place : place + KEYS_PER_SCAN]
            is_last_kept = True
            for record in scan:
                done, left = _visit(record, settings, begin_ms)
                steps += done
                if left is not None:
                    kept.append(left)
                    immune_count += not done and record.immunity_seconds is not None
                    young_count += not done and record.immunity_seconds is None
                is_last_kept = left is not None
            place += len(scan)
            if len(scan) == KEYS_PER_SCAN and not is_last_kept and place < len(records):
                kept.append(records[place])
                place += 1
        yield AskingRound(begin_ms, tuple(steps), immune_count, young_count, END)
        records, begin_ms = tuple(kept), begin_ms + settings.interval_ms


def _visit(
    record: OpenRecord, settings: AskingSettings, now_ms: int
) -> tuple[list[AskingStep], OpenRecord | None]:
    """Return the action on one key, and the record after it."""
    assert record.checks_count is not None
    if record.checks_count > settings.check_max:
        return [AskingStep(Asking.DROPPED, record, now_ms)], None
    if not record.is_readable:
        return [AskingStep(Asking.UNREADABLE, record, now_ms)], None
    immunity = record.immunity_seconds
    immunity_ms = settings.time_out_ms if immunity is None else immunity * 1_000
    if is_younger(now_ms - record.born_time_ms, immunity_ms, RECORD_AGE_MAY_EQUAL):
        return [], record
    asked = record._replace(checks_count=record.checks_count + 1)
    steps = [AskingStep(Asking.ASKED, asked, now_ms)]
    if record.checks_count + 1 > settings.check_max:
        return [*steps, AskingStep(Asking.DROPPED, asked, now_ms)], None
    return steps, asked
