"""All causes, by word."""

from __future__ import annotations

from verdicts.causes import (
    broker_logs,
    checks,
    clients,
    cursors,
    prepared_records,
    rocksdb,
    roles,
    second_decisions,
    settings,
)
from verdicts.causes.cause import Cause

CAUSES: dict[str, Cause] = {
    cause.word: cause
    for family in (
        second_decisions, checks, cursors, roles, clients, settings, broker_logs, rocksdb, prepared_records,
    )
    for cause in family.CAUSES
}
