"""Tables beside the log, which a bundle leaves out: they hold the keys and places of every transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from readers.store import HALF_TOPIC, ROCKSDB_HALF_TOPIC, WAITING_TOPICS
from repairs.bundle_selection import Selection

_OF_ROCKSDB, _OF_PREPARED = ("rocksdbstore",), ("transaction/statetable", "transaction/redolog")
#: What a verdict may have from such a table.
COLUMNS = ("state", "flags", "reason", "advice", "checks_count", "state_entries")


def tables_of(selection: Selection, row: Mapping[str, Any]) -> tuple[str, ...]:
    """The tables beside the store's log that the verdict on a transaction was made with."""
    records = (selection.records.get(copy["commit_log_offset"]) for copy in row["half_copies"])
    topics = {record.topic for record in records if record is not None}
    names: tuple[str, ...] = _OF_ROCKSDB if ROCKSDB_HALF_TOPIC in topics else ()
    if topics - {HALF_TOPIC, ROCKSDB_HALF_TOPIC, *WAITING_TOPICS}:
        names += _OF_PREPARED
    return tuple(name for name in names if selection.store.has(*name.split("/")))


def told(left_out: Mapping[tuple[str, ...], set[str]]) -> Iterator[str]:
    """One sentence on some tables that were left out, with the transactions that read otherwise for want of them."""
    for tables, names in sorted(left_out.items()):
        yield (
            f"{' and '.join(tables)} left out, with what was not chosen in it: {len(names)} of the transactions read "
            "by the log alone there"
        )
