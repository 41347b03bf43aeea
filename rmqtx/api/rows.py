"""Rows of tables as typed values, one class for each table.

docs/tables.md describes the columns; what is unknown has the value None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from rmqtx.verdicts.model.transaction import Transaction

__all__ = ["Diagnosis", "Finding", "Half", "Op", "Record", "SimulatedCheck", "TraceLine", "Transaction", "row_of"]


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a commit log. A row of RECORDS."""

    store: str
    file: str | None
    position_bytes: int | None
    length_bytes: int | None
    commit_log_offset: int | None
    format_version: int | None
    topic: str | None
    queue_id: int | None
    queue_offset: int | None
    transaction_id: str | None
    keys: str | None
    tags: str | None
    born_time_ms: int | None
    store_time_ms: int | None
    born_host: str | None
    store_host: str | None
    message_id: str | None
    flag: int | None
    sys_flag: int | None
    transaction_type: str | None
    reconsume_times: int | None
    prepared_transaction_offset: int | None
    producer_group: str | None
    real_topic: str | None
    real_queue_id: str | None
    checks: str | None
    body_length_bytes: int | None
    body_crc: int | None
    body_crc_matches: bool | None
    properties: tuple[tuple[str, str], ...] | None
    body: bytes | None


@dataclass(frozen=True, slots=True)
class Half:
    """A half copy. A row of HALVES."""

    store: str
    file: str | None
    position_bytes: int | None
    length_bytes: int | None
    topic: str | None
    queue_id: int | None
    queue_offset: int | None
    commit_log_offset: int | None
    store_time_ms: int | None
    born_time_ms: int | None
    message_id: str | None
    transaction_id: str | None
    producer_group: str | None
    real_topic: str | None
    real_queue_id: int | None
    keys: str | None
    checks_count: int | None
    immunity_seconds: int | None
    prepared_queue_offset: int | None
    has_transaction_property: bool | None
    sys_flag: int | None
    body_length_bytes: int | None
    body_is_readable: bool | None


@dataclass(frozen=True, slots=True)
class Op:
    """An op message. A row of OPS."""

    store: str
    file: str | None
    position_bytes: int | None
    length_bytes: int | None
    queue_id: int | None
    queue_offset: int | None
    commit_log_offset: int | None
    store_time_ms: int | None
    tags: str | None
    body_form: str | None
    half_queue_offsets: tuple[int, ...] | None
    half_commit_log_offset: int | None


@dataclass(frozen=True, slots=True)
class Finding:
    """Damage, or a contradiction. A row of FINDINGS."""

    store: str
    code: str
    severity: str
    file: str | None
    position_bytes: int | None
    length_bytes: int | None
    commit_log_offset: int | None
    expected: str | None
    actual: str | None
    meaning: str
    advice: str | None


@dataclass(frozen=True, slots=True)
class TraceLine:
    """A line of a producer's message trace. A row of TRACES."""

    store: str
    file: str | None
    position_bytes: int | None
    length_bytes: int | None
    commit_log_offset: int | None
    store_time_ms: int | None
    line_number: int
    kind: str
    time_ms: int | None
    transaction_id: str | None
    producer_group: str | None
    topic: str | None
    keys: str | None
    tags: str | None
    decision: str | None
    is_check_answer: bool | None
    broker: str | None
    born_host: str | None
    message_id: str | None
    is_success: bool | None
    cost_ms: int | None
    body_length_bytes: int | None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A cause, and the transactions that it explains or could explain. A row of DIAGNOSES."""

    store: str
    cause: str
    strength: str
    title: str
    transactions_count: int
    half_copies_count: int
    first_time_ms: int | None
    last_time_ms: int | None
    examples: tuple[Mapping[str, object], ...] | None
    consequence: str | None
    would_decide: str | None
    act: str | None
    change: str | None
    releases: str | None
    sources: str | None


@dataclass(frozen=True, slots=True)
class SimulatedCheck:
    """What a simulated round of the check does with a half copy. A row of SIMULATED_CHECKS."""

    store: str
    configuration: str
    design: str
    table_file: str | None
    round: int
    round_time_ms: int | None
    queue_id: int | None
    transaction_id: str | None
    producer_group: str | None
    topic: str | None
    action: str
    checks_count: int | None
    half_queue_offset: int | None
    commit_log_offset: int | None
    new_half_queue_offset: int | None
    written_bytes: int | None
    may_be_a_round_later: bool | None


_Row = TypeVar("_Row")


def row_of(kind: type[_Row], values: Mapping[str, Any]) -> _Row:
    """Return a row of a table as a value of its class; columns that the class lacks are left out."""
    if kind is Transaction:
        return kind.of(values)  # type: ignore[attr-defined,no-any-return]
    named = {one.name: _frozen(values[one.name]) for one in fields(kind)}  # type: ignore[arg-type]
    return kind(**named)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(one) for one in value) if isinstance(value, list) else value
