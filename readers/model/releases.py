"""The releases of RocketMQ: which are known, and since which one what is otherwise.

Upstream files were read at the tag of each release, and in the source jars of 5.3.4, 5.4.0 and 5.5.0. What only says
since when a file is kept, and decides nothing else, stands in readers/store/paths.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from readers.model.errors import BadRequest

#: A release, 5.1.4 as (5, 1, 4).
Version = tuple[int, int, int]
ALWAYS: Version = (0, 0, 0)
_ANY_NUMBER = 999

#: The last known release of each line; of 3.x any number is taken, for some were released outside of Apache.
LAST_OF_LINES: tuple[Version, ...] = (
    (3, 0, _ANY_NUMBER), (3, 1, _ANY_NUMBER), (3, 2, _ANY_NUMBER), (3, 4, _ANY_NUMBER), (3, 5, _ANY_NUMBER),
    (4, 0, 0), (4, 1, 0), (4, 2, 0), (4, 3, 2), (4, 4, 0), (4, 5, 2), (4, 6, 1), (4, 7, 1), (4, 8, 0), (4, 9, 8),
    (5, 0, 0), (5, 1, 4), (5, 2, 0), (5, 3, 4), (5, 4, 0), (5, 5, 1),
)  # fmt: skip
#: The youngest release whose sources were read: what is not known of a broker is supposed to be as here.
NEWEST_READ: Version = (5, 5, 0)


@dataclass(frozen=True, slots=True)
class Change:
    """What some releases do, and their neighbours do not.

    Shape: `since`: the first release that does it; `until`: the first one that no longer does. `but`: those between
           them that do not. `source`: upstream file, or number of the issue, or the brokers that were seen.
    """

    what: str
    source: str
    since: Version = ALWAYS
    until: Version | None = None
    but: tuple[Version, ...] = ()

    def holds(self, version: Version) -> bool:
        """Whether a release does it."""
        return version >= self.since and (self.until is None or version < self.until) and version not in self.but

    def between(self, low: Version | None, high: Version | None) -> bool | None:
        """Whether a release within bounds does it; None where some within them do and others do not."""
        if self.border_between(low, high) is not None or any(
            low != high and (low is None or low <= one) and (high is None or one <= high) for one in self.but
        ):
            return None
        return self.holds(low or high or ALWAYS)

    def border_between(self, low: Version | None, high: Version | None) -> Version | None:
        """The youngest release from which on it is otherwise, of those that bounds leave open; None for none."""
        borders = [border for border in (self.since, self.until) if border is not None and border != ALWAYS]
        open_ones = [
            border for border in borders if (low is None or low < border) and (high is None or high >= border)
        ]
        return max(open_ones, default=None)


# --- designs of transactions ------------------------------------------------------------------------------------------

#: Before it 3.0 and 3.1 keep the state table and ask for what is open in it.
PREPARED_NEVER_ASKED = Change(
    "the state table is neither read nor written, and no producer is asked for a prepared record",
    "seen: 3.2.6 on a store of 3.1.4", since=(3, 2, 0),
)  # fmt: skip
STATE_TABLE = Change("transaction/statetable and transaction/redolog are made", "seen: 3.1.4", since=(3, 0, 0))
HALF_TOPIC_DESIGN = Change(
    "half and op messages have topics of their own; prepared records are refused: NumberFormatException at REAL_QID",
    "broker/transaction/queue/TransactionalMessageBridge.java; seen on 4.3.0", since=(4, 3, 0),
)  # fmt: skip
ROCKSDB_TRANSACTIONS = Change(
    "transactions may be kept in RocksDB: rocksdbstore is made, and topics for their halves and ops",
    "RIP-82, #9787; seen on 5.4.0 and 5.5.0", since=(5, 4, 0),
)  # fmt: skip

# --- what is written --------------------------------------------------------------------------------------------------

DISCARD_COPY = Change(
    "giving up on a half leaves a copy in the discard topic",
    "broker/transaction/queue/DefaultTransactionalMessageCheckListener.java", since=(4, 5, 2),
)  # fmt: skip
OP_LISTS = Change(
    "op messages hold lists of numbers and wait in memory for others",
    "broker/transaction/queue/TransactionalOpBatchService.java", since=(5, 1, 0),
)  # fmt: skip
DESTINATION_LEFT_OUT = Change(
    "finals have neither REAL_TOPIC nor REAL_QID",
    "broker/processor/EndTransactionProcessor.java; seen on 5.4.0 and 5.5.0", since=(5, 4, 0),
)  # fmt: skip
LAST_END_LEFT_OUT = Change(
    "the last property of a record has no end mark",
    "common/message/MessageDecoder.java messageProperties2String", since=(4, 9, 1), until=(5, 2, 0),
)  # fmt: skip
INDEX_TAGS = Change("tags are entered into the key index", "store/index/IndexService.java", since=(5, 5, 0))
TIMERS = Change("a timer wheel holds messages until any time", "store/timer/TimerMessageStore.java", since=(5, 0, 0))
DELAYED_HALVES_DROPPED = Change(
    "a delay level is taken out of a half that is put back, and the schedule service drops those it has (\"[BUG]\")",
    "#1540", since=(4, 6, 1),
)  # fmt: skip

# --- the check --------------------------------------------------------------------------------------------------------

_CHECK = "broker/transaction/queue/TransactionalMessageServiceImpl.java"
OPS_DONE_AT_ONCE = Change("an op is done as soon as its half was met", _CHECK, since=(4, 6, 0))
END_IS_ILLEGAL = Change("reading at the end of a queue counts as an illegal offset", _CHECK, until=(4, 6, 0))
CHECK_INFLATES = Change(
    "the check puts copies back with inflated bodies under the flag of compressed ones",
    "broker/transaction/queue/TransactionalMessageBridge.java; docs/formats/half_and_op.md#inflated-copy",
    until=(4, 6, 0),
)  # fmt: skip
#: What 4.9.5 mended came into the 5.x line with 5.1.0.
UNREADABLE_IS_PASSED = Change(
    "a half that cannot be read does not end the round", _CHECK, since=(4, 9, 5), but=((5, 0, 0),)
)
AGE_MAY_EQUAL = Change(
    "a half exactly as old as its time is still too young", f"{_CHECK}; the class files of 5.3.3 and 5.3.4",
    since=(5, 3, 4),
)  # fmt: skip
OVERFLOW_TO_BEGIN = Change(
    "an offset behind the end of a queue that begins at 0 is corrected to 0, not to the end",
    "store/DefaultMessageStore.java getMessage", until=(4, 9, 4),
)  # fmt: skip
#: Of each way in which checks stop, the last release that does; what a store does not say leaves several.
LAST_TO_STOP_ALIKE: tuple[Version, ...] = ((4, 5, 2), (4, 9, 4), (5, 0, 0), NEWEST_READ)

# --- requests ---------------------------------------------------------------------------------------------------------

ANY_QUERY_SPAN = Change(
    "a key is looked for over any time, not over queryMessageMaxTimeSpan hours",
    "seen: 3.1.4 refuses, 3.2.6 answers", since=(3, 2, 0),
)  # fmt: skip
QUEUE_LIMIT = Change(
    "what waits too long in the broker's queue is thrown away by default (brokerFastFailureEnable)",
    "broker/latency/BrokerFastFailure.java", since=(4, 0, 0),
)  # fmt: skip
RESUME_REQUEST = Change(
    "RESUME_CHECK_HALF_MESSAGE is answered",
    "broker/processor/AdminBrokerProcessor.java; docs/formats/half_and_op.md#resume", since=(4, 5, 2),
)  # fmt: skip
RESUME_BREAKS_COMPRESSED = Change(
    "a resume stores a compressed body so that it cannot be read",
    "common/message/MessageDecoder.java; docs/formats/half_and_op.md#resume", until=(5, 3, 2),
)  # fmt: skip

# --- starts: store/MappedFileQueue.java, CommitLog.java, ConsumeQueue.java, DefaultMessageStore.java ------------------

_FILES, _LOG = "store/MappedFileQueue.java load", "store/CommitLog.java recoverNormally, recoverAbnormally"
_QUEUES, _STORE = "store/ConsumeQueue.java", "store/DefaultMessageStore.java start"
ENTERS_BEHIND_QUEUES = Change(
    "a start after a clean stop enters all that lies behind the furthest slot", _STORE, since=(4, 5, 0), until=(5, 0, 0)
)
ENTERS_PAST_QUEUES = Change(
    "a start after a clean stop enters what begins past the furthest slot", _STORE, since=(5, 3, 2)
)
OTHER_SIZES_REFUSED = Change(
    "a file of another size in the log keeps a broker from starting", _FILES, since=(4, 5, 0), but=((4, 9, 2),)
)
DIRECTORIES_SKIPPED = Change("directories in the log are passed over", _FILES, since=(5, 1, 0))
EMPTY_LAST_DELETED = Change("a last file of no bytes is deleted", _FILES, since=(5, 1, 3))
LONG_TOPICS = Change("records of a second magic have topics over 127 bytes", _LOG, since=(5, 1, 0))
IPV6_HOSTS = Change("hosts of records may be IPv6", _LOG, since=(4, 6, 0))
LENGTHS_BOUNDED = Change("a record's length is held against what is left of its file", _LOG, since=(5, 3, 2))
MISMATCHED_COUNTED = Change(
    "after a kill, the walk goes on past a record whose parts do not make up its length", _LOG, until=(4, 3, 2)
)
THREE_FILES_BACK = Change("the walk after a clean stop begins three files back", _LOG, until=(5, 3, 2))
STARTS_AT_QUEUES_OFFSET = Change(
    "after a kill, the walk begins at the place of the flushed queues that the checkpoint says", _LOG, since=(5, 5, 0)
)
QUEUE_MAXIMUM_IS_END = Change("a queue's furthest slot says where its record ends", _QUEUES, since=(4, 5, 0))
QUEUES_CUT_AFTER_CLEAN_STOP = Change("queues are cut after a clean stop too", _LOG, since=(4, 3, 2))
QUEUES_DESTROYED = Change("queues without a log are destroyed", _LOG, since=(4, 5, 0))
QUEUES_READ_AGAIN = Change("queues are cut after the walk has entered, and read afresh", _STORE, since=(5, 3, 4))
FILES_BACK_BOUNDED = Change("the walk goes back commitLogRecoverMaxNum files at most", _LOG, since=(5, 4, 0))
#: The last release of each family of starts, and those between which a rule changed.
LAST_TO_START_ALIKE: tuple[Version, ...] = (
    (4, 3, 0), (4, 4, 0), (4, 5, 2), (4, 9, 8), (5, 0, 0), (5, 1, 4), (5, 3, 3), (5, 3, 4), NEWEST_READ,
)  # fmt: skip

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
}

# --- what files show --------------------------------------------------------------------------------------------------

STORE_LOCK = Change(
    "a running broker locks the file lock, and writes into it", "seen: 4.2.0 does, 3.1.4 and 3.2.6 do not",
    since=(4, 0, 0),
)  # fmt: skip
CONSUMER_FILTER = Change("config/consumerFilter.json is written", "seen: 4.2.0, not 3.2.6", since=(4, 0, 0))
TOPIC_FLAGS = Change("topics.json has topicSysFlag", "seen: 3.2.6, not 3.1.4", since=(3, 2, 0))
KEY_TOPIC_OF_4_3_0 = Change(
    "the topic that new ones are modelled on is AUTO_CREATE_TOPIC_KEY, before and after TBW102",
    "common/MixAll.java", since=(4, 3, 0), until=(4, 3, 1),
)  # fmt: skip
KEY_TOPIC_AGAIN = Change("that topic is TBW102, as before 4.3.0", "common/MixAll.java", since=(4, 3, 1))
REPLY_TOPIC = Change("the cluster has a _REPLY_TOPIC", "broker/topic/TopicConfigManager.java", since=(4, 6, 0))
SCHEDULE_TOPIC_DECLARED = Change(
    "the delay topic is in topics.json", "broker/topic/TopicConfigManager.java", since=(4, 7, 1)
)
SYSTEM_TOPICS = Change(
    "topics rmq_sys_REVIVE_LOG_ and rmq_sys_SYNC_BROKER_MEMBER_ are in topics.json",
    "broker/topic/TopicConfigManager.java", since=(5, 0, 0),
)  # fmt: skip
CURSORS_HAVE_VERSION = Change(
    "the file of the cursors has a dataVersion", "broker/offset/ConsumerOffsetManager.java", since=(5, 0, 0)
)
PROCESS_IN_ABORT = Change("abort holds the number of the process", "store/DefaultMessageStore.java", since=(5, 0, 0))
_CHECKPOINT = "store/StoreCheckpoint.java"
CHECKPOINT_OF_MASTER = Change("the checkpoint says how far the master had flushed", _CHECKPOINT, since=(5, 0, 0))
CHECKPOINT_CONFIRMED = Change("the checkpoint says what the replicas confirmed", _CHECKPOINT, since=(5, 1, 1))
CHECKPOINT_OF_QUEUES = Change("the checkpoint says what flushed queues hold", _CHECKPOINT, since=(5, 5, 0))
LIGHT_CURSORS_WRITTEN = Change(
    "config/lmqConsumerOffset.json is written (enableLmq)", "broker/offset/LmqConsumerOffsetManager.java",
    since=(4, 9, 3),
)  # fmt: skip
LIGHT_CURSORS_LOADED = Change(
    "a start reads config/lmqConsumerOffset.json (4.9.3 has no constructor by which its JSON library could)",
    "broker/offset/LmqConsumerOffsetManager.java; seen on 4.9.3 to 5.5.0", since=(4, 9, 4),
)  # fmt: skip

#: The last releases before what follows them changed: what a store that shows the older way was written by at most.
LAST_OF_3_1: Version = (3, 1, 9)
LAST_OF_3: Version = (3, 9, 9)
LAST_OF_4: Version = (4, 9, 8)
LAST_BEFORE_OP_LISTS: Version = (5, 0, 0)
#: The last release whose JSON library is the first fastjson.
LAST_OF_FIRST_JSON: Version = (5, 3, 4)


# --- versions as text -------------------------------------------------------------------------------------------------


def parse_version(text: str) -> Version:
    """A version as people or brokers write it: 5.1.4, 5.1.4-SNAPSHOT, V5_1_4; V4_2_0_SNAPSHOT, as 4.2.0 calls itself.

    Raises: BadRequest.
    """
    match = re.match(r"[vV]?([0-9]{1,3})[._]([0-9]{1,3})(?:[._]([0-9]{1,3}))?(?:_SNAPSHOT)?(?![0-9._])", text.strip())
    if match is None:
        raise BadRequest(f"{text!r} is not a broker version", field="version", expected="5.1.4", actual=text)
    return int(match[1]), int(match[2]), int(match[3] or 0)


def dotted(version: Version) -> str:
    """A version as people write it."""
    return ".".join(map(str, version))


def release_text(known: Version) -> str:
    """A known release as people write it; the last one of a line whose numbers are not known: the last 3.2."""
    return f"the last {known[0]}.{known[1]}" if known[2] == _ANY_NUMBER else dotted(known)


def release_before(version: Version) -> Version | None:
    """The version itself where it is a known release, else the newest known one before it; None before 3.0."""
    lines = [line for line in LAST_OF_LINES if line[:2] <= version[:2]]
    if not lines:
        return None
    last = max(lines)
    return version if version[:2] == last[:2] and version <= last else last
