"""The settings of brokers, proxies and clients that sentences of the output name.

A test finds a setting that a sentence names and that is missing here.
"""

from __future__ import annotations

from rmqtx.readers.model.releases import ALWAYS, DEFAULTS, dotted

_BROKER, _PROXY, _CLIENT = "broker.conf", "rmq-proxy.json", "a producer's client"

#: Setting → where it is set, and what it does.
SETTINGS: dict[str, tuple[str, str]] = {
    "transactionTimeOut": (_BROKER, "milliseconds from its birth in which a half message is not checked; a message can "
                           "have its own time (CHECK_IMMUNITY_TIME_IN_SECONDS)"),
    "transactionCheckMax": (_BROKER, "how often the broker asks about a half message; the round after the last check "
                            "discards it"),
    "transactionCheckInterval": (_BROKER, "milliseconds between two rounds of the check"),
    "transactionOpBatchInterval": (_BROKER, "milliseconds for which the broker collects decisions in memory before it "
                                   "writes one op message (5.1.0 and later)"),
    "fileReservedTime": (_BROKER, "hours after which the broker deletes a file of the log; a half message older than "
                         "this is discarded without a check"),
    "maxHashSlotNum": (_BROKER, "slots of the hash table in an index file"),
    "maxIndexNum": (_BROKER, "entries of an index file"),
    "diskSpaceWarningLevelRatio": (_BROKER, "how full the disk may be before the broker refuses messages"),
    "enableMultiDispatch": (_BROKER, "whether a record is also put into the light queues that its properties name "
                            "(4.9.3 and later)"),
    "enableLmq": (_BROKER, "whether light queues exist; cursors are then in lmqConsumerOffset.json (4.9.3 and later)"),
    "enableSlaveActingMaster": (_BROKER, "whether a slave acts for a lost master: it checks half messages and sends "
                                "them to another broker (5.0.0 and later)"),
    "enableRemoteEscape": (_BROKER, "whether an acting slave sends half messages to the master of another broker"),
    "transientStorePoolEnable": (_BROKER, "whether records are written to a pool in memory first, and readable only "
                                 "when they were copied to their file"),
    "flushDiskType": (_BROKER, "ASYNC_FLUSH: a record is acknowledged before it is on the disk; SYNC_FLUSH: after"),
    "commitIntervalCommitLog": (_BROKER, "milliseconds between two copies from the pool to the file "
                                "(transientStorePoolEnable)"),
    "brokerRole": (_BROKER, "ASYNC_MASTER, SYNC_MASTER or SLAVE"),
    "forceVerifyPropCRC": (_BROKER, "whether a record needs a sound checksum in its properties"),
    "rejectTransactionMessage": (_BROKER, "whether the broker refuses half messages"),
    "autoCreateSubscriptionGroup": (_BROKER, "whether a consumer group that is not known may consume"),
    "transRocksDBEnable": (_BROKER, "whether open transactions are kept in RocksDB (5.4.0 and later)"),
    "transactionDataExpireMillis": (_PROXY, "milliseconds for which the proxy keeps the place of a half message: a "
                                    "later decision finds no place"),
    "compressMsgBodyOverHowmuch": (_CLIENT, "bytes from which a body is compressed"),
}  # fmt: skip


def setting_lines(name: str) -> tuple[str, ...]:
    """What a setting does, its defaults by release, and where it is set."""
    place, text = SETTINGS[name]
    defaults = [
        str(value) if since == ALWAYS else f"{value} from {dotted(since)} on" for since, value in DEFAULTS.get(name, ())
    ]
    return (text, *([f"default: {', '.join(defaults)}"] if defaults else []), f"set in {place}")
