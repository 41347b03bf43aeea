"""The signs in a store of the broker versions that ran on it, and of the version that ran last.

Files and directories that a version creates remain when an older broker is started on the store: they show a version
that ran at some time. Files that every broker rewrites while it runs show the version that ran last.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from rmqtx.readers.model.errors import BadText, UnreadableFile
from rmqtx.readers.model.releases import (
    CHECKPOINT_CONFIRMED,
    CHECKPOINT_OF_MASTER,
    CHECKPOINT_OF_QUEUES,
    CONSUMER_FILTER,
    CURSORS_HAVE_VERSION,
    DISCARD_COPY,
    HALF_TOPIC_DESIGN,
    KEY_TOPIC_AGAIN,
    KEY_TOPIC_OF_4_3_0,
    LAST_OF_3,
    LAST_OF_3_1,
    LAST_OF_4,
    LAST_OF_FIRST_JSON,
    PROCESS_IN_ABORT,
    REPLY_TOPIC,
    ROCKSDB_TRANSACTIONS,
    SCHEDULE_TOPIC_DECLARED,
    STATE_TABLE,
    STORE_LOCK,
    SYSTEM_TOPICS,
    TOPIC_FLAGS,
    Version,
)
from rmqtx.readers.store.checkpoint import checkpoint_values
from rmqtx.readers.store.fastjson import ChosenCursorFile, chosen_cursor_file, read_config, read_text
from rmqtx.readers.store.paths import CURSOR_FILES, PATHS
from rmqtx.readers.store.remembered import remembered
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, ROCKSDB_HALF_TOPIC, SCHEDULE_TOPIC, Store

#: See `KEY_TOPIC_OF_4_3_0`.
_KEY_TOPIC_4_3_0 = "AUTO_CREATE_TOPIC_KEY"
#: Files and directories that brokers create from some version on, regardless of their contents.
VERSION_MARKS: dict[str, Version] = {
    **{one.path: one.since for one in PATHS if one.is_mark},
    f"consumequeue/{DISCARD_TOPIC}": DISCARD_COPY.since,
    f"consumequeue/{HALF_TOPIC}": HALF_TOPIC_DESIGN.since,
}
#: Marks of the brokers before 4.3. Seen: 3.1.4 has the state table; 3.2.6 puts topicSysFlag into topics.json, 3.1.4
#: does not; both misspell the time of a dataVersion, 4.2.0 does not; 4.2.0 creates the files, 3.2.6 does not.
_OLD_MARKS: dict[str, Version] = {
    "transaction/statetable": STATE_TABLE.since,
    "transaction/redolog": STATE_TABLE.since,
    "config/consumerFilter.json": CONSUMER_FILTER.since,
}
_TOPIC_FLAG = "topicSysFlag"
#: A word in config/topics.json of brokers before 4.0.
MISSPELT_TIME = "timestatmp"
#: Files and directories that rocketmq-rust 1.0.0 creates at each start, and no Java broker.
RUST_MARKS = (
    "timer-v2/FORMAT", "timerwheel.v2/FORMAT", "timerlog/v2", "config/timercheck.a", "config/timercheck.b",
    "config/timer-role.meta",
)
RUST = "rocketmq-rust"
#: Beginnings of topics that brokers create for their cluster, and the end of another one.
CLUSTER_TOPICS, REPLY_SUFFIX = ("rmq_sys_REVIVE_LOG_", "rmq_sys_SYNC_BROKER_MEMBER_"), "_REPLY_TOPIC"
_METRICS = "transactionMetrics"


def at_least(store: Store) -> Iterator[tuple[Version, str]]:
    """Yield lower bounds of versions that ran on the store at some time, each with the file that shows it.

    The files remain when an older broker is started later: see `set_back`.
    """
    for name, since in VERSION_MARKS.items():
        if store.has(*name.split("/")):
            yield since, name
    for name, since in _OLD_MARKS.items():
        if store.has(*name.split("/")):
            yield since, name
    if store.size_bytes("lock"):  # an empty one is that of rmqtx
        yield STORE_LOCK.since, "lock"
    for file in CURSOR_FILES:
        if file.written_since and store.has("config", file.name):
            yield file.written_since, f"config/{file.name}"
    if _has_topic_flags(store):
        yield TOPIC_FLAGS.since, "config/topics.json"
    values = {} if rust_mark(store) is not None else checkpoint_values(store)  # rocketmq-rust writes others there
    # zero shows nothing: a broker without a controller or slave leaves these fields at zero
    for name, since in {
        "master_flushed_offset": CHECKPOINT_OF_MASTER.since, "confirm_offset": CHECKPOINT_CONFIRMED.since,
        "logics_offset": CHECKPOINT_OF_QUEUES.since,
    }.items():
        if values.get(name):
            yield since, "checkpoint"
    yield from rewritten_since(store)
    for since in _topics_since(set(_topics(store))):
        yield since, "config/topics.json"


def rewritten_since(store: Store) -> Iterator[tuple[Version, str]]:
    """Yield lower bounds of the last version, from files that every broker rewrites while it runs."""
    chosen = chosen_cursor_file(store)
    if isinstance(chosen.config.value, dict) and "dataVersion" in chosen.config.value:
        yield CURSORS_HAVE_VERSION.since, f"config/{chosen.file.name}"
    if store.size_bytes("abort") and not store.has_own_abort:
        yield PROCESS_IN_ABORT.since, "abort"


def at_most(store: Store) -> Iterator[tuple[Version, str]]:
    """Yield upper bounds of the version that wrote the store last, each with the file that shows it.

    Only files that every newer broker rewrites within seconds count. An absent file shows nothing: copies of a store
    may be incomplete.
    """
    chosen = chosen_cursor_file(store)
    if _has_no_version(chosen):
        yield LAST_OF_4, f"config/{chosen.file.name}"
    if store.size_bytes("abort") == 0:
        yield LAST_OF_4, "abort"
    data_version = _object(store, "topics.json").get("dataVersion")
    if isinstance(data_version, dict) and MISSPELT_TIME in data_version:
        yield LAST_OF_3 if _has_topic_flags(store) else LAST_OF_3_1, "config/topics.json"
    topics = _topics(store)
    if _KEY_TOPIC_4_3_0 in topics and "TBW102" not in topics:
        yield KEY_TOPIC_OF_4_3_0.since, "config/topics.json"


def has_reply_topic(topics: Collection[str]) -> bool:
    """Whether a cluster has a topic for replies; the cluster has a topic too."""
    return any(topic.endswith(REPLY_SUFFIX) and topic.removesuffix(REPLY_SUFFIX) in topics for topic in topics)


def _topics_since(topics: set[str]) -> Iterator[Version]:
    """Yield lower bounds of the version from topics that brokers create automatically."""
    if ROCKSDB_HALF_TOPIC in topics:
        yield ROCKSDB_TRANSACTIONS.since
    if any(topic.startswith(CLUSTER_TOPICS) for topic in topics):
        yield SYSTEM_TOPICS.since
    if SCHEDULE_TOPIC in topics:
        yield SCHEDULE_TOPIC_DECLARED.since
    if has_reply_topic(topics):
        yield REPLY_TOPIC.since
    if DISCARD_TOPIC in topics:
        yield DISCARD_COPY.since
    if HALF_TOPIC in topics and "TBW102" in topics and _KEY_TOPIC_4_3_0 not in topics:
        yield KEY_TOPIC_AGAIN.since


def _object(store: Store, name: str) -> dict[str, object]:
    value = read_config(store, name).value
    return value if isinstance(value, dict) else {}


def _topics(store: Store) -> dict[str, object]:
    table = _object(store, "topics.json").get("topicConfigTable")
    return table if isinstance(table, dict) else {}


def _has_topic_flags(store: Store) -> bool:
    return any(isinstance(topic, dict) and _TOPIC_FLAG in topic for topic in _topics(store).values())

def set_back(store: Store, once: Version) -> tuple[Version, str] | None:
    """Return an upper bound of the last broker's version if that is older than `once`, a version that ran before.

    None if no file shows a downgrade.

    Every broker writes its cursors each 5 s and when it stops: before 5.0.0 without a dataVersion, before 5.4.0 with
    another JSON library, which writes the first queue of a group directly after the brace. If the last broker was
    killed, the file may still be from the broker before; then all files of the newer version must be older than it.
    """
    if once <= LAST_OF_4:
        return None
    if any(store.has("config", name, "CURRENT") for name in ("consumerOffsets", "metadata", "rdb")):
        return None  # a broker that keeps its cursors in RocksDB does not write the file
    chosen = chosen_cursor_file(store)
    high = LAST_OF_4 if _has_no_version(chosen) else LAST_OF_FIRST_JSON if _is_of_first_json(store, chosen) else None
    if high is None or high >= once or any(since > high for since, _ in rewritten_since(store)):
        return None
    if (store.was_killed or store.in_use) and not _are_older(store, high, chosen):
        return None
    return high, f"config/{chosen.file.name}"


def _has_no_version(chosen: ChosenCursorFile) -> bool:
    value = chosen.config.value
    return isinstance(value, dict) and "offsetTable" in value and "dataVersion" not in value


def _is_of_first_json(store: Store, chosen: ChosenCursorFile) -> bool:
    if chosen.config.file is None:
        return False
    try:
        text = read_text(chosen.config.file, store.files) or ""
    except (BadText, UnreadableFile):
        return False
    return re.search(r"\{\d+:", text) is not None and re.search(r"\{\s+\d+:", text) is None


def _are_older(store: Store, version: Version, chosen: ChosenCursorFile) -> bool:
    """Whether all files of newer versions were last changed before the cursor file."""
    names = [name for name, since in VERSION_MARKS.items() if since > version and store.has(*name.split("/"))]
    written = store.modified_ns("config", chosen.file.name)
    times = [store.modified_ns(*name.split("/")) for name in names]
    return written is not None and bool(names) and all(time is not None and time < written for time in times)


# Whether rocketmq-rust wrote a store, an implementation of the broker in Rust, which writes some files otherwise.
#
# Its log and consume queues have the layouts of Java brokers. Different are index keys of ids (`topic#U#id`), the
# sixth value of the checkpoint, `config/transactionMetrics` and the timer's files.


@remembered
def rust_mark(store: Store) -> str | None:
    """Return the file that shows that rocketmq-rust ran on the store; None if no file does.

    Source: rocketmq-broker/src/transaction/transaction_metrics.rs, rocketmq-store of rocketmq-rust 1.0.0.
    """
    for name in RUST_MARKS:
        if store.has(*name.split("/")):
            return name
    metrics = read_config(store, _METRICS).value
    if isinstance(metrics, dict) and "generation" in metrics and "topics" in metrics:
        return f"config/{_METRICS}"
    return None
