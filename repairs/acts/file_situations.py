"""The situations of transactions from the files of a store alone, for guards and plans; no broker is asked."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rmqtx.readers.index.index_search import open_index
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.readers.store.store import Store
from rmqtx.repairs.acts.named_copies import newest_records, reader_of
from rmqtx.repairs.acts.neighbourhood import contradictions
from rmqtx.repairs.acts.situation import ActConditions, Situation
from rmqtx.verdicts.evidence.store_facts import SettingsOf, known_until_ms
from rmqtx.verdicts.model.transaction import Transaction


def file_situations(
    stores: Sequence[Store], settings_of: SettingsOf, rows: Iterable[Transaction],
    findings: Sequence[Finding] | None = None,
) -> list[Situation]:
    """Return the situations of some transactions from files alone.

    `rows`: the transactions. `findings`: those of the reading that gave them; if given, each one's records are
    also compared with queues and index, and contradictions are listed. Connected producers and decisions under way in
    a broker are unknown here, and the guards of a plan do not use them.
    Order: that of the rows.
    """
    logs = {store.root: store.log() for store in stores}
    conditions = {store.root: _conditions(store, settings_of) for store in stores}
    try:
        situations = [_situation(row, logs, conditions) for row in rows]
        if findings is None:
            return situations
        indexes = {store.root: open_index(store, settings_of(store).max_hash_slots) for store in stores}
        return [
            replace(situation, conditions=replace(situation.conditions, contradictions=tuple(
                line for store in stores
                for line in contradictions(store, logs[store.root], indexes[store.root],
                                           situation.transaction.in_store(store.root), findings,
                                           is_prepared=situation.is_prepared)
            )))
            for situation in situations
        ]  # fmt: skip
    finally:
        for log in logs.values():
            log.close()


def _conditions(store: Store, settings_of: SettingsOf) -> ActConditions:
    settings = settings_of(store)
    is_known = settings.version_low is not None and settings.version_low == settings.version_high
    return ActConditions(
        version=settings.version_low if is_known else None,
        is_slave=False,  # a slave's files serve as evidence; the plan is applied at the master
        settle_ms=0, settled_ms=0,
        file_reserved_time_hours=settings.file_reserved_time_hours,
        now_ms=time.time_ns() // 1_000_000, producers=(), is_of_files=True,
        stopped_time_ms=None if store.in_use else known_until_ms(store),
    )  # fmt: skip


def _situation(
    transaction: Transaction, logs: dict[str, SegmentedLog], conditions: dict[str, ActConditions]
) -> Situation:
    half, discard = newest_records(transaction, reader_of(logs))
    root = next((record.store for record in (half, discard) if record is not None), str(transaction.store))
    return Situation(transaction, half, discard, half, conditions[root])
