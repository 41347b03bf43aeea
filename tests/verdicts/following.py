"""A store that grows and an audit that follows it, held to what a whole audit says at the same moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from rmqtx.readers.model.tables import FUTURE_COLUMNS
from rmqtx.readers.store.store import Store, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.evidence.store_facts import SettingsOf
from rmqtx.verdicts.follow.checkpoint_db import VERDICT_COLUMNS, FollowDatabase
from rmqtx.verdicts.follow.follower import Follower, FollowStep

_Key = tuple[Any, ...]


def _key(row: dict[str, Any]) -> _Key:
    return row["store"], row["transaction_id"], row["producer_group"], row["topic"]


def _without_deadlines(rows: pa.Table) -> pa.Table:
    """Rows as a following audit gives them: without what would change at every step."""
    for name in FUTURE_COLUMNS:
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(place), pa.nulls(rows.num_rows, rows.schema.field(place).type))
    return rows


def _without_reason(row: dict[str, Any]) -> dict[str, Any]:
    """What was told of a verdict does not keep up with the cursor that its reason says."""
    return row if row["state"] == "UNDECIDABLE" else row | {"reason": None, "reason_code": None}


@dataclass
class Followed:
    """An audit that follows; `told` is what somebody who read all its rows knows."""

    roots: Sequence[Path]
    checkpoint: Path
    settings: SettingsOf
    used_at_ms: int | None = None
    opened_at_ms: int | None = None
    told: dict[_Key, dict[str, Any]] = field(default_factory=dict)
    last: FollowStep = field(default_factory=FollowStep)
    database: FollowDatabase = field(init=False)

    def __post_init__(self) -> None:
        self.database = FollowDatabase(str(self.checkpoint), self.stores())

    def stores(self) -> list[Store]:
        """As they are now; `used_at_ms`: as if their broker ran, at that time; `opened_at_ms`: as if it was then."""
        stores = [open_store(root) for root in self.roots]
        if self.opened_at_ms is not None:
            return [replace(store, taken_time_ms=self.opened_at_ms) for store in stores]
        if self.used_at_ms is None:
            return stores
        return [replace(store, used_by_process=1, taken_time_ms=self.used_at_ms) for store in stores]

    def assert_finds(self, code: str) -> None:
        """A step finds this, and so does one after a restart."""
        for _ in range(2):
            self.assert_current()
            assert code in {finding.code for finding in self.last.findings}
            self.restart()

    def restart(self) -> None:
        """End, and begin again with the checkpoint."""
        self.database.close()
        self.database = FollowDatabase(str(self.checkpoint), self.stores())

    def step(self, chunk_transactions: int = 1000, stores: list[Store] | None = None) -> FollowStep:
        """One step, its rows read and remembered."""
        given = self.stores() if stores is None else stores
        step = self.last = Follower(self.database, chunk_transactions=chunk_transactions).step(given, self.settings)
        for batch in step.batches:
            self.told.update((_key(row), row) for row in batch.to_pylist())
        return step

    def kept(self) -> list[_Key]:
        """The checkpoint's table of verdicts, without identities."""
        columns = ", ".join(VERDICT_COLUMNS[1:])
        return sorted(self.database.connection.execute(f"SELECT {columns} FROM verdicts").fetchall(), key=repr)

    def assert_current(self, chunk_transactions: int = 1000) -> pa.Table:
        """A step; then the table, and what was told, are what an audit says. Gives the audit's rows."""
        stores = self.stores()
        self.step(chunk_transactions, stores)
        whole = _without_deadlines(audit(stores, self.settings).table())
        rows = Follower(self.database)._kept(whole, {})
        assert self.kept() == sorted((row[1:] for row in rows), key=repr)
        for row in whole.to_pylist():
            assert _without_reason(self.told[_key(row)]) == _without_reason(row)
        return whole
