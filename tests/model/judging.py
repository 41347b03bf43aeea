"""What rmqtx reports of a store of the model, compared with what is true."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import Store, open_store
from rmqtx.verdicts.audit.local_audit import audit
from tests.conftest import MOMENT
from tests.model.ends import Truth, truths
from tests.model.forging import READ_AFTER_MS, conf, name_of, time_ms, written
from tests.model.rules import Disk, Release, Settings, halves, ops

Row = dict[str, Any]
_READ = ("asked", "put_back", "expired", "discarded")


@dataclass(slots=True)
class Judged:
    """What was compared. Shape: `undecided`: how many transactions were UNDECIDABLE, by reason code."""

    stores: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    undecided: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def take(self, kind: str, tx: int, said: object, happened: object) -> None:
        """Compare one answer."""
        self.answers[kind] += 1
        if said != happened:
            self.violations.append(f"{kind}: said {said}, happened {happened} (transaction {tx})")

    def add(self, other: Judged) -> None:
        """Add what was compared elsewhere."""
        self.stores += other.stores
        self.answers += other.answers
        self.undecided += other.undecided
        self.violations += other.violations


def judged_store(root: Path, disk: Disk, release: Release, settings: Settings) -> dict[str, Row]:
    """Write the store of a disk, audit it, and remove it; the rows by transaction id."""
    written(root, disk, release, settings)
    try:
        return rows_of(root, release, settings, time_ms(disk.now) + READ_AFTER_MS)
    finally:
        shutil.rmtree(root)


def rows_of(root: Path, release: Release, settings: Settings, now_ms: int) -> dict[str, Row]:
    """The rows of `audit` by transaction id."""

    def settings_of(store: Store) -> BrokerSettings:
        return broker_settings(store, conf=conf(settings), version=release.version)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MOMENT, lambda _: now_ms)
        rows = audit([open_store(root)], settings_of).table().to_pylist()
    return {row["transaction_id"]: row for row in rows}


def compare(result: Judged, disk: Disk, release: Release, settings: Settings, rows: dict[str, Row]) -> None:
    """Compare the rows of one store."""
    result.stores += 1
    known = truths(disk, release, settings)
    result.take("transactions", -1, sorted(rows), [name_of(tx) for tx in known])
    for tx, truth in known.items():
        row = rows.get(name_of(tx))
        if row is not None:
            _compare_row(result, tx, truth, row, is_whole=is_whole(disk))


def is_whole(disk: Disk) -> bool:
    """Whether nothing is missing that could decide: no record that has a slot, no cursor, and none behind its queue."""
    if disk.lost or disk.cursors is None:
        return False
    ends = (len(halves(disk.log)), len(ops(disk.log)))
    return all((cursor or 0) <= end for cursor, end in zip(disk.cursors, ends, strict=True))


def without_queues(disk: Disk) -> Disk:
    """The same disk with all slots: what is judged without files does not depend on them."""
    return disk._replace(slots=(len(halves(disk.log)), len(ops(disk.log))))


def _compare_row(result: Judged, tx: int, truth: Truth, row: Row, *, is_whole: bool) -> None:
    state = row["state"]
    result.take("copies", tx, len(row["half_copies"]), truth.copies)
    result.take("commits", tx, len(row["final_records"]), truth.deliveries)
    result.take("discards", tx, len(row["discard_copies"]), truth.discards)
    result.take("ops", tx, len(row["op_marks"]), truth.ops)
    result.take("checks", tx, row["checks_count"], truth.checks)
    if state == "UNDECIDABLE" and not is_whole:
        result.undecided[row["reason_code"]] += 1
        return
    result.take(
        f"state ({row['reason_code']})", tx, state, state if state in truth.states else "/".join(sorted(truth.states))
    )
    if row["deliveries_count"] is not None or is_whole:
        result.take("deliveries", tx, row["deliveries_count"], truth.deliveries)
    event = row["next_event"]
    if event == "unknown" and not is_whole:
        result.undecided["next_event"] += 1
        return
    said = event if truth.event != "none" or event in _READ else "none"
    result.take(f"event ({state})", tx, said, truth.event)
    result.take("asked", tx, row["answer_effect"] is not None, truth.is_asked)
    if truth.is_asked:
        result.take("effect", tx, row["answer_effect"], "deliver_again" if truth.deliveries else "deliver")
    if truth.is_decided:
        result.take("advice", tx, row["advice"] == "close", truth.event in _READ)
