"""Completions that the commands supply. `rmqtx_cli.options.completion` imports this module when a shell asks."""

from __future__ import annotations

from collections.abc import Iterable

from rmqtx.readers.model.tables import ALL_TABLES, TRANSACTIONS
from rmqtx.readers.storage.file_systems import expand
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from rmqtx.remoting.live.producer_list import PRODUCERS
from rmqtx.repairs.acts.guards import GUARDS
from rmqtx.repairs.holds.guards import HOLD_GUARDS
from rmqtx.repairs.holds.standing_holds import HOLDS
from rmqtx.repairs.receipts.receipts import RECEIPTS
from rmqtx.verdicts.audit.lookups import pending
from rmqtx.verdicts.causes.diagnosing import DIAGNOSES
from rmqtx.verdicts.ledger.reconcile import RECONCILED
from rmqtx.verdicts.proofs.proving import PROVED
from rmqtx.verdicts.transactions.diff import DIFFERENCES
from rmqtx_cli.commands.all_views import all_views
from rmqtx_cli.commands.reading.schema import DECLARED_TABLES
from rmqtx_cli.options.columns import ALSO_CALLED
from rmqtx_cli.output.derived_columns import derived_columns
from rmqtx_cli.pages.glossary import entries
from rmqtx_cli.pages.installation import INSTALLATION
from rmqtx_cli.pages.stores_table import STORES


def words() -> Iterable[str]:
    """Return the words of `explain`."""
    return (entry.word for entry in entries(all_views()))


def columns(command: str) -> list[str]:
    """Return the columns of a command's rows."""
    tables = {
        "pending": TRANSACTIONS, "audit": TRANSACTIONS, "follow": TRANSACTIONS, "plan": TRANSACTIONS,
        "reconcile": RECONCILED, "diff": DIFFERENCES, "stores": STORES, "receipts": RECEIPTS, "holds": HOLDS,
        "search": ALL_TABLES["records"],
        "commitlog": ALL_TABLES["records"], "consumequeue": ALL_TABLES["queue_slots"], "half": ALL_TABLES["halves"],
        "op": ALL_TABLES["ops"], "index": ALL_TABLES["index_entries"], "checkpoint": ALL_TABLES["checkpoint"],
        "cursors": ALL_TABLES["cursors"], "verify": ALL_TABLES["findings"], "diagnose": DIAGNOSES,
        "doctor": INSTALLATION, "trace": ALL_TABLES["traces"], "producers": PRODUCERS, "prove": PROVED,
    }
    schema = tables.get(command)
    return [] if schema is None else [*schema.names, *derived_columns(schema)]


def sort_columns(command: str) -> list[str]:
    """Return the columns by which rows can be sorted."""
    names = columns(command)
    return [*names, *(name for name, column in ALSO_CALLED.items() if column in names)]


def tables() -> list[str]:
    """Return the names of the declared tables."""
    return list(DECLARED_TABLES)


def guards() -> list[str]:
    """Return the names of the guards of an act."""
    return [guard.name for guard in GUARDS]


def hold_guards() -> list[str]:
    """Return the names of the guards of a release that can be overridden."""
    return [guard.name for guard in HOLD_GUARDS if not guard.is_absolute]


def pending_ids(place: str) -> list[str]:
    """Return the ids of the pending transactions of a store."""
    (root, *_) = expand([place])
    found: list[str] = pending([open_store(root)], broker_settings).table()["transaction_id"].to_pylist()
    return found
