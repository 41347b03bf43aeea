"""What may be done to a stopped broker's files: stores that nothing is appended to, and records that would be other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from readers.model.errors import FormatError, StoreInUse, UnsafeStore
from readers.model.releases import STORE_LOCK, Version
from readers.store.broker_settings import BrokerSettings, broker_settings
from readers.store.fastjson import read_config
from readers.store.store import (
    DISCARD_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    WAITING_TOPICS,
    Store,
)
from repairs.acts.situation import Situation
from repairs.changes.brokers_without_lock import require_not_mapped
from repairs.changes.in_progress_mark import require_nothing_begun
from repairs.receipts.plan_file import ACTIONS
from repairs.records.prepared_records import commit_record_of
from repairs.records.record_writer import Draft, WritingRules, draft_of, final_of, property_values

#: Properties that make a broker put a message off, or into further queues, instead of appending it as it is.
_DIVERTING = re.compile(rb"DELAY|TIMER_(DELAY|DELIVER|OUT)_\w+|INNER_MULTI_DISPATCH|INNER_NUM")
_ROCKSDB_CONFIG = (("consumerOffsets",), ("topics",), ("metadata",), ("rdb",))


def require_changeable(store: Store, settings: BrokerSettings, conf: Mapping[str, str]) -> Version:
    """The version of the broker whose store it is, if records may be appended to it.

    `conf`: its configuration as far as it is known.
    Raises: StoreInUse; UnsafeStore, which says why nothing is appended to it.
    """
    require_stopped_master(store, settings, conf)
    version = _version(store, settings)
    if not STORE_LOCK.holds(min(version, broker_settings(store).version_low or version)):
        require_not_mapped(store)
    return version


def require_stopped_master(store: Store, settings: BrokerSettings, conf: Mapping[str, str]) -> None:
    """Refuse a store that is in use, or that others would bring back to what it was.

    Raises: StoreInUse, UnsafeStore.
    Source: docs/formats/dledger.md#changes, docs/formats/store.md#epochs, docs/formats/recovery.md#append-rules,
            docs/formats/rocksdb_transactions.md#table.
    """
    if store.is_remote:
        raise UnsafeStore(f"{store.root} is not on this machine", advice="copy it here first")
    if store.in_use:
        who = f"process {store.used_by_process}" if store.used_by_process != -1 else "another rmqtx"
        raise StoreInUse(f"{store.root} is in use by {who}", advice="stop its broker first, or act live: -n HOST:PORT")
    require_nothing_begun(Path(store.root))
    for reason in _reasons(store, settings, conf):
        raise UnsafeStore(f"{store.root} is not changed: {reason[0]}", advice=reason[1])


def _reasons(store: Store, settings: BrokerSettings, conf: Mapping[str, str]) -> list[tuple[str, str]]:
    names = _names(store)
    master = "act on the master's files, or live"
    found = [
        (store.is_dledger or any(name.startswith("dledger-") for name in names)
         or conf.get("enableDLegerCommitLog") == "true",
         "it has a DLedger log, whose other copies would undo it", "act live: -n HOST:PORT"),
        ("epochFileCheckpoint" in names or "brokerIdentity" in names or conf.get("enableControllerMode") == "true",
         "a controller manages it (epochFileCheckpoint), and would cut off what its replicas lack",
         "act live: -n HOST:PORT"),
        (settings.broker_role == "SLAVE" or conf.get("brokerId", "0") != "0",
         "its broker is a slave, whose log must stay the master's", master),
        (store.has_rocksdb_queues, "its queues are in RocksDB (storeType=defaultRocksDB)", "act live: -n HOST:PORT"),
        (any(store.has("config", *name, "CURRENT") for name in _ROCKSDB_CONFIG),
         "its cursors and topics are in RocksDB, into which nothing is written", "act live: -n HOST:PORT"),
        (conf.get("duplicationEnable") == "true", "duplicationEnable wants a property DUP_INFO in every record",
         "switch it off first"),
    ]  # fmt: skip
    return [(why, advice) for holds, why, advice in found if holds]


def _names(store: Store) -> list[str]:
    try:
        return [entry.name for entry in store.files.entries(store.root)]
    except OSError as error:
        raise UnsafeStore(f"cannot list {store.root}: {error.strerror}", file=store.root) from error


def _version(store: Store, settings: BrokerSettings) -> Version:
    """The version, which must be said where the files leave it open, and must not contradict them.

    Raises: UnsafeStore.
    """
    low, high = settings.version_low, settings.version_high
    if low is None or low != high:
        raise UnsafeStore(
            f"which broker will open {store.root} is not known: its files say {settings.version}, and versions write "
            "other records", advice="say it: --broker-version 5.3.3",
        )
    seen = broker_settings(store)
    is_older = seen.version_low is not None and low < seen.version_low
    if is_older or (seen.version_high is not None and low > seen.version_high and not store.aborted):
        raise UnsafeStore(
            f"--broker-version {settings.version} is given, and the files of {store.root} are of a broker "
            f"{seen.version}", advice="name the version that wrote it, or let the other broker open it once first",
        )
    return low


def topic_table(store: Store) -> Mapping[str, Any]:
    """The topics that the broker knows, by name; none where it cannot be read."""
    value = read_config(store, "topics.json").value
    table = value.get("topicConfigTable") if isinstance(value, dict) else None
    return table if isinstance(table, dict) else {}


def unwritable(
    situation: Situation, rules: WritingRules, topics: Mapping[str, Any], conf: Mapping[str, str]
) -> Mapping[str, str]:
    """The actions for which the broker would write other records than those that can be appended, each with the reason.

    Shape: action → why; nothing for what can be done.
    """
    named = situation.named or situation.half_copy or situation.discard_copy
    if named is None:
        return {}
    try:
        if named.is_prepared:
            why = _no_commit_record(commit_record_of(named.raw), topics)
            return {} if why is None else {"commit": why}
        topic = draft_of(named.raw).topic
        if topic == ROCKSDB_HALF_TOPIC and conf.get("transRocksDBEnable") == "false":
            return dict.fromkeys(ACTIONS, "its half is in RocksDB, and transRocksDBEnable=false keeps its table shut")
        if topic not in (HALF_TOPIC, DISCARD_TOPIC, ROCKSDB_HALF_TOPIC):
            return dict.fromkeys(ACTIONS, f"its half message was put off: the copy that is left is in {topic}")
        why = _no_final(named.raw, rules, topics)
    except (FormatError, UnicodeDecodeError) as error:
        return dict.fromkeys(("commit", "discard", "resume"), str(error))
    return {} if why is None else {"commit": why}


def _no_final(raw: bytes, rules: WritingRules, topics: Mapping[str, Any]) -> str | None:
    """Why no final is made of a half copy offline."""
    final = final_of(raw, rules)
    if final.topic in (HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC, *WAITING_TOPICS):
        return f"its real topic is {final.topic}, which no consumer reads"
    diverting = [name.decode() for name in property_values(final.properties) if _DIVERTING.fullmatch(name)]
    if diverting:
        return f"its broker would put it off or copy it ({', '.join(diverting)}), which it does only while it runs"
    return _no_commit_record(final, topics)


def _no_commit_record(final: Draft, topics: Mapping[str, Any]) -> str | None:
    """Why nobody would consume a COMMIT record, wherever it came from."""
    topic = topics.get(final.topic)
    if not isinstance(topic, dict):
        return f"its topic {final.topic} is not in config/topics.json: no consumer would find it"
    count = topic.get("readQueueNums")
    if isinstance(count, int) and final.queue_id >= count:
        return f"its topic {final.topic} has {count} queues now, and it belongs into queue {final.queue_id}"
    attributes = topic.get("attributes")
    kinds = {str(name).lstrip("+"): value for name, value in (attributes or {}).items()}
    if kinds.get("queue.type") == "BatchCQ":
        return f"its topic {final.topic} has batch queues (queue.type=BatchCQ)"
    if kinds.get("cleanup.policy") == "COMPACTION":
        return f"its topic {final.topic} is compacted, and compaction is another log"
    return None
