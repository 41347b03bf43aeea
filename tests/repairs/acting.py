"""Actions on the files of a stopped broker, without the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import Store, open_store
from rmqtx.repairs.acts.carry_out import carry_out, checked_acts
from rmqtx.repairs.acts.file_medium import FileMedium
from rmqtx.repairs.acts.orders import ActOrder, Conduct
from rmqtx.repairs.acts.situation import ActRequest
from rmqtx.repairs.changes.execution import Destination
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.receipts import Receipt
from rmqtx.verdicts.audit.local_audit import audit

#: No half message is too old for its broker, whenever a test runs.
CONF = {"fileReservedTime": "1000000"}


def medium_of(root: Path, version: str, destination: Destination, conf: dict[str, str] | None = None) -> FileMedium:
    """The files of a store as what is acted on; none is too old for its broker, whenever a test runs."""
    conf = CONF | (conf or {})

    def settings_of(store: Store) -> Any:
        return broker_settings(store, conf=conf, version=version)

    return FileMedium(open_store(root), settings_of, conf, destination, open_store)


def rows_of(root: Path, version: str) -> dict[str, dict[str, Any]]:
    """Every transaction, without the store's name."""
    reading = audit([open_store(root)], lambda store: broker_settings(store, conf=CONF, version=version))
    rows = {row["transaction_id"]: row for row in reading.table().to_pylist()}
    return {name: _anywhere(row) for name, row in rows.items()}


def _anywhere(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _anywhere(one) for name, one in value.items() if name not in ("store", "file", "stores")}
    return [_anywhere(one) for one in value] if isinstance(value, list) else value


def act(
    medium: FileMedium, journal: Journal, orders: Mapping[str, ActKind], conduct: Conduct | None = None
) -> list[Receipt]:
    """What came of some actions, by transaction id."""
    conduct = conduct or Conduct()
    wanted = [ActOrder(name, ActRequest(action), "because") for name, action in orders.items()]
    acts = checked_acts(wanted, medium, conduct)
    carry_out(acts, medium, journal, conduct, lambda _: None)
    assert len(acts) == len(orders)
    return [one.begun() for one in acts]


def content(root: Path) -> dict[str, bytes]:
    """Every file of a store by its path there."""
    return {str(file.relative_to(root)): file.read_bytes() for file in sorted(root.rglob("*")) if file.is_file()}
