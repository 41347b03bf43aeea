"""The checks that put nothing back, as pure functions: the timer of 3.0 and 3.1, and the check of RocksDB (5.4.0+).

Both ask for what stands in a table beside the log and write nothing to the log, so what they start from is that table,
and what they name is the one record of a transaction that there is.

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

#: Keys that the RocksDB check reads at a time.
KEYS_PER_SCAN = 2_000


class Asking(StrEnum):
    """What a run does about an open record."""

    ASKED = "asked"
    IN_VAIN = "asked in vain"
    DROPPED = "dropped"
    UNREADABLE = "unreadable"


class OpenRecord(NamedTuple):
    """A prepared record or a half as the table beside the log has it.

    Shape: `row` is the place of its words, -1 where the log has no such record. `queue_offset` is what a request names:
           the slot's number (3.1), the half's own queue offset (RocksDB). `own_queue_offset`: what the record says.
           `checks_count` and `immunity_seconds` are of RocksDB.
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
    """One thing that a run does. `record` is as it is after it."""

    action: Asking
    record: OpenRecord
    time_ms: int


@dataclass(frozen=True, slots=True)
class AskingRound:
    """One run: what it did, what it left alone because it is too young or immune, and why the next one differs."""

    begin_ms: int
    steps: tuple[AskingStep, ...]
    immune_count: int
    young_count: int
    stop: str

    @property
    def is_last(self) -> bool:
        """Whether no run follows."""
        return self.stop == CANCELLED


END = "the end of the table"
CANCELLED = "the timer's end: its file is full and nothing in it is open"
SWITCHED_OFF = "checkTransactionMessageEnable is false"


# --- 3.0 and 3.1 ------------------------------------------------------------------------------------------------------


def timer_runs(
    records: tuple[OpenRecord, ...], begin_ms: int, interval_ms: int, *, is_full: bool, is_enabled: bool = True
) -> Iterator[AskingRound]:
    """The runs of one table file's timer, without an end unless it cancels itself.

    `records`: those of the file's slots that are open, by number. Each is asked for once in each run, without a limit
    and whatever its age: seconds times 1,000 overflow, so that every slot looks old.
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
    return Asking.ASKED if record.queue_offset == record.own_queue_offset else Asking.IN_VAIN


# --- RocksDB ----------------------------------------------------------------------------------------------------------


class AskingSettings(NamedTuple):
    """The settings that the RocksDB check goes by. Units: milliseconds."""

    time_out_ms: int
    check_max: int
    interval_ms: int


def rocksdb_passes(
    records: tuple[OpenRecord, ...], settings: AskingSettings, begin_ms: int
) -> Iterator[AskingRound]:
    """The passes of the RocksDB check over its keys, without an end.

    `records`: by commit-log offset, which is the keys' order. A key that is dropped as the last one of a scan makes the
    next scan, which begins behind it, leave out one key in this pass.
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
    """What is done about one key, and what is left of it."""
    assert record.checks_count is not None
    if record.checks_count > settings.check_max:
        return [AskingStep(Asking.DROPPED, record, now_ms)], None
    if not record.is_readable:
        return [AskingStep(Asking.UNREADABLE, record, now_ms)], None
    immunity = record.immunity_seconds
    immunity_ms = settings.time_out_ms if immunity is None else immunity * 1_000
    if now_ms - record.born_time_ms < immunity_ms:
        return [], record
    asked = record._replace(checks_count=record.checks_count + 1)
    steps = [AskingStep(Asking.ASKED, asked, now_ms)]
    if record.checks_count + 1 > settings.check_max:
        return [*steps, AskingStep(Asking.DROPPED, asked, now_ms)], None
    return steps, asked
