"""The planned histories: what may happen to a transaction, one small program each.

A history is registered under its function's name when its module is imported; this package imports all of them.
"""

from tests.brokers.histories import (
    acting_slaves,
    answers,
    chains,
    clients_and_settings,
    delays,
    light_halves,
    lost_ops,
    message_forms,
    old_copies,
    open_at_end,
    other_records,
    paths,
    proxied,
    repeated_decisions,
    rocksdb,
    stopped_checks,
    store_forms,
)
from tests.brokers.histories.registry import HISTORIES, IMMUNITY, history

__all__ = [
    "HISTORIES", "IMMUNITY", "acting_slaves", "answers", "chains", "clients_and_settings", "delays", "history",
    "light_halves", "lost_ops", "message_forms", "old_copies", "open_at_end", "other_records", "paths", "proxied",
    "repeated_decisions", "rocksdb", "stopped_checks", "store_forms",
]
