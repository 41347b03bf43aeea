"""Read consumer groups' cursors that brokers keep in RocksDB instead of config/consumerOffset.json.

Three forms (docs/formats/cursors.md#rocksdb): a separate database (storeType=defaultRocksDB) and one database for all
configurations (useSingleRocksDBForAllConfigs, 5.4.0+), both with JSON values as in the file, and the binary second
version (configManagerVersion=v2, 5.3.2+). All are flushed every few seconds, like the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rmqtx.readers.model.errors import BadText, SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.layout import Field, Layout, VariablePart
from rmqtx.readers.rocksdb.rocksdb import DEFAULT, Database, has_database, open_database, unread
from rmqtx.readers.store.fastjson import parse
from rmqtx.readers.store.store import Store

OFFSET_TABLE = "offsetTable"


class CursorDatabase(NamedTuple):
    """One form of cursors in RocksDB.

    The directory below config/, the column family, the setting, and the column family of the table's version.
    """

    directory: str
    family: str
    setting: str
    version_family: str | None = None


FORMS = (
    CursorDatabase("consumerOffsets", DEFAULT, "storeType=defaultRocksDB", "kvDataVersion"),
    CursorDatabase("metadata", "consumerOffset", "useSingleRocksDBForAllConfigs=true", "consumerOffsetVersion"),
    CursorDatabase("rdb", DEFAULT, "configManagerVersion=v2"),
)
SECOND_VERSION = FORMS[2]

CURSOR_KEY = Layout(
    "rocksdb_cursor_key",
    "Key of a cursor in RocksDB, second version",
    (
        Field("table_mark", "b", "1: a table"),
        Field("table", "h", "1: consumer offsets; 2 pull offsets, 3 topics, 4 subscription groups"),
        Field("record_mark", "b", "2: data; 1 the table's version"),
        Field("group_length_bytes", "H", "length of the group", "byte"),
    ),
    6,
    "broker/config/v2/ConsumerOffsetManagerV2.java, docs/formats/cursors.md#rocksdb",
    (
        VariablePart("group", "group_length_bytes + 1", "UTF-8, and a byte 01"),
        VariablePart("topic", "2 + its length + 1", "length, UTF-8, and a byte 01"),
        VariablePart("queue_id", "4", "queue number; the value is the queue offset, 8 bytes"),
    ),
    since="5.3.2",
)
_OFFSETS_OF_GROUPS = struct.pack(">bhb", 1, 1, 2)


@dataclass(slots=True)
class RocksdbCursors:
    """Cursors in the form of the file: topic@group → queue number as text → queue offset; None if unknown.

    Shape: `version` is the number of changes, like the file's dataVersion; 0 before the first change, None in the
           second version.
    """

    place: str
    table: dict[str, Any] | None
    version: int | None = None
    findings: list[Finding] = field(default_factory=list)


def cursor_databases(store: Store) -> list[CursorDatabase]:
    """Return the forms of cursors in RocksDB that the store has. Order: as in FORMS."""
    return [form for form in FORMS if has_database(store, "config", form.directory)]


def rocksdb_cursors(store: Store) -> RocksdbCursors | None:
    """Return the cursors of the store's first configuration database that has any; None without a database.

    Damage: database-unread, database-entry.
    Source: broker/config/v1/RocksDBConsumerOffsetManager.java, broker/config/v2/ConsumerOffsetManagerV2.java.
    """
    found = None
    for form in cursor_databases(store):
        found = RocksdbCursors(store.place("config", form.directory), None)
        try:
            with open_database(store, "config", form.directory) as database:
                found.table = _table(store, database, form, found.findings)
                found.version = _version(database, form)
        except SourceError as error:
            found.findings.append(unread(store, found.place, error))
            return found
        if found.table:
            return found
    return found


def _table(store: Store, database: Database, form: CursorDatabase, findings: list[Finding]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    if form is SECOND_VERSION:
        end = _OFFSETS_OF_GROUPS[:-1] + bytes([_OFFSETS_OF_GROUPS[-1] + 1])
        for key, value in database.items(form.family, _OFFSETS_OF_GROUPS, end):
            parsed = _second_version(key)
            if parsed is None or len(value) != 8:
                findings.append(_strange(store, database, key))
                continue
            name, queue_id = parsed
            table.setdefault(name, {})[str(queue_id)] = int.from_bytes(value, "big", signed=True)
        return table
    for key, value in database.items(form.family):
        queues = _queues(value)
        if queues is None:
            findings.append(_strange(store, database, key))
        else:
            table[key.decode("utf-8", "surrogateescape")] = queues
    return table


def _version(database: Database, form: CursorDatabase) -> int | None:
    if form.version_family is None:
        return None
    for _, value in database.items(form.version_family):
        try:
            content = parse(value.decode("utf-8"))
        except (BadText, UnicodeDecodeError):
            continue
        counter = content.get("counter") if isinstance(content, dict) else None
        if isinstance(counter, int):
            return counter
    return 0


def _queues(value: bytes) -> dict[str, Any] | None:
    try:
        content = parse(value.decode("utf-8"))
    except (BadText, UnicodeDecodeError):
        return None
    queues = content.get(OFFSET_TABLE) if isinstance(content, dict) else None
    return queues if isinstance(queues, dict) else None


def _second_version(key: bytes) -> tuple[str, int] | None:
    """Return topic@group and the queue number of a key of the second version."""
    parts = list(_words(key, CURSOR_KEY.size_bytes - 2))
    if len(parts) != 2 or len(key) != parts[1][1] + 4:
        return None
    (group, _), (topic, end) = parts
    return f"{topic}@{group}", int.from_bytes(key[end:], "big", signed=True)


def _words(key: bytes, position: int) -> Iterator[tuple[str, int]]:
    """Return two texts, each stored after its length and before a mark byte, and the end of each."""
    for _ in range(2):
        begin = position + 2
        end = begin + int.from_bytes(key[position:begin], "big")
        if key[end : end + 1] != b"\x01":
            return
        position = end + 1
        yield key[begin:end].decode("utf-8", "surrogateescape"), position


def _strange(store: Store, database: Database, key: bytes) -> Finding:
    return Finding(
        store.root, "database-entry", database.directory,
        expected="topic@group with queue numbers and offsets", actual=repr(key[:200]),
    )  # fmt: skip
