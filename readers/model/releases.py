"""The releases of RocketMQ that are known, and what changed in which release.

Upstream files were read at the tag of each release, and in the source jars of 5.3.4, 5.4.0 and 5.5.0. The release that
introduced a file, if nothing else depends on it, stands in readers/store/paths.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rmqtx.readers.model.errors import BadRequest

#: A release, 5.1.4 as (5, 1, 4).
Version = tuple[int, int, int]
ALWAYS: Version = (0, 0, 0)
_ANY_NUMBER = 999

#: The last known release of each line; any number of 3.x is accepted, since some were released outside of Apache.
LAST_OF_LINES: tuple[Version, ...] = (
    (3, 0, _ANY_NUMBER), (3, 1, _ANY_NUMBER), (3, 2, _ANY_NUMBER), (3, 4, _ANY_NUMBER), (3, 5, _ANY_NUMBER),
    (4, 0, 0), (4, 1, 0), (4, 2, 0), (4, 3, 2), (4, 4, 0), (4, 5, 2), (4, 6, 1), (4, 7, 1), (4, 8, 0), (4, 9, 8),
    (5, 0, 0), (5, 1, 4), (5, 2, 0), (5, 3, 4), (5, 4, 0), (5, 5, 1),
)
#: The newest release whose sources were read: a broker of unknown or newer version is treated as this one.
NEWEST_READ: Version = (5, 5, 0)


@dataclass(frozen=True, slots=True)
class Change:
    """A behaviour that some releases have and others do not.

    Shape: `since`: the first release with the behaviour; `until`: the first release without it again. `but`: releases
           between them without it. `source`: upstream file, number of the issue, or the brokers that were observed.
    """

    what: str
    source: str
    since: Version = ALWAYS
    until: Version | None = None
    but: tuple[Version, ...] = ()

    def holds(self, version: Version) -> bool:
        """Whether a release has this behaviour."""
        return version >= self.since and (self.until is None or version < self.until) and version not in self.but

    def between(self, low: Version | None, high: Version | None) -> bool | None:
        """Whether the releases within bounds have this behaviour; None if some do and others do not."""
        if self.border_between(low, high) is not None or any(
            low != high and (low is None or low <= one) and (high is None or one <= high) for one in self.but
        ):
            return None
        return self.holds(low or high or ALWAYS)

    def border_between(self, low: Version | None, high: Version | None) -> Version | None:
        """Return the newest release within bounds at which the behaviour changes; None if it does not change."""
        borders = [border for border in (self.since, self.until) if border is not None and border != ALWAYS]
        open_ones = [
            border for border in borders if (low is None or low < border) and (high is None or high >= border)
        ]
        return max(open_ones, default=None)


# --- designs of transactions ------------------------------------------------------------------------------------------

#: The releases before, 3.0 and 3.1, keep the state table and ask producers about its open entries.
PREPARED_NOT_CHECKED = Change(
    "the state table is neither read nor written, and no producer is asked for a prepared record",
    "seen: 3.2.6 on a store of 3.1.4", since=(3, 2, 0),
)
STATE_TABLE = Change(
    "the broker creates transaction/statetable and transaction/redolog", "seen: 3.1.4", since=(3, 0, 0)
)
HALF_TOPIC_DESIGN = Change(
    "half and op messages have their own topics; prepared records are refused: NumberFormatException at REAL_QID",
    "broker/transaction/queue/TransactionalMessageBridge.java; seen on 4.3.0", since=(4, 3, 0),
)
ROCKSDB_TRANSACTIONS = Change(
    "transactions may be kept in RocksDB: the broker creates rocksdbstore and topics for the half and op messages",
    "RIP-82, #9787; seen on 5.4.0 and 5.5.0", since=(5, 4, 0),
)

# --- what is written --------------------------------------------------------------------------------------------------

DISCARD_COPY = Change(
    "when the broker discards a half message, it writes a copy to the discard topic",
    "broker/transaction/queue/DefaultTransactionalMessageCheckListener.java", since=(4, 5, 2),
)
OP_LISTS = Change(
    "op messages hold lists of half queue offsets; the broker collects them in memory before it writes a message",
    "broker/transaction/queue/TransactionalOpBatchService.java", since=(5, 1, 0),
)
OPS_LOST_AT_STOP = Change(
    "an orderly stop writes no op message in the interval after the last one",
    "broker/transaction/queue/TransactionalMessageServiceImpl.java close; #7305; seen on 5.1.0, 5.3.3 and 5.5.0",
    since=OP_LISTS.since,
)
OPS_WAIT_TWICE = Change(
    "an op message may wait for two intervals of transactionOpBatchInterval before it is written, not one",
    "broker/transaction/queue/TransactionalMessageServiceImpl.java batchSendOpMessage; #10199",
    since=OP_LISTS.since, until=(5, 5, 0),
)
OP_THREAD_SPINS = Change(
    "after the first decision the thread for op messages does not wait: it uses a whole core of the processor",
    "broker/transaction/queue/TransactionalOpBatchService.java; #10966, #10967 (open); the sources of 5.5.0 and 5.5.1; "
    "seen on 5.5.0, not on 5.3.3 and 5.4.0",
    since=(5, 5, 0),
)
DESTINATION_LEFT_OUT = Change(
    "COMMIT records have neither REAL_TOPIC nor REAL_QID",
    "broker/processor/EndTransactionProcessor.java; seen on 5.4.0 and 5.5.0", since=(5, 4, 0),
)
LAST_END_LEFT_OUT = Change(
    "the last property of a record has no end mark",
    "common/message/MessageDecoder.java messageProperties2String", since=(4, 9, 1), until=(5, 2, 0),
)
PROPERTY_CRC = Change(
    "records may end in a CRC of their bytes (enabledAppendPropCRC); recovery tests it with forceVerifyPropCRC=true",
    "store/CommitLog.java checkMessageAndReturnSize", since=(5, 2, 0),
)
LISTS_ALL_PRODUCERS = Change(
    "one request lists the producers of all groups (328)", "broker/processor/AdminBrokerProcessor.java; 4.9.3 never "
    "answers it", since=(4, 9, 4),
)
PROXIES = Change("clients may be connected to a proxy instead of the broker", "RIP-39", since=(5, 0, 0))
INDEX_TAGS = Change("the key index has entries for tags", "store/index/IndexService.java", since=(5, 5, 0))
TIMERS = Change("a timer wheel delivers messages at any time", "store/timer/TimerMessageStore.java", since=(5, 0, 0))
DELAYED_HALVES_DROPPED = Change(
    "the check removes the delay level of a half message that it puts back; the schedule service drops half messages "
    "that it still has (\"[BUG]\")",
    "#1540", since=(4, 6, 1),
)

HALF_TOPIC_OPEN = Change(
    "clients may send messages to the half topic itself", "broker/processor/AbstractSendMessageProcessor.java; #1976",
    since=(4, 3, 0), until=(4, 7, 1),
)

# --- the check --------------------------------------------------------------------------------------------------------

_CHECK = "broker/transaction/queue/TransactionalMessageServiceImpl.java"
OPS_DONE_AT_ONCE = Change(
    "an op message is done as soon as the check has passed its half message, not in a later round", _CHECK,
    since=(4, 6, 0)
)
END_IS_ILLEGAL = Change("a read at the end of a queue counts as a read at an illegal offset", _CHECK, until=(4, 6, 0))
CHECK_INFLATES = Change(
    "the check puts a compressed half message back with a decompressed body and still with the flag for compression",
    "broker/transaction/queue/TransactionalMessageBridge.java; docs/formats/half_and_op.md#inflated-copy",
    until=(4, 6, 0),
)
#: Corrected in 4.9.5; in the 5.x line from 5.1.0 on.
UNREADABLE_IS_PASSED = Change(
    "a half message that cannot be read does not end the round of the check", _CHECK, since=(4, 9, 5), but=((5, 0, 0),)
)
UNREADABLE_IS_NULL = Change(
    "a half message that cannot be read ends the round of the check with a NullPointerException", f"{_CHECK}; #1568",
    since=(4, 3, 0), until=(4, 6, 0),
)
#: Corrected in 4.9.5; in the 5.x line in 5.1.0.
UNREADABLE_IS_NO_LIST = Change(
    "a half message that cannot be read ends the round of the check with an IndexOutOfBoundsException",
    f"{_CHECK}; #5424, #6410", since=(4, 6, 0), until=(5, 1, 0), but=((4, 9, 5), (4, 9, 6), (4, 9, 7), (4, 9, 8)),
)
UNREADABLE_OP_IS_NULL = Change(
    "an op message that cannot be read, from 4.6.0 on one without a body, ends the round of the check with a "
    "NullPointerException", f"{_CHECK}; #1568; seen on 4.9.7", since=(4, 3, 0), until=(5, 1, 0),
)
NO_OP_IS_NO_LIST = Change(
    "op messages that cannot be read end the round of the check with an IndexOutOfBoundsException, if no other op "
    "message is among the 32 that it reads at once", f"{_CHECK}; seen on 5.5.0", since=(4, 6, 0),
)
ACTING_SLAVE = Change(
    "a slave may check as its absent master (enableSlaveActingMaster): it sends open half copies to another broker",
    f"{_CHECK}; #5012, #5062; the class files of 5.0.0 and 5.1.0; seen on 5.3.3 and 5.5.0",
    since=(5, 1, 0),
)
SLAVE_REFUSES_TYPES = Change(
    "a slave refuses a topic with attributes such as message.type, and the topics after it",
    "broker/slave/SlaveSynchronize.java; #9403, #9404; the class files of 5.3.1 to 5.5.1; seen on 5.3.3",
    since=(5, 3, 2), until=(5, 3, 4),
)
SLAVE_DELETES_TOPICS = Change(
    "at each synchronisation, every minute, a slave deletes all its topics and subscription groups one by one, and "
    "then takes over those of its master",
    "broker/slave/SlaveSynchronize.java; #9984, #9990; the sources of 5.3.4 to 5.5.1; seen on 5.4.0",
    since=SLAVE_REFUSES_TYPES.until or ALWAYS, until=(5, 5, 0),
)
ERROR_ENDS_CHECK = Change(
    "an Error ends the thread of the check, and nothing starts it again", "common/ServiceThread.java; #1783",
    since=(4, 3, 0), until=(4, 7, 0),
)
CHECK_WAITS_FOR_PUT = Change(
    "the check waits without limit until a copy that it puts back is flushed and replicated",
    "store/MessageStore.java putMessage; #3827, #3828", since=(4, 9, 1), until=(4, 9, 3),
)
AGE_MAY_EQUAL = Change(
    "a half message is still too young for a check if its age equals transactionTimeOut or its immunity time",
    f"{_CHECK}; the class files of 5.3.3 and 5.3.4",
    since=(5, 3, 4),
)
LATE_END_REFUSED = Change(
    "a decision that comes after the immunity time, and not as an answer to a check, is refused (604)",
    "broker/processor/EndTransactionProcessor.java; #6402; seen on 5.3.3", since=(5, 1, 1),
)
OVERFLOW_TO_BEGIN = Change(
    "a read after the end of a queue that begins at 0 continues at 0, not at the end",
    "store/DefaultMessageStore.java getMessage", until=(4, 9, 4),
)
#: Checks stop for different reasons in different releases: the last release of each kind. If the version of a store
#: is not known exactly, several of them apply.
LAST_TO_STOP_ALIKE: tuple[Version, ...] = ((4, 5, 2), (4, 9, 4), (5, 0, 0), NEWEST_READ)

OP_QUEUE_DELETED = Change(
    "the deletion of any topic deletes the op queue too, which has no entry in topics.json",
    "store/DefaultMessageStore.java cleanUnusedTopic; #2133", since=(4, 3, 0), until=(4, 9, 0),
)

# --- requests ---------------------------------------------------------------------------------------------------------

ANY_QUERY_SPAN = Change(
    "a query by key may span any time, not only queryMessageMaxTimeSpan hours",
    "seen: 3.1.4 refuses, 3.2.6 answers", since=(3, 2, 0),
)
UNIQ_KEY_INDEXED = Change(
    "the index has an entry for the property UNIQ_KEY of each message", "seen: 4.2.0, not 3.2.6", since=(4, 0, 0),
)
QUEUE_LIMIT = Change(
    "by default the broker drops requests that wait too long in its queue (brokerFastFailureEnable)",
    "broker/latency/BrokerFastFailure.java", since=(4, 0, 0),
)
RESUME_REQUEST = Change(
    "the broker answers RESUME_CHECK_HALF_MESSAGE",
    "broker/processor/AdminBrokerProcessor.java; docs/formats/half_and_op.md#resume", since=(4, 5, 2),
)
REFUSED_TAKES_NUMBER = Change(
    "a half message gets its half queue offset before it is refused for its properties: the next ones are in the slots "
    "before theirs, until the next start", "store/CommitLog.java asyncPutMessage; played on 5.0.0, 5.1.0 and 5.1.1",
    since=(5, 0, 0), until=(5, 1, 1),
)
RESUME_BREAKS_COMPRESSED = Change(
    "a resume writes a compressed body in a form that cannot be read",
    "common/message/MessageDecoder.java; docs/formats/half_and_op.md#resume", until=(5, 3, 2),
)

# --- starts: store/MappedFileQueue.java, CommitLog.java, ConsumeQueue.java, DefaultMessageStore.java ------------------

_FILES, _LOG = "store/MappedFileQueue.java load", "store/CommitLog.java recoverNormally, recoverAbnormally"
_QUEUES, _STORE = "store/ConsumeQueue.java", "store/DefaultMessageStore.java start"
DISPATCHES_BEHIND_QUEUES = Change(
    "a start after a clean stop dispatches every record after the furthest place in the queues", _STORE,
    since=(4, 5, 0), until=(5, 0, 0),
)
DISPATCHES_PAST_QUEUES = Change(
    "a start after a clean stop dispatches the records that begin past the furthest place in the queues; a record that "
    "begins exactly there is left out", _STORE, since=(5, 3, 2),
)
OTHER_SIZES_REFUSED = Change(
    "a broker does not start if a file in the log has another size", _FILES, since=(4, 5, 0), but=((4, 9, 2),)
)
DIRECTORIES_SKIPPED = Change("directories in the log are skipped", _FILES, since=(5, 1, 0))
INDEX_FILES_OPENED = Change(
    "a broker does not start if a file of the index cannot be opened", "store/index/IndexService.java load",
    since=(5, 1, 0),
)
EMPTY_LAST_DELETED = Change("an empty last file is deleted", _FILES, since=(5, 1, 3))
LONG_TOPICS = Change("records with the second magic code have topics longer than 127 bytes", _LOG, since=(5, 1, 0))
IPV6_HOSTS = Change("hosts in records may be IPv6", _LOG, since=(4, 6, 0))
LENGTHS_BOUNDED = Change("recovery compares a record's length with the rest of its file", _LOG, since=(5, 3, 2))
MISMATCHED_COUNTED = Change(
    "recovery after a kill continues past a record whose length is not the sum of its parts", _LOG, until=(4, 3, 2)
)
THREE_FILES_BACK = Change("recovery after a clean stop begins with the third file from the end", _LOG, until=(5, 3, 2))
STARTS_AT_QUEUES_OFFSET = Change(
    "recovery after a kill begins at the commit-log offset in the checkpoint up to which consume queues were flushed",
    _LOG, since=(5, 5, 0)
)
QUEUE_MAXIMUM_IS_END = Change(
    "the furthest place in the queues is the end of the last slot's record, not its begin", _QUEUES, since=(4, 5, 0)
)
QUEUES_CUT_AFTER_CLEAN_STOP = Change("queues are truncated after a clean stop too", _LOG, since=(4, 3, 2))
QUEUES_DESTROYED = Change("queues are deleted if there is no commit log", _LOG, since=(4, 5, 0))
QUEUES_READ_AGAIN = Change(
    "queues are truncated after recovery has dispatched records, and their last files are read again", _STORE,
    since=(5, 3, 4)
)
EMPTY_QUEUE_FILE_REFUSED = Change(
    "a broker does not start if the last file of a queue that has slots has none itself: newPosition < 0: (-20 < 0)",
    "store/ConsumeQueue.java correctMinOffset; #9728; seen on 5.1.4, 5.3.3 and 5.4.0, not on 4.9.7 and 5.5.0",
    since=(5, 0, 0), until=(5, 5, 0),
)
BEGINS_WITH_FILLERS = Change(
    "where the log begins at 0, a queue that a start makes again begins with the fillers in its first file, not with "
    "its first record", f"{_QUEUES} correctMinOffset; seen on 4.9.7, not on 5.0.0 and 5.3.3", until=(5, 0, 0),
)
BEGINS_AT_0_WITHOUT_SLOT = Change(
    "a start lets a queue of which no slot leads into the log begin at 0, not at its end",
    f"{_QUEUES} correctMinOffset; seen on 4.9.7, not on 5.0.0 and 5.3.3", until=(5, 0, 0),
)
DLEDGER_QUEUES_EMPTIED = Change(
    "with a DLedger log, a start after a kill cuts the queues at the begin of the file in which it begins to read: it "
    "requires DUP_INFO in every record", "store/dledger/DLedgerCommitLog.java dledgerRecoverAbnormally; #8032; the "
    "class files of 5.1.4 to 5.3.1; seen on 5.2.0",
    since=(5, 2, 0), until=(5, 3, 0),
)
DLEDGER_QUEUES_CUT_SHORT = Change(
    "with a DLedger log, a start after a kill computes the end of the log without the headers of the entries in the "
    "last file, and cuts the queues there", "store/dledger/DLedgerCommitLog.java dledgerRecoverAbnormally; #9084; "
    "the class files of 5.3.0 to 5.5.0; seen on 5.3.3",
    since=(5, 3, 0),
)
FILES_BACK_BOUNDED = Change("recovery goes back at most commitLogRecoverMaxNum files", _LOG, since=(5, 4, 0))
#: The last release of each group of releases that start in the same way.
LAST_TO_START_ALIKE: tuple[Version, ...] = (
    (4, 3, 0), (4, 4, 0), (4, 5, 2), (4, 9, 8), (5, 0, 0), (5, 1, 4), (5, 2, 0), (5, 3, 3), (5, 3, 4),
    (5, 4, 0), NEWEST_READ,
)

# --- defaults of settings ---------------------------------------------------------------------------------------------

#: Setting → its defaults, each from its release on, oldest first. Source: common/BrokerConfig.java,
#: store/config/MessageStoreConfig.java. docs/formats/cursors.md#settings names the newest.
DEFAULTS: dict[str, tuple[tuple[Version, int], ...]] = {
    "transactionTimeOut": ((ALWAYS, 3_000), ((4, 3, 1), 6_000)),
    "transactionCheckMax": ((ALWAYS, 5), ((4, 3, 1), 15)),
    "transactionCheckInterval": ((ALWAYS, 60_000), ((5, 1, 1), 30_000)),
    "transactionOpBatchInterval": ((ALWAYS, 0), (OP_LISTS.since, 3_000)),
    "fileReservedTime": ((ALWAYS, 72),),
    "maxHashSlotNum": ((ALWAYS, 5_000_000),),
    "maxIndexNum": ((ALWAYS, 20_000_000),),
    "waitTimeMillsInTransactionQueue": ((ALWAYS, 3_000),),  # 4.4.0 and later, as RocketMQ spells it
}


def newest_default(setting: str) -> int:
    """Return the default of a setting in the newest release."""
    return DEFAULTS[setting][-1][1]


# --- what files show --------------------------------------------------------------------------------------------------

STORE_LOCK = Change(
    "a running broker locks the file `lock` and writes to it", "seen: 4.2.0 does, 3.1.4 and 3.2.6 do not",
    since=(4, 0, 0),
)
CONSUMER_FILTER = Change("config/consumerFilter.json is written", "seen: 4.2.0, not 3.2.6", since=(4, 0, 0))
TOPIC_FLAGS = Change("topics.json has topicSysFlag", "seen: 3.2.6, not 3.1.4", since=(3, 2, 0))
KEY_TOPIC_OF_4_3_0 = Change(
    "the template for new topics is AUTO_CREATE_TOPIC_KEY; before and after it is TBW102",
    "common/MixAll.java", since=(4, 3, 0), until=(4, 3, 1),
)
KEY_TOPIC_AGAIN = Change(
    "the template for new topics is TBW102 again, as before 4.3.0", "common/MixAll.java", since=(4, 3, 1)
)
REPLY_TOPIC = Change("the cluster has a _REPLY_TOPIC", "broker/topic/TopicConfigManager.java", since=(4, 6, 0))
SCHEDULE_TOPIC_DECLARED = Change(
    "the delay topic is in topics.json", "broker/topic/TopicConfigManager.java", since=(4, 7, 1)
)
SYSTEM_TOPICS = Change(
    "topics rmq_sys_REVIVE_LOG_ and rmq_sys_SYNC_BROKER_MEMBER_ are in topics.json",
    "broker/topic/TopicConfigManager.java", since=(5, 0, 0),
)
CURSORS_HAVE_VERSION = Change(
    "the cursor file has a dataVersion", "broker/offset/ConsumerOffsetManager.java", since=(5, 0, 0)
)
PROCESS_IN_ABORT = Change(
    "the file `abort` contains the process number", "store/DefaultMessageStore.java", since=(5, 0, 0)
)
_CHECKPOINT = "store/StoreCheckpoint.java"
CHECKPOINT_OF_MASTER = Change(
    "the checkpoint has the commit-log offset up to which the master had flushed", _CHECKPOINT, since=(5, 0, 0)
)
CHECKPOINT_CONFIRMED = Change(
    "the checkpoint has the commit-log offset that the replicas confirmed", _CHECKPOINT, since=(5, 1, 1)
)
CHECKPOINT_OF_QUEUES = Change(
    "the checkpoint has the commit-log offset up to which consume queues were flushed", _CHECKPOINT, since=(5, 5, 0)
)
LIGHT_CURSORS_WRITTEN = Change(
    "config/lmqConsumerOffset.json is written (enableLmq)", "broker/offset/LmqConsumerOffsetManager.java",
    since=(4, 9, 3),
)
LIGHT_CURSORS_LOADED = Change(
    "a start reads config/lmqConsumerOffset.json (in 4.9.3 a constructor that the JSON library needs is missing)",
    "broker/offset/LmqConsumerOffsetManager.java; seen on 4.9.3 to 5.5.0", since=(4, 9, 4),
)

#: The last releases before a change: a store with files of the older form was written by one of them or an older one.
LAST_OF_3_1: Version = (3, 1, 9)
LAST_OF_3: Version = (3, 9, 9)
LAST_OF_4: Version = (4, 9, 8)
LAST_BEFORE_OP_LISTS: Version = (5, 0, 0)
#: The last release whose JSON library is the first fastjson.
LAST_OF_FIRST_JSON: Version = (5, 3, 4)


# --- versions as text -------------------------------------------------------------------------------------------------


def parse_version(text: str) -> Version:
    """Return a version from its text: 5.1.4, 5.1.4-SNAPSHOT, V5_1_4, or V4_2_0_SNAPSHOT, as 4.2.0 names itself.

    Raises: BadRequest.
    """
    match = re.match(r"[vV]?([0-9]{1,3})[._]([0-9]{1,3})(?:[._]([0-9]{1,3}))?(?:_SNAPSHOT)?(?![0-9._])", text.strip())
    if match is None:
        raise BadRequest(f"{text!r} is not a broker version", advice="write it like 5.1.4")
    return int(match[1]), int(match[2]), int(match[3] or 0)


def dotted(version: Version) -> str:
    """Return a version as text: 5.1.4."""
    return ".".join(map(str, version))


def release_text(known: Version) -> str:
    """Return a known release as text; for a line whose last number is not known: the last 3.2."""
    return f"the last {known[0]}.{known[1]}" if known[2] == _ANY_NUMBER else dotted(known)


def release_before(version: Version) -> Version | None:
    """Return the version if it is a known release, else the newest known release before it; None before 3.0."""
    lines = [line for line in LAST_OF_LINES if line[:2] <= version[:2]]
    if not lines:
        return None
    last = max(lines)
    return version if version[:2] == last[:2] and version <= last else last
