"""The check of a table beside the log, without put-backs: timers of the state table (3.0, 3.1), RocksDB (5.4.0+)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from rmqtx.verdicts.check.timers_without_copies import (
    Asking,
    AskingRound,
    AskingSettings,
    AskingStep,
    OpenRecord,
    rocksdb_passes,
    timer_runs,
)
from rmqtx.verdicts.simulation.simulation_tables import Row, names

TIMER_INTERVAL_MS = 60_000
_ASKED = (Asking.ASKED, Asking.UNANSWERABLE)


@dataclass(slots=True)
class BesideSimulated:
    """The check of one state-table file, or of the RocksDB table, under one configuration, ready to be played.

    Shape: `records`: the open ones; `words`: rows of HALVES, by the `row` of a record. `file`: the table file, each
           with its own timer; None for RocksDB.
    """

    store: str
    configuration: str
    design: str
    records: tuple[OpenRecord, ...]
    words: pa.Table
    begin_ms: int
    file: str | None = None
    is_full: bool = False
    is_enabled: bool = True
    interval_ms: int = TIMER_INTERVAL_MS
    settings: AskingSettings | None = None

    def rounds(self) -> Iterator[AskingRound]:
        """Play runs, without end unless a timer cancels itself."""
        if self.settings is not None:
            return rocksdb_passes(self.records, self.settings, self.begin_ms)
        return timer_runs(
            self.records, self.begin_ms, self.interval_ms, is_full=self.is_full, is_enabled=self.is_enabled
        )

    @property
    def queue_id(self) -> int | None:
        """See `WithRows`."""
        return None if self.settings is None else 0

    def check_row(self, step: AskingStep) -> Row:
        """See `WithRows`."""
        return self._names(step.record) | {
            "checks_count": step.record.checks_count, "written_bytes": 0, "may_be_a_round_later": False,
        }

    def round_row(self, played: AskingRound) -> Row:
        """See `WithRows`."""
        counts = Counter(step.action for step in played.steps)
        return {
            "end_time_ms": played.begin_ms,
            "checked_count": sum(counts[action] for action in _ASKED),
            "immune_count": played.immune_count,
            "discarded_count": counts[Asking.DROPPED],
            "expired_count": 0,
            "ended_count": 0,
            "unreadable_count": counts[Asking.UNREADABLE],
            "skipped_count": 0,
            "written_bytes": 0,
        }

    def transaction_rows(self, rounds_max: int) -> list[Row]:
        """See `WithRows`. 3.0 and 3.1 never discard: `checks_to_come_count`, `end` and its round are null."""
        rows = {record.commit_log_offset: self._outcome(record) for record in self.records}
        left = len(rows)
        is_endless = self.settings is None
        for number, played in enumerate(islice(self.rounds(), 1 if is_endless else rounds_max), 1):
            for step in played.steps:
                row = rows[step.record.commit_log_offset]
                if step.action in _ASKED:
                    if row["next_check_time_ms"] is None:
                        row["next_check_time_ms"] = step.time_ms
                    if not is_endless:
                        row["checks_to_come_count"] += 1
                elif not is_endless:
                    row |= {"end": str(step.action), "end_round": number, "end_time_ms": step.time_ms}
                    left -= 1
            if not left:
                break
        return list(rows.values())

    def _outcome(self, record: OpenRecord) -> dict[str, Any]:
        is_endless = self.settings is None
        is_asked = self.is_enabled and record.is_readable
        return self._names(record) | {
            "checks_count": record.checks_count,
            "next_check_time_ms": None,
            "checks_to_come_count": (None if is_asked else 0) if is_endless else 0,
            "is_answerable": record.queue_offset == record.own_queue_offset if record.is_readable else False,
            "end": None,
            "written_bytes": 0,
            "may_be_a_round_later": False,
        }

    def _names(self, record: OpenRecord) -> Row:
        found: Row = {"half_queue_offset": record.queue_offset, "commit_log_offset": record.commit_log_offset}
        if not record.is_readable:
            return found
        words = self.words.slice(record.row, 1).to_pylist()[0]
        return found | names(words["transaction_id"] or words["message_id"], words)
