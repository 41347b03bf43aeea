"""Every file and directory that a broker keeps below its store's root: since which release, and under which setting.

Sources, at the tags 4.2.0 to 5.3.3 and in the source jars of 5.3.4, 5.4.0 and 5.5.0: StorePathConfigHelper,
BrokerPathConfigHelper, MessageStoreConfig, and all other code that joins a name to storePathRootDir. docs/paths.md is
generated from this list.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqtx.readers.model.releases import (
    ALWAYS,
    CONSUMER_FILTER,
    LAST_OF_3_1,
    LIGHT_CURSORS_LOADED,
    LIGHT_CURSORS_WRITTEN,
    ROCKSDB_TRANSACTIONS,
    STATE_TABLE,
    STORE_LOCK,
    TIMERS,
    Version,
)


class StorePath(NamedTuple):
    """One file or directory below the root.

    Shape: `setting`: the setting under which a broker creates it; empty if every broker does. `is_mark`: its existence
           shows that a broker of that release ran on the store. `moved_by`: the setting that moves it elsewhere.
           `is_cursor_database`: a RocksDB database with the cursors.
    """

    path: str
    since: Version
    what: str
    setting: str = ""
    moved_by: str = ""
    is_mark: bool = False
    until: Version | None = None
    is_cursor_database: bool = False


PATHS: tuple[StorePath, ...] = (
    StorePath("commitlog/", ALWAYS, "the commit log", moved_by="storePathCommitLog (several since 4.9.2)"),
    StorePath("dledger-SELF/data/, dledger-SELF/index/", (4, 5, 0), "the commit log as DLedger entries",
              "enableDLegerCommitLog=true", "storePathDLedgerCommitLog (4.9.4+): data/ alone, several"),
    StorePath("consumequeue/", ALWAYS, "queues: 20 bytes a slot, or a RocksDB database (storeType=defaultRocksDB, "
              "5.2.0+)"),
    StorePath("consumequeue/%LMQ%NAME/0/", (4, 9, 3), "light queues", "enableLmq, enableMultiDispatch"),
    StorePath("consumequeue_ext/", ALWAYS, "extension of queue slots", "enableConsumeQueueExt=true"),
    StorePath("batchconsumequeue", (5, 0, 0), "queues of 46 bytes a slot", "queue.type=BatchCQ of a topic",
              is_mark=True),
    StorePath("consumequeue_rocksdb", (5, 5, 0), "the RocksDB queues alone",
              "useSeparateStorePathForRocksdbCQ=true", is_mark=True),
    StorePath("index/", ALWAYS, "the key index"),
    StorePath("checkpoint", ALWAYS, "times up to which files were flushed"),
    StorePath("abort", ALWAYS, "exists while a broker runs; contains its process number since 5.0.0"),
    StorePath("lock", STORE_LOCK.since, "locked by the running broker"),
    StorePath("timerwheel", TIMERS.since,
              "timers by second; `timerwheel.N` is a snapshot (timerWheelSnapshotFlush, 5.3.4+)",
              "timerWheelEnable=true, the default", is_mark=True),
    StorePath("timerlog/", TIMERS.since, "the messages of the timers", "timerWheelEnable=true"),
    StorePath("compaction/", (5, 1, 0), "compacted topics", "enableCompaction=true, the default"),
    StorePath("compaction/position-checkpoint", (5, 1, 0), "offsets up to which topics are compacted", is_mark=True),
    StorePath("epochFileCheckpoint", (5, 0, 0), "the offset at which each master began to write",
              "enableControllerMode=true", "storePathEpochFile", is_mark=True),
    StorePath("brokerIdentity", (5, 1, 1),
              "the replica's number; `brokerIdentity-temp` while the replica requests a number",
              "enableControllerMode=true", "storePathBrokerIdentity", is_mark=True),
    StorePath("kvStore/", (5, 3, 2), "RocksDB: pop receipts", "popConsumerKVServiceInit=true"),
    StorePath("rocksdbstore", ROCKSDB_TRANSACTIONS.since,
              "RocksDB: transactions, timers and index, each by its setting; every broker creates the directory",
              is_mark=True),
    StorePath("tiered_index_file/", (5, 1, 0), "index of the tiered store", "messageStorePlugIn"),
    StorePath("transaction/statetable/, transaction/redolog/", STATE_TABLE.since, "the transaction state table",
              until=LAST_OF_3_1),
    StorePath("config/topics.json", ALWAYS, "topics"),
    StorePath("config/consumerOffset.json", ALWAYS, "cursors of all groups and of the transaction check",
              "enableLmq=false, and cursors not in RocksDB"),
    StorePath("config/lmqConsumerOffset.json", LIGHT_CURSORS_WRITTEN.since,
              "the same cursors and those of light groups; 4.9.3 writes the file and never reads it", "enableLmq=true"),
    StorePath("config/subscriptionGroup.json", ALWAYS, "groups"),
    StorePath("config/consumerFilter.json", CONSUMER_FILTER.since, "filters of groups"),
    StorePath("config/delayOffset.json", ALWAYS, "cursor of each delay level"),
    StorePath("config/topicQueueMapping.json", (5, 0, 0), "static topics", is_mark=True),
    StorePath("config/consumerOrderInfo.json", (5, 0, 0), "pop in order", is_mark=True),
    StorePath("config/messageRequestMode.json", (5, 0, 0), "pop or pull, by group"),
    StorePath("config/timercheck", TIMERS.since, "how far the timers have been processed", "timerWheelEnable=true",
              is_mark=True),
    StorePath("config/timermetrics", TIMERS.since, "timers by topic", "timerWheelEnable=true", is_mark=True),
    StorePath("config/transactionMetrics", (5, 2, 0), "the broker's count of open transactions by topic",
              is_mark=True),
    StorePath("config/tieredStoreMetadata.json", (5, 1, 0), "files of the tiered store", "messageStorePlugIn"),
    StorePath("config/users/, config/acls/", (5, 3, 0), "RocksDB: users and their permissions",
              "authenticationEnabled, authorizationEnabled"),
    StorePath("config/topics/, config/subscriptionGroups/", (5, 1, 4), "RocksDB: topics, groups",
              "storeType=defaultRocksDB"),
    StorePath("config/consumerOffsets/", (5, 1, 4), "RocksDB: the cursors, with and without enableLmq",
              "storeType=defaultRocksDB", is_cursor_database=True),
    StorePath("config/metadata", (5, 3, 4), "RocksDB: topics, groups and cursors in one database",
              "useSingleRocksDBForAllConfigs=true", is_mark=True, is_cursor_database=True),
    StorePath("config/rdb", (5, 3, 2), "RocksDB: topics, groups and cursors, second version", "configManagerVersion=v2",
              is_mark=True, is_cursor_database=True),
)


class CursorFile(NamedTuple):
    """A file in config/ in which brokers keep all cursors, and the first release that reads it at its start.

    Shape: `written_since` is None if every broker writes the file.
    """

    name: str
    setting: str
    loaded_since: Version
    written_since: Version | None = None


CURSOR_FILES: tuple[CursorFile, ...] = (
    CursorFile("consumerOffset.json", "enableLmq=false", ALWAYS),
    CursorFile("lmqConsumerOffset.json", "enableLmq=true", LIGHT_CURSORS_LOADED.since, LIGHT_CURSORS_WRITTEN.since),
)
