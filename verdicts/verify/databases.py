"""The RocksDB databases of a store that its broker opens and that no other part of a verification reads whole.

Topics, groups and cursors with storeType=defaultRocksDB or configManagerVersion=v2, and the database of transactions,
which every broker from 5.4.0 on opens when it starts, used or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rmqtx.readers.log.designs import ROCKSDB, designs_of
from rmqtx.readers.model.errors import MissingLibrary, SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.rocksdb.rocksdb import open_database, unread
from rmqtx.readers.rocksdb.rocksdb_transactions import DIRECTORY
from rmqtx.readers.store.store import Store

#: Directories below config/, and what they contain. Source: docs/formats/cursors.md#rocksdb.
_OF_SETTINGS = {
    "topics": "topics", "subscriptionGroups": "settings of consumer groups", "consumerOffsets": "cursors",
    "metadata": "topics, settings of consumer groups and cursors", "rdb": "topics, settings of consumer groups and "
    "cursors",
}


def database_findings(store: Store) -> Iterator[Finding]:
    """Return the databases that cannot be read up to their last entry, each once.

    Order:  settings, then transactions.
    Damage: database-unread. Without the library nothing is reported: what verdicts need is reported by its reader.
    """
    for name, content in _OF_SETTINGS.items():
        if store.has_database_files("config", name) and (found := _fault(store, "config", name)) is not None:
            yield replace(
                found, meaning=f"{content} in it are unknown; a broker that opens it may not start, or lose them"
            )
    is_used = any(design.word == ROCKSDB for design in designs_of(store))
    if not is_used and store.has_database_files(DIRECTORY) and (found := _fault(store, DIRECTORY)) is not None:
        yield replace(
            found, meaning="no half message of this log is in it, so no transaction depends on it; brokers from 5.4.0 "
            "on open it when they start",
        )


def _fault(store: Store, *names: str) -> Finding | None:
    try:
        with open_database(store, *names) as database:
            for family in database.families:
                for _ in database.items(family):
                    pass
    except MissingLibrary:
        return None
    except SourceError as error:
        return unread(store, store.place(*names), error)
    return None
