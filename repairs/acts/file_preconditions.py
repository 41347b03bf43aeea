"""What may be done to a stopped broker's files: stores that must not be changed, records that cannot be appended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmqtx.readers.model.errors import BadRequest, FormatError, StoreInUse, UnsafeStore
from rmqtx.readers.model.releases import STORE_LOCK, Version, dotted, parse_version, release_before
from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.fastjson import config_table
from rmqtx.readers.store.store import CHECK_TOPICS, DISCARD_TOPIC, HALF_TOPIC, ROCKSDB_HALF_TOPIC, WAITING_TOPICS, Store
from rmqtx.repairs.acts.situation import Situation
from rmqtx.repairs.changes.in_progress_mark import require_nothing_begun
from rmqtx.repairs.changes.store_lock import require_not_mapped
from rmqtx.repairs.receipts.act_words import PLANNED, ActKind
from rmqtx.repairs.records.record_writer import (
    RecordDraft,
    WritingRules,
    commit_record_of,
    draft_of,
    final_of,
    property_values,
)

#: Properties that make a broker delay a message, or write it to further queues, instead of appending it as it is.
_DIVERTING = re.compile(rb"DELAY|TIMER_(DELAY|DELIVER|OUT)_\w+|INNER_MULTI_DISPATCH|INNER_NUM")
_ROCKSDB_CONFIG = (("consumerOffsets",), ("topics",), ("metadata",), ("rdb",))


def require_known_release(given: str | None) -> None:
    """Refuse a release that is not known: an act writes records by the rules of one. Raises: BadRequest."""
    version = None if given is None else parse_version(given)
    if version is None or (known := release_before(version)) in (None, version):
        return
    raise BadRequest(
        f"--broker-version: {dotted(version)} is not a known release, and releases write records differently",
        advice=f"is it a typing error? The nearest known release before it is {dotted(known)}",
    )


def require_changeable(store: Store, settings: BrokerSettings, conf: Mapping[str, str]) -> Version:
    """Return the version of the store's broker, if records may be appended to the store.

    `conf`: its configuration as far as it is known.
    Raises: StoreInUse; UnsafeStore with the reason why nothing may be appended.
    """
    require_stopped_master(store, settings, conf)
    version = _version(store, settings)
    if not STORE_LOCK.holds(min(version, broker_settings(store).version_low or version)):
        require_not_mapped(store)
    return version


def require_stopped_master(store: Store, settings: BrokerSettings, conf: Mapping[str, str]) -> None:
    """Refuse a store that is in use, or whose change another broker or controller would revert.

    Raises: StoreInUse, UnsafeStore.
    Source: docs/formats/dledger.md#changes, docs/formats/store.md#epochs, docs/formats/recovery.md#append-rules,
            docs/formats/rocksdb_transactions.md#table.
    """
    if store.is_remote:
        raise UnsafeStore(f"{store.root} is not on this machine", advice="copy the store to this machine first")
    if store.in_use:
        user = f"process {store.used_by_process}" if store.used_by_process != -1 else "another rmqtx process"
        raise StoreInUse(f"{store.root} is in use by {user}", advice="stop its broker first, or act live: -n HOST:PORT")
    require_nothing_begun(Path(store.root))
    for reason in _reasons(store, settings, conf):
        raise UnsafeStore(f"cannot change {store.root}: {reason[0]}", advice=reason[1])


def _reasons(store: Store, settings: BrokerSettings, conf: Mapping[str, str]) -> list[tuple[str, str]]:
    names = _names(store)
    master = "act on the master's files, or live"
    found = [
        (store.is_dledger or any(name.startswith("dledger-") for name in names)
         or conf.get("enableDLegerCommitLog") == "true",
         "it has a DLedger log, and its other replicas would revert the change", "act live: -n HOST:PORT"),
        ("epochFileCheckpoint" in names or "brokerIdentity" in names or conf.get("enableControllerMode") == "true",
         "a controller manages it (epochFileCheckpoint) and would cut off records that its replicas lack",
         "act live: -n HOST:PORT"),
        (settings.broker_role == "SLAVE" or conf.get("brokerId", "0") != "0",
         "its broker is a slave, and a slave's log must equal its master's", master),
        (store.has_rocksdb_queues, "its queues are in RocksDB (storeType=defaultRocksDB)", "act live: -n HOST:PORT"),
        (any(store.has("config", *name, "CURRENT") for name in _ROCKSDB_CONFIG),
         "its cursors and topics are in RocksDB, which rmqtx does not write", "act live: -n HOST:PORT"),
        (conf.get("duplicationEnable") == "true", "duplicationEnable requires a property DUP_INFO in every record",
         "switch duplicationEnable off first"),
    ]
    return [(why, advice) for holds, why, advice in found if holds]


def _names(store: Store) -> list[str]:
    try:
        return [entry.name for entry in store.files.entries(store.root)]
    except OSError as error:
        raise UnsafeStore(f"cannot list {store.root}: {error.strerror}", file=store.root) from error


def _version(store: Store, settings: BrokerSettings) -> Version:
    """The version, which must be given where the files do not show it, and must not contradict them.

    Raises: UnsafeStore.
    """
    low, high = settings.version_low, settings.version_high
    if settings.rust_mark is not None:
        raise UnsafeStore(
            f"cannot change {store.root}: rocketmq-rust ran on it ({settings.rust_mark}), and rmqtx writes only the "
            "records of Java brokers", advice="start the broker, and decide with --broker HOST:PORT",
        )
    if low is None or low != high:
        raise UnsafeStore(
            f"cannot change {store.root}: the broker's version is unknown (its files show {settings.version}), and "
            "versions write records differently",
            advice="add --broker-version X.Y.Z, as in rocketmq-broker-X.Y.Z.jar in the broker's directory lib",
        )
    seen = broker_settings(store)
    is_older = seen.version_low is not None and low < seen.version_low
    if is_older or (seen.version_high is not None and low > seen.version_high and not store.was_killed):
        raise UnsafeStore(
            f"--broker-version {settings.version} contradicts the files of {store.root}, which a broker {seen.version} "
            "wrote", advice="give the version that wrote them, or let the other broker open the store once first",
        )
    return low


def topic_table(store: Store) -> Mapping[str, Any]:
    """The topics in config/topics.json, by name; empty where the file cannot be read."""
    return config_table(store, "topics.json", "topicConfigTable") or {}


def unwritable(
    situation: Situation, rules: WritingRules, topics: Mapping[str, Any], conf: Mapping[str, str]
) -> Mapping[str, str]:
    """The actions whose records cannot be appended as the broker would write them, each with the reason.

    Shape: action → reason; no entry for an action that is possible.
    """
    named = situation.named or situation.half_copy or situation.discard_copy
    if named is None:
        return {}
    try:
        if named.is_prepared:
            why = _no_commit_record(commit_record_of(named.raw), topics)
            return {} if why is None else {ActKind.COMMIT: why}
        topic = draft_of(named.raw).topic
        if topic == ROCKSDB_HALF_TOPIC and conf.get("transRocksDBEnable") == "false":
            return dict.fromkeys(
                PLANNED, "its half is in RocksDB, and with transRocksDBEnable=false the broker does not open that table"
            )
        if topic not in (HALF_TOPIC, DISCARD_TOPIC, ROCKSDB_HALF_TOPIC):
            return dict.fromkeys(PLANNED, f"its half message is delayed: the remaining copy is in {topic}")
        why = _no_final(named.raw, rules, topics)
    except (FormatError, UnicodeDecodeError) as error:
        return dict.fromkeys((ActKind.COMMIT, ActKind.DISCARD, ActKind.RESUME), str(error))
    return {} if why is None else {ActKind.COMMIT: why}


def _no_final(raw: bytes, rules: WritingRules, topics: Mapping[str, Any]) -> str | None:
    """Why no COMMIT record can be made from a half copy offline."""
    final = final_of(raw, rules)
    if final.topic in (*CHECK_TOPICS, *WAITING_TOPICS):
        return f"its real topic is {final.topic}, which no consumer reads"
    diverting = [name.decode() for name in property_values(final.properties) if _DIVERTING.fullmatch(name)]
    if diverting:
        return f"only a running broker can delay or copy the message, which its {', '.join(diverting)} requires"
    return _no_commit_record(final, topics)


def _no_commit_record(final: RecordDraft, topics: Mapping[str, Any]) -> str | None:
    """Why no consumer would read a COMMIT record."""
    topic = topics.get(final.topic)
    if not isinstance(topic, dict):
        return f"its topic {final.topic} is not in config/topics.json: no consumer would find it"
    count = topic.get("readQueueNums")
    if isinstance(count, int) and final.queue_id >= count:
        return f"its topic {final.topic} now has {count} queues, and the message belongs to queue {final.queue_id}"
    attributes = topic.get("attributes")
    kinds = {str(name).lstrip("+"): value for name, value in (attributes or {}).items()}
    if kinds.get("queue.type") == "BatchCQ":
        return f"its topic {final.topic} has batch queues (queue.type=BatchCQ)"
    if kinds.get("cleanup.policy") == "COMPACTION":
        return f"its topic {final.topic} is compacted (cleanup.policy=COMPACTION), and compaction uses another log"
    return None
