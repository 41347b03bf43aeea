"""Read the transactions that a broker keeps in RocksDB (5.4.0+, transRocksDBEnable): family `trans` of `rocksdbstore`.

A key stands for a half message that the check will reach; it is deleted when an op message is dispatched, or after the
last check. After a clean stop the family is complete. For a running or a killed broker it is as of the last flush: a
half message after `last_offset` is open unless the commit log shows a decision, regardless of the family
(docs/formats/rocksdb_transactions.md#on-disk, docs/formats/rocksdb_transactions.md#open).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from rmqtx.readers.model.errors import SourceError, UnreadableFile
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.layout import Field, Layout, VariablePart
from rmqtx.readers.model.reading import Note, NoteKind, Reading
from rmqtx.readers.model.tables import ROCKSDB_TRANSACTIONS
from rmqtx.readers.rocksdb.rocksdb import CURRENT, has_database, open_database, unread
from rmqtx.readers.store.store import Store

DIRECTORY, FAMILY = "rocksdbstore", "trans"
LAST_OFFSET = b"lastOffsetPy"
SEPARATOR = b"@"
_SOURCE = "store/transaction/TransRocksDBRecord.java, docs/formats/rocksdb_transactions.md#table"

TRANSACTION_KEY = Layout(
    "rocksdb_transaction_key",
    "Key of an open transaction in RocksDB",
    (Field("half_commit_log_offset", "q", "commit-log offset of the half message", "byte"),),
    8,
    _SOURCE,
    (
        VariablePart("topic", "to the last @", "@ and the real topic"),
        VariablePart("transaction_id", "to the end", "@ and the property __transactionId__"),
    ),
    since="5.4.0",
)
TRANSACTION_VALUE = Layout(
    "rocksdb_transaction_value",
    "Value of an open transaction in RocksDB",
    (
        Field("checks_count", "i", "checks sent so far"),
        Field("record_length_bytes", "i", "length of the half message", "byte"),
    ),
    8,
    _SOURCE,
    since="5.4.0",
)
LAST_OFFSET_VALUE = Layout(
    "rocksdb_last_offset",
    "Value of the key lastOffsetPy in RocksDB",
    (Field("half_commit_log_offset", "q", "largest commit-log offset of a half message that was dispatched", "byte"),),
    8,
    "store/transaction/TransMessageRocksDBStore.java, docs/formats/rocksdb_transactions.md#table",
    since="5.4.0",
)

#: The result if there is no database, or if it was not read.
UNKNOWN_OFFSET = -1


@dataclass(slots=True)
class RocksdbEntries:
    """The entries of the database.

    Shape: `entries` are rows of ROCKSDB_TRANSACTIONS, None if the database was not read; `last_offset` is −1 before
           the first half message; `is_complete` after a clean stop, when the check reaches only half messages in it.
    Order: commit-log offset.
    Units: bytes of the commit log.
    """

    entries: pa.Table | None
    last_offset: int = UNKNOWN_OFFSET
    is_complete: bool = False
    findings: list[Finding] = field(default_factory=list)


def has_entries(store: Store) -> bool:
    """Whether the store has the database, which every broker from 5.4.0 on creates, used or not."""
    return has_database(store, DIRECTORY)


def no_database(store: Store) -> Finding:
    """Return the finding for a log with half messages of transactions in RocksDB if there is no database."""
    place = store.place(DIRECTORY)
    what = f"it has no file {CURRENT}" if store.has(DIRECTORY) else "no directory of this name"
    return Finding(store.root, "database-unread", place, expected="the database of the log's transactions", actual=what)


def rocksdb_entries(store: Store) -> RocksdbEntries:
    """Return the open transactions in the database, and the offset up to which it was built.

    Damage: database-unread if it cannot be read, or the library is not installed; database-entry for other entries.
    Source: store/transaction/TransMessageRocksDBStore.java; docs/formats/rocksdb_transactions.md#table,
            docs/formats/rocksdb_transactions.md#reading.
    """
    if not has_entries(store):
        return RocksdbEntries(None)
    try:
        return _read(store)
    except SourceError as error:
        return RocksdbEntries(None, findings=[unread(store, store.place(DIRECTORY), error)])


def _read(store: Store) -> RocksdbEntries:
    place = store.place(DIRECTORY)
    rows = []
    found = RocksdbEntries(None, is_complete=not store.in_use and not store.aborted)
    with open_database(store, DIRECTORY) as database:
        for key, value in database.items(FAMILY):
            if key == LAST_OFFSET:
                if len(value) != LAST_OFFSET_VALUE.size_bytes:  # then it is unknown which half messages the table lacks
                    raise UnreadableFile(
                        f"the offset up to which {place} was built is unknown: the value of {LAST_OFFSET.decode()} has "
                        f"{len(value)} "
                        f"bytes, not {LAST_OFFSET_VALUE.size_bytes}",
                        file=place, advice="only the commit log is used in its place",
                    )
                found.last_offset = LAST_OFFSET_VALUE.unpack(value)["half_commit_log_offset"]
            elif len(key) < TRANSACTION_KEY.size_bytes or len(value) != TRANSACTION_VALUE.size_bytes:
                found.findings.append(_strange(store, place, key, value))
            else:
                rows.append({"store": store.root, "file": place, **entry_of(key, value)})
    found.entries = pa.Table.from_pylist(rows, schema=ROCKSDB_TRANSACTIONS)
    return found


def read_rocksdb_transactions(store: Store) -> Reading:
    """Return the open transactions in the database as a reading.

    Shape: rows of ROCKSDB_TRANSACTIONS.
    Order: commit-log offset.
    Damage: database-entry.
    Raises: UnreadableFile if the database cannot be read, MissingLibrary.
    """
    reading = Reading(ROCKSDB_TRANSACTIONS, ())
    if not store.has(DIRECTORY):
        why = f"{store.root} has no {DIRECTORY}: brokers before 5.4.0 do not create it"
        reading.notes.append(Note(NoteKind.WHY, why))
        return reading
    found = _read(store)
    assert found.entries is not None
    reading.batches, reading.findings = found.entries.to_batches(), found.findings
    reading.notes.append(_how_old(store, found))
    return reading


def _how_old(store: Store, found: RocksdbEntries) -> Note:
    upto = "no half message" if found.last_offset < 0 else f"half messages up to commit-log offset {found.last_offset}"
    if found.is_complete:
        return Note(NoteKind.HOW, f"the database is complete ({upto})")
    return Note(NoteKind.WHY, f"the database ends at its last flush ({upto}), because {store.why_unclean}")


def entry_of(key: bytes, value: bytes) -> dict[str, object]:
    """Return the columns that a key and a value of these lengths have."""
    place = TRANSACTION_KEY.unpack(key)["half_commit_log_offset"]
    words = key[TRANSACTION_KEY.size_bytes :].split(SEPARATOR)
    topic, transaction_id = (None, None) if len(words) != 3 or words[0] else (_text(words[1]), _text(words[2]))
    return {
        "half_commit_log_offset": place,
        "topic": topic,
        "transaction_id": transaction_id,
        "key": f"{place}{_text(key[TRANSACTION_KEY.size_bytes :])}",
        **TRANSACTION_VALUE.unpack(value),
    }


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _strange(store: Store, place: str, key: bytes, value: bytes) -> Finding:
    return Finding(
        store.root, "database-entry", place,
        expected="a key OFFSET@TOPIC@ID with a value of 8 bytes",
        actual=f"key {_text(key[:200])} with a value of {len(value)} bytes",
    )
