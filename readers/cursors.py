"""Read the cursors of consumer groups, and of the transaction check, from a file in config/ or from RocksDB.

`offsetTable` holds the cursors. `pullOffsetTable` (5.5.0) has the same form, but holds the offsets up to which groups
have pulled, which is another number and not used here.

RocksDB has three forms (docs/formats/cursors.md#rocksdb): a separate database (storeType=defaultRocksDB) and one
database for all configurations (useSingleRocksDBForAllConfigs, 5.4.0+), both with JSON values as in the file, and the
binary second version (configManagerVersion=v2, 5.3.2+). All are flushed every few seconds, like the file.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa

from rmqtx.readers.model.errors import BadText, SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.layout import Field, Layout, VariablePart
from rmqtx.readers.model.reading import Coverage, Reading
from rmqtx.readers.model.tables import CURSORS
from rmqtx.readers.rocksdb.rocksdb import DEFAULT, Database, has_database, open_database, unread
from rmqtx.readers.store.fastjson import Config, chosen_cursor_file, parse, read_config
from rmqtx.readers.store.paths import CursorFile
from rmqtx.readers.store.store import CHECK_GROUP, HALF_TOPIC, OP_TOPIC, Store

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
    )


BATCH_ROWS = 65_536

_QUEUE_ID = re.compile(r"[0-9]{1,10}")
_Cursor = tuple[str, str, int, int]


@dataclass(slots=True)
class CheckCursors:
    """The cursors of the transaction check: queue number → queue offset of the next half message, or op message.

    Shape: None if unknown; empty if the file has no cursor of the check, which then begins at the smallest queue offset
           that exists (docs/formats/half_and_op.md#check-start). `name`: the file in config/ in which a broker with
           these settings keeps its cursors, None for a database. `is_supposed`: the caller chose these cursors.
    """

    half: dict[int, int] | None
    op: dict[int, int] | None
    findings: list[Finding] = field(default_factory=list)
    file: str | None = None
    name: str | None = None
    is_supposed: bool = False


def read_cursors(store: Store) -> Reading:
    """Return every cursor of every consumer group.

    Shape:  rows of CURSORS, at most 65,536 a batch.
    Order:  the file's.
    Damage: config-missing, config-backup, config-damaged; an entry that is not a cursor is left out and is a finding.
    Source: broker/offset/ConsumerOffsetManager.java, LmqConsumerOffsetManager.java; docs/formats/cursors.md#json.
    """
    name = chosen_cursor_file(store).file.name
    config, _ = _read(store)
    reading = Reading(CURSORS, (), findings=list(config.findings))
    cursors, strange = _cursors(store, config)
    reading.findings.extend(strange)
    for part in (name, f"{name}.bak"):
        file = store.place("config", part)
        if part != name and file != config.file:
            continue
        size = store.size_bytes("config", part)
        if size:
            used, lost = (size, 0) if file == config.file else (0, size)
            reading.coverage.append(Coverage(store.root, file, size, decoded_bytes=used, damaged_bytes=lost))
    reading.batches = _batches(store, config.file, cursors)
    return reading


def check_cursors(store: Store) -> CheckCursors:
    """Return the cursors of the transaction check (group CID_RMQ_SYS_TRANS).

    Damage: config-missing, config-backup, config-damaged.
    Source: broker/transaction/queue/TransactionalMessageBridge.java fetchConsumeOffset;
            docs/formats/half_and_op.md#check.
    """
    return _check_cursors(store, *_read(store))


def cursors_of_file(store: Store, file: CursorFile) -> CheckCursors:
    """Return the cursors of the transaction check in a given file, even if the broker uses the other one."""
    return _check_cursors(store, read_config(store, file.name), file.name)


def _check_cursors(store: Store, config: Config, name: str | None) -> CheckCursors:
    cursors, strange = _cursors(store, config)
    findings = [*config.findings, *strange]
    if not _is_known(config):
        return CheckCursors(None, None, findings, config.file, name)
    mine: dict[str, dict[int, int]] = {HALF_TOPIC: {}, OP_TOPIC: {}}
    for topic, group, queue_id, offset in cursors:
        if group == CHECK_GROUP and topic in mine:
            mine[topic][queue_id] = offset
    return CheckCursors(mine[HALF_TOPIC], mine[OP_TOPIC], findings, config.file, name)


def transaction_metrics(store: Store) -> dict[str, int] | None:
    """Return the broker's count of open transactions by real topic (5.2.0+); None if the file does not exist.

    rocketmq-rust writes `topics` in place of `transactionCount`.

    The count drifts: repeated decisions count twice, a restart loses up to 3 s.
    Source: docs/formats/cursors.md#transaction-metrics.
    """
    value = read_config(store, "transactionMetrics").value
    counts = _entry(value, "transactionCount")
    if counts is None:
        counts = _entry(value, "topics")
    if not isinstance(counts, dict):
        return None
    found = {topic: _entry(metric, "count") for topic, metric in counts.items()}
    return {topic: count for topic, count in found.items() if _is_integer(count)}


def _read(store: Store) -> tuple[Config, str | None]:
    """Return the cursors' source, and the name of the file; None for a database."""
    chosen = chosen_cursor_file(store)
    config = chosen.config
    found = rocksdb_cursors(store)
    if found is not None and _is_newer(found, config):
        value = None if found.table is None else {"offsetTable": found.table}
        twice = [] if config.file is None else [_twice(store, found.place, config.file)]
        return Config(value, [*found.findings, *twice], found.place), None
    if config.file is None:
        return config._replace(findings=_with_place(store, config.findings)), chosen.file.name
    findings = list(config.findings)
    if chosen.finding is not None:
        findings.append(chosen.finding)
    if found is not None:
        findings.append(_twice(store, config.file, found.place))
    if not _is_known(config):
        expected = "a JSON object with an object offsetTable"
        findings.append(Finding(store.root, "config-damaged", config.file, expected=expected, actual="another value"))
    return config._replace(findings=findings), chosen.file.name


def _with_place(store: Store, findings: list[Finding]) -> list[Finding]:
    """Return the findings of missing cursors, with advice that names the database that the broker may have had."""
    database = lost_cursor_database(store)
    if database is None:
        return findings
    advice = f"restore {database}, or config/consumerOffset.json if the broker had that file, from a backup"
    return [replace(one, advice=advice) if one.code == "config-missing" else one for one in findings]


def lost_cursor_database(store: Store) -> str | None:
    """Return the directory in which a broker without a file of cursors had them, as far as other files show it.

    Each broker with settings in files writes config/topics.json; `rocksdbstore` is there from 5.4.0 on, with settings
    of both kinds (5.5.0 with configManagerVersion=v2 has neither file).
    """
    if store.has_rocksdb_settings:
        return "config/consumerOffsets"
    has_topics = any(store.has("config", name) for name in ("topics.json", "topics.json.bak"))
    return "config/rdb" if store.has("config") and store.has("rocksdbstore") and not has_topics else None


def _is_newer(found: RocksdbCursors, config: Config) -> bool:
    """Whether a broker with cursors in RocksDB would use them at its start, and not import the file.

    Source: broker/config/v1/RocksDBConsumerOffsetManager.java merge (5.5.0).
    """
    if config.file is None:
        return True
    counter = _entry(_entry(config.value, "dataVersion"), "counter")
    return found.table is not None and (found.version or 0) >= (counter if _is_integer(counter) else 0)


def _twice(store: Store, used: str, other: str) -> Finding:
    actual = f"cursors in both; those in {other} are not used"
    return Finding(store.root, "cursors-twice", used, expected="cursors in a file or in RocksDB", actual=actual)


def _is_known(config: Config) -> bool:
    return isinstance(_entry(config.value, "offsetTable"), dict)


def _cursors(store: Store, config: Config) -> tuple[list[_Cursor], list[Finding]]:
    cursors: list[_Cursor] = []
    strange: list[str] = []
    table = _entry(config.value, "offsetTable")
    for key, queues in table.items() if isinstance(table, dict) else ():
        topic, separator, group = key.rpartition("@")  # %RETRY%group@group: neither name can contain an @
        if not separator or not isinstance(queues, dict):
            strange.append(key)
            continue
        for number, offset in queues.items():
            if _QUEUE_ID.fullmatch(number) and int(number) < 2**31 and _is_integer(offset):
                cursors.append((topic, group, int(number), offset))
            else:
                strange.append(f"{key} queue {number}")
    light = _entry(config.value, "lmqOffsetTable")  # light queues have one queue, whose number is not written
    for key, offset in light.items() if isinstance(light, dict) else ():
        topic, separator, group = key.rpartition("@")
        if separator and _is_integer(offset):
            cursors.append((topic, group, 0, offset))
        else:
            strange.append(key)
    if not strange:
        return cursors, []
    more = f" and {len(strange) - 1} more" if len(strange) > 1 else ""
    finding = Finding(
        store.root, "config-damaged", config.file,
        expected="topic@group with queue numbers and offsets", actual=f"{strange[0][:200]}{more}",
        meaning="the cursors of these entries are unknown",
    )
    return cursors, [finding]


def _batches(store: Store, file: str | None, cursors: list[_Cursor]) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(cursors), BATCH_ROWS):
        topics, groups, queue_ids, offsets = zip(*cursors[first : first + BATCH_ROWS], strict=True)
        count = len(topics)
        columns = [
            pa.array([store.root] * count, pa.string()),
            pa.array([file] * count, pa.string()),
            pa.array([_plain(topic) for topic in topics], pa.string()),
            pa.array([_plain(group) for group in groups], pa.string()),
            pa.array(queue_ids, pa.int32()),
            pa.array(offsets, pa.int64()),
        ]
        yield pa.record_batch(columns, schema=CURSORS)


def _entry(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _plain(text: str) -> str:
    """Return the text with lone surrogates, which UTF-8 cannot encode, as backslash escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
