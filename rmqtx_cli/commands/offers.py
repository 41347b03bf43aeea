"""Completions that the commands supply: words of `explain`, and the columns of each command's rows."""

from __future__ import annotations

from collections.abc import Iterable

from rmqtx_cli.options.completion import Offers


def offers() -> Offers:
    """Return the completions, computed when they are needed."""
    return Offers(_words, _columns)


def _words() -> Iterable[str]:
    from rmqtx_cli.commands.all_views import all_views
    from rmqtx_cli.pages.glossary import entries

    return (entry.word for entry in entries(all_views()))


def _columns(command: str) -> Iterable[str]:
    from rmqtx.readers.model.tables import ALL_TABLES, TRANSACTIONS
    from rmqtx.remoting.live.producer_list import PRODUCERS
    from rmqtx.repairs.holds.listed_holds import HOLDS
    from rmqtx.repairs.receipts.receipts import RECEIPTS
    from rmqtx.verdicts.causes.diagnosing import DIAGNOSES
    from rmqtx.verdicts.ledger.reconcile import RECONCILED
    from rmqtx.verdicts.transactions.diff import DIFFERENCES
    from rmqtx_cli.output.derived_columns import derived_columns
    from rmqtx_cli.pages.installation import INSTALLATION
    from rmqtx_cli.pages.stores_table import STORES

    tables = {
        "pending": TRANSACTIONS, "audit": TRANSACTIONS, "plan": TRANSACTIONS, "reconcile": RECONCILED,
        "diff": DIFFERENCES, "stores": STORES, "receipts": RECEIPTS, "holds": HOLDS, "search": ALL_TABLES["records"],
        "commitlog": ALL_TABLES["records"], "consumequeue": ALL_TABLES["queue_slots"], "half": ALL_TABLES["halves"],
        "op": ALL_TABLES["ops"], "index": ALL_TABLES["index_entries"], "checkpoint": ALL_TABLES["checkpoint"],
        "cursors": ALL_TABLES["cursors"], "verify": ALL_TABLES["findings"], "diagnose": DIAGNOSES,
        "doctor": INSTALLATION, "trace": ALL_TABLES["traces"], "producers": PRODUCERS,
    }  # fmt: skip
    schema = tables.get(command)
    return [] if schema is None else [*schema.names, *derived_columns(schema)]
