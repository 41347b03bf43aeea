"""The files of a bundle beside the log: reduced queues, cursors, checkpoint, and files that show the version."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from rmqtx.readers.cursors import check_cursors, read_cursors
from rmqtx.readers.index.record_keys import record_offset
from rmqtx.readers.log.light_queues import PREFIX, light_queues, slot_offsets
from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.model.java_hashes import java_hash
from rmqtx.readers.store.checkpoint import CHECKPOINT_FIELDS, SIZE_BYTES, checkpoint_values
from rmqtx.readers.store.fastjson import chosen_cursor_file, read_config
from rmqtx.readers.store.store import (
    CHECK_GROUP,
    DISCARD_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    OP_TOPICS,
    OWN_ABORT,
    SCHEDULE_TOPIC,
    Store,
)
from rmqtx.readers.store.version_signs import (
    CLUSTER_TOPICS,
    MISSPELT_TIME,
    REPLY_SUFFIX,
    VERSION_MARKS,
    has_reply_topic,
)
from rmqtx.repairs.bundles.files import KeptSlots, PlannedFile, planned_queue
from rmqtx.repairs.bundles.redaction import SYSTEM_NAMES, Redactor
from rmqtx.repairs.bundles.selection import Selection
from rmqtx.verdicts.check.check_stops import BUNDLED_STOPS_FILE, stops_as_json
from rmqtx.verdicts.evidence.store_facts import StoreFacts

#: Files of RocksDB in place of a store's own files; only their existence matters.
_ROCKSDB_MARKS = (
    "consumequeue/CURRENT", "consumequeue_rocksdb/CURRENT", "config/consumerOffsets/CURRENT",
    "config/metadata/CURRENT", "config/rdb/CURRENT",
)
_NAME_BYTES_MAX = 255
_WHOLE_BYTES_MAX = 1 << 20
Naming = Callable[[str], str]


def naming(redactor: Redactor | None) -> Naming:
    """Return a function from a name in the store to its name in the bundle."""
    return (lambda name: name) if redactor is None else redactor.text


def planned_queues(selection: Selection, redactor: Redactor | None) -> Iterator[PlannedFile]:
    """Yield the queues of the transactions' topics, and the queues of kept records, light ones too."""
    store, name_of = selection.store, naming(redactor)
    offsets = np.array(sorted(selection.records), np.int64)
    tags_codes = _tags_codes(selection, redactor)
    names = {(topic, 0) for topic in (HALF_TOPIC, OP_TOPIC, DISCARD_TOPIC)} | selection.slots.keys()
    whole = frozenset(names)
    names |= {(one.topic, one.queue_id) for one in selection.records.values()}
    light = {one for one in light_queues(store) if np.isin(slot_offsets(store, [one]), offsets).any()}
    whole, names = whole | light, names | light
    for topic, queue_id in sorted(names):
        renamed = f"{PREFIX}{name_of(topic.removeprefix(PREFIX))}" if topic.startswith(PREFIX) else name_of(topic)
        if not (_is_file_name(topic) and _is_file_name(renamed) and queue_id >= 0):
            continue
        directory = f"store/consumequeue/{renamed}/{queue_id}"
        claimed = (
            one.queue_offset for one in selection.records.values() if (one.topic, one.queue_id) == (topic, queue_id)
        )
        forced = frozenset(selection.slots.get((topic, queue_id), ()))
        kept = KeptSlots(offsets, frozenset(claimed), forced, tags_codes)
        yield from planned_queue(store, topic, queue_id, directory, kept, whole=(topic, queue_id) in whole)


def _is_file_name(name: str) -> bool:
    """Whether a topic can be the name of a directory: a damaged store may contain any text."""
    raw = name.encode("utf-8", "surrogateescape")
    return 0 < len(raw) <= _NAME_BYTES_MAX and not (set(raw) & {0, ord("/")}) and name not in (".", "..")


def _tags_codes(selection: Selection, redactor: Redactor | None) -> dict[int, int]:
    """The tags codes for the slots of kept records, without addresses in extension files, which a bundle lacks."""
    codes: dict[int, int] = {}
    for one in selection.records.values():
        if one.topic == SCHEDULE_TOPIC:  # a time
            continue
        tags = one.tags if redactor is None or one.topic in OP_TOPICS else redactor.value(one.tags)
        code = java_hash(tags) if tags else 0
        if code != java_hash(one.tags) or _is_extended(selection.store, one.topic, one.queue_id):
            codes[one.offset] = code
    return codes


def _is_extended(store: Store, topic: str, queue_id: int) -> bool:
    return _is_file_name(topic) and store.has("consumequeue_ext", topic, str(queue_id))


# --- small files ------------------------------------------------------------------------------------------------------


def small_files(selection: Selection, facts: StoreFacts, redactor: Redactor | None) -> Iterator[PlannedFile]:
    """Yield cursors, topics, checkpoint, `abort`, and empty files in place of files that distinguish versions.

    Shape: a path may occur twice; the first one counts.
    """
    store = selection.store
    name_of = naming(redactor)
    raw = frozenset(selection.files if redactor is None else ())
    for name in sorted(raw):
        yield from _whole(store, name)
    file_name = chosen_cursor_file(store).file.name
    cursors = None if f"config/{file_name}" in raw else _cursors(selection, name_of)
    if cursors is not None:
        yield PlannedFile.of(f"store/config/{file_name}", _json(cursors))
    topics = None if "config/topics.json" in raw else _topics(selection, name_of)
    if topics is not None:
        yield PlannedFile.of("store/config/topics.json", _json(topics))
    if facts.check_stops:
        yield PlannedFile.of(f"store/config/{BUNDLED_STOPS_FILE}", _json(stops_as_json(facts.check_stops)))
    if "checkpoint" not in raw:
        values = checkpoint_times(store, facts.reference_time_ms) | _without_left_out(store)
        yield PlannedFile.of("store/checkpoint", CHECKPOINT_FIELDS.pack(**values).ljust(SIZE_BYTES, b"\0"))
    if store.aborted:
        yield PlannedFile.of("store/abort", _abort_of(store))
    for mark in _ROCKSDB_MARKS:
        if store.size_bytes(*mark.split("/")):
            yield PlannedFile.of(f"store/{mark}", b"\n")
    if store.size_bytes("lock"):  # since 4.0, with a word in it
        yield PlannedFile.of("store/lock", b"lock")
    for mark in (*VERSION_MARKS, "config/consumerFilter.json"):
        if not is_directory(store, mark) and store.has(*mark.split("/")):
            yield PlannedFile.of(f"store/{mark}", b"")


def directories(store: Store) -> list[str]:
    """Return the directories of the bundle that may be empty: their existence matters."""
    found = [f"store/{mark}" for mark in VERSION_MARKS if is_directory(store, mark)]
    return ["store/commitlog", "store/config", *found]


def is_directory(store: Store, mark: str) -> bool:
    """Whether a place below the store's root is a directory."""
    try:
        entry = store.files.entry(store.place(*mark.split("/")))
    except OSError:
        return False
    return entry is not None and entry.is_directory


def _whole(store: Store, name: str) -> Iterator[PlannedFile]:
    """Yield a small file that a finding concerns, and its backup, unchanged, if they exist."""
    for part in (name, f"{name}.bak"):
        data = store.files.content(store.place(*part.split("/")), _WHOLE_BYTES_MAX)
        if data is not None:
            yield PlannedFile.of(f"store/{part}", data[:_WHOLE_BYTES_MAX])


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True).encode("ascii") + b"\n"


def _cursors(selection: Selection, name_of: Naming) -> dict[str, object] | None:
    """The check's cursors, and cursors of groups on the queues of COMMIT records; None where cursors are unknown.

    Where the file has no cursor of the check, the smallest remaining queue offset is written, where the check begins.
    """
    store = selection.store
    check = check_cursors(store)
    if check.half is None or check.op is None:
        return None
    table: dict[str, dict[str, int]] = {}
    for topic, queues in ((HALF_TOPIC, check.half), (OP_TOPIC, check.op)):
        if queues:
            table[f"{topic}@{CHECK_GROUP}"] = {str(number): cursor for number, cursor in queues.items()}
    finals = {
        (final.topic, final.queue_id) for row in selection.every for final in row.final_records
    }
    for row in read_cursors(store).table().to_pylist():
        is_found = (row["topic"], row["group"], row["queue_id"]) in selection.cursors
        if is_found or (row["topic"], row["queue_id"]) in finals:
            key = f"{name_of(row['topic'])}@{name_of(row['group'])}"
            table.setdefault(key, {})[str(row["queue_id"])] = row["next_queue_offset"]
    found: dict[str, object] = {"offsetTable": table}
    value = chosen_cursor_file(store).config.value
    if isinstance(value, dict) and "dataVersion" in value:  # since 5.0.0
        found["dataVersion"] = {"counter": 0, "stateVersion": 0, "timestamp": 0}
    return found


def _topics(selection: Selection, name_of: Naming) -> dict[str, object] | None:
    """The topics of kept records and transactions, and topics that brokers create themselves.

    The second distinguish versions; a cause depends on whether the broker has the topic of a half message.
    """
    value = read_config(selection.store, "topics.json").value
    topics = value.get("topicConfigTable") if isinstance(value, dict) else None
    if not isinstance(topics, dict):
        return None
    own = {one.topic for one in selection.records.values()}
    own |= {final.topic for row in selection.rows for final in row.final_records}
    own |= {row.topic for row in selection.rows if row.topic is not None}
    kept = {topic: name_of(topic) for topic in topics if topic in own}
    names = {topic for topic in topics if topic in SYSTEM_NAMES or topic.startswith("RMQ_SYS_")}
    for prefix in CLUSTER_TOPICS:
        if any(topic.startswith(prefix) for topic in topics):
            names.add(f"{prefix}cluster")
    if has_reply_topic(topics):
        names |= {"cluster", f"cluster{REPLY_SUFFIX}"}
    table = {name: _topic(name, topics.get(name)) for name in sorted(names)}
    table |= {name: _topic(name, topics.get(topic)) for topic, name in sorted(kept.items())}
    found: dict[str, object] = {"topicConfigTable": table}
    data_version = value.get("dataVersion") if isinstance(value, dict) else None
    if isinstance(data_version, dict) and MISSPELT_TIME in data_version:  # before 4.0
        found["dataVersion"] = {"counter": 0, MISSPELT_TIME: 0}
    return found


def _topic(name: str, config: Any) -> dict[str, object]:
    kept: Mapping[str, Any] = config if isinstance(config, dict) else {}
    numbers = ("readQueueNums", "writeQueueNums", "perm", "topicSysFlag")
    return {"topicName": name, **{key: kept[key] for key in numbers if isinstance(kept.get(key), int)}}


def _abort_of(store: Store) -> bytes:
    """The content of `abort`: a substitute for the process id (5.0 and later); content written by rmqtx stays."""
    if not store.size_bytes("abort"):
        return b""
    return b"1" if store.in_use or store.was_killed else OWN_ABORT


def checkpoint_times(store: Store, reference_time_ms: int) -> dict[str, int]:
    """Return the checkpoint's values, the first raised to the store's reference time if that is later.

    The reference time may come from the last half or op message alone, which the bundle may leave out.
    """
    values = {name: value for name, value in checkpoint_values(store).items() if name in CHECKPOINT_FIELDS.offsets}
    known = max(values.get("physic_msg_time_ms", 0), values.get("logics_msg_time_ms", 0))
    if reference_time_ms > known:
        values["physic_msg_time_ms"] = reference_time_ms
    return values


def _without_left_out(store: Store) -> dict[str, int]:
    """Return the checkpoint's offset in the queues as 0, as after a clean stop, if the store has the record there.

    The bundle may leave that record out; its log would seem to be cut.
    """
    offset = record_offset(store)
    with store.log() as log:
        return {"logics_offset": 0} if offset > 0 and block_at(log, offset) is not None else {}


def last_time_ms(values: dict[str, int]) -> int:
    """Return the latest time in a checkpoint's values."""
    return max(values.get(name, 0) for name in ("physic_msg_time_ms", "logics_msg_time_ms", "index_msg_time_ms"))
