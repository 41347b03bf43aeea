"""Rows of a simulated check without put-backs: the timers of the state table (3.0, 3.1) and RocksDB (5.4.0+)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Any

import pyarrow as pa

from rmqtx.verdicts.check.timers_without_copies import Asking, AskingRound, AskingStep, OpenRecord
from rmqtx.verdicts.simulation.simulation_tables import SIMULATED_CHECKS, SIMULATED_ROUNDS, SIMULATED_TRANSACTIONS
from rmqtx.verdicts.simulation.simulation_without_queue import BesideSimulated

_ASKED = (Asking.ASKED, Asking.UNANSWERABLE)


def check_rows(simulated: BesideSimulated, rounds: Iterable[AskingRound]) -> pa.RecordBatch:
    """Rows of SIMULATED_CHECKS."""
    rows = [
        _identity(simulated) | _check_row(simulated, number, step)
        for number, played in enumerate(rounds, 1)
        for step in played.steps
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SIMULATED_CHECKS)


def _identity(simulated: BesideSimulated) -> dict[str, Any]:
    return {
        "store": simulated.store,
        "configuration": simulated.configuration,
        "design": simulated.design,
        "table_file": simulated.file,
        "queue_id": None if simulated.settings is None else 0,
    }


def _check_row(simulated: BesideSimulated, number: int, step: AskingStep) -> dict[str, Any]:
    return _names(simulated, step.record) | {
        "round": number,
        "round_time_ms": step.time_ms,
        "action": str(step.action),
        "checks_count": step.record.checks_count,
        "written_bytes": 0,
        "may_be_a_round_later": False,
    }


def _names(simulated: BesideSimulated, record: OpenRecord) -> dict[str, Any]:
    found: dict[str, Any] = {
        "half_queue_offset": record.queue_offset, "commit_log_offset": record.commit_log_offset,
    }
    if record.is_readable:
        words = simulated.words.slice(record.row, 1).to_pylist()[0]
        found |= {
            "transaction_id": words["transaction_id"] or words["message_id"],
            "producer_group": words["producer_group"],
            "topic": words["real_topic"],
        }
    return found


def round_rows(simulated: BesideSimulated, rounds: Iterable[AskingRound]) -> pa.RecordBatch:
    """Rows of SIMULATED_ROUNDS."""
    rows = [_identity(simulated) | _round_row(number, played) for number, played in enumerate(rounds, 1)]
    return pa.RecordBatch.from_pylist(rows, schema=SIMULATED_ROUNDS)


def _round_row(number: int, played: AskingRound) -> dict[str, Any]:
    counts = Counter(step.action for step in played.steps)
    return {
        "round": number,
        "begin_time_ms": played.begin_ms,
        "end_time_ms": played.begin_ms,
        "checked_count": sum(counts[action] for action in _ASKED),
        "immune_count": played.immune_count,
        "discarded_count": counts[Asking.DROPPED],
        "expired_count": 0,
        "ended_count": 0,
        "unreadable_count": counts[Asking.UNREADABLE],
        "skipped_count": 0,
        "written_bytes": 0,
        "stop": played.stop,
    }


def transaction_rows(simulated: BesideSimulated, rounds_max: int) -> pa.RecordBatch:
    """Rows of SIMULATED_TRANSACTIONS: every open record.

    Shape: 3.0 and 3.1 never discard: `checks_to_come_count`, `end` and its round are null.
    Order: that of the table.
    """
    rows = {record.commit_log_offset: _outcome(simulated, record) for record in simulated.records}
    left = len(rows)
    is_endless = simulated.settings is None
    for number, played in enumerate(islice(simulated.rounds(), 1 if is_endless else rounds_max), 1):
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
    return pa.RecordBatch.from_pylist(list(rows.values()), schema=SIMULATED_TRANSACTIONS)


def _outcome(simulated: BesideSimulated, record: OpenRecord) -> dict[str, Any]:
    is_endless = simulated.settings is None
    is_asked = simulated.is_enabled and record.is_readable
    return _identity(simulated) | _names(simulated, record) | {
        "checks_count": record.checks_count,
        "next_check_time_ms": None,
        "checks_to_come_count": (None if is_asked else 0) if is_endless else 0,
        "is_answerable": record.queue_offset == record.own_queue_offset if record.is_readable else False,
        "end": None,
        "written_bytes": 0,
        "may_be_a_round_later": False,
    }
