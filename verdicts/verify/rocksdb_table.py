"""The table of transactions in RocksDB compared with the log: keys without a half, or for another transaction's half.

The log decides what is open; a key that contradicts it shows that database and log are not of one store or time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np
import pyarrow as pa

from rmqtx.readers.log.designs import ROCKSDB, designs_of
from rmqtx.readers.log.record_at import blocks_at
from rmqtx.readers.log.transaction_records import JUDGED_HALVES, halves_of
from rmqtx.readers.model.errors import MissingLibrary, SourceError
from rmqtx.readers.model.findings import FINDINGS_MAX, Finding
from rmqtx.readers.model.ranges import LogRanges
from rmqtx.readers.rocksdb.rocksdb import open_database, unread
from rmqtx.readers.rocksdb.rocksdb_transactions import (
    DIRECTORY,
    has_entries,
    no_database,
    rocksdb_entries,
)
from rmqtx.readers.store.store import ROCKSDB_HALF_TOPIC, Store
from rmqtx.verdicts.compared.rocksdb_queues import table_end_findings

_KEYS_AT_ONCE = 1000
_KEY_CHARACTERS_MAX = 400
#: Directories below config/, and what they contain. Source: docs/formats/cursors.md#rocksdb.
_OF_SETTINGS = {
    "topics": "topics", "subscriptionGroups": "settings of consumer groups", "consumerOffsets": "cursors",
    "metadata": "topics, settings of consumer groups and cursors", "rdb": "topics, settings of consumer groups and "
    "cursors",
}


def rocksdb_table_findings(store: Store, ranges: LogRanges, *, with_records: bool) -> Iterator[Finding]:
    """Return the faults of the table of transactions in RocksDB; nothing for an empty table.

    `with_records`: also look up the half of each key. A key before the log's beginning is no fault: the broker deletes
    it at its next check.
    Order:  the database's own damage, then keys by offset.
    Damage: database-unread, database-entry; at most 100 keys that contradict the log.
    """
    is_used = any(design.word == ROCKSDB for design in designs_of(store))
    if not has_entries(store):
        if is_used:
            yield no_database(store)
        return
    found = rocksdb_entries(store)
    yield from (finding for finding in found.findings if is_used or finding.code != "database-unread")
    if found.entries is None or not with_records:
        return
    yield from islice(_wrong_keys(store, found.entries, ranges), FINDINGS_MAX)
    yield from table_end_findings(store, found.last_offset, ranges.end_offset, is_complete=found.is_complete)


def _wrong_keys(store: Store, entries: pa.Table, ranges: LogRanges) -> Iterator[Finding]:
    places = np.asarray(entries["half_commit_log_offset"])
    held = entries.filter(pa.array((places >= ranges.begin_offset) & ~ranges.is_damaged(places)))
    log = store.log()
    try:
        for begin in range(0, held.num_rows, _KEYS_AT_ONCE):
            keys = held.slice(begin, _KEYS_AT_ONCE).to_pylist()
            blocks = list(blocks_at(log, [key["half_commit_log_offset"] for key in keys]))
            halves = {
                row["commit_log_offset"]: (row["topic"], row["real_topic"], row["transaction_id"], length)
                for block in blocks
                for row, length in zip(
                    halves_of(block, store.root, JUDGED_HALVES).to_pylist(), block.lengths.tolist(), strict=True
                )
            }
            for key in keys:
                half = halves.get(key["half_commit_log_offset"])
                wanted = (ROCKSDB_HALF_TOPIC, key["topic"], key["transaction_id"], key["record_length_bytes"])
                if key["transaction_id"] is not None and half != wanted:
                    yield _wrong_key(store, key, half)
    finally:
        log.close()


def _wrong_key(store: Store, key: dict[str, object], half: tuple[object, ...] | None) -> Finding:
    place = key["half_commit_log_offset"]
    assert isinstance(place, int)
    actual, words = "no record begins there", str(key["key"])[:_KEY_CHARACTERS_MAX]
    if half is not None:
        actual = f"a record of {half[3]} bytes in {half[0]} for {half[1]}, transaction {half[2]}"
    return Finding(
        store.root, "database-entry", store.place(DIRECTORY), commit_log_offset=place,
        expected=f"the half of {words}, {key['record_length_bytes']} bytes", actual=actual,
    )


# The RocksDB databases of a store that its broker opens and that no other part of a verification reads whole.
#
# Topics, groups and cursors with storeType=defaultRocksDB or configManagerVersion=v2, and the database of
# transactions, which every broker from 5.4.0 on opens when it starts, used or not.


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
