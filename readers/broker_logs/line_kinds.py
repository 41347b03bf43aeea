"""The lines of a broker's logs that name transactions, producer groups or rounds of the check, declared as data.

Releases: those of the jars from 4.3.0 to 5.5.1 that have the text. tests/broker_logs has lines of six brokers; a kind
that is in none of them is from the sources.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from rmqtx.readers.broker_logs.log_files import LOG_NAMES

_OFFSET_ID = r"[0-9A-Fa-f]{16,48}"
#: What the END_TRANSACTION request of a line names, before 5.0.0 with quotes. A group is the client's own text.
_REQUEST = (
    r".{0,40}?RequestHeader\{producerGroup='?(?P<group>.{0,300}?)'?, tranStateTableOffset=(?P<queue_offset>\d+), "
    r"commitLogOffset=(?P<log_offset>\d+), commitOrRollback=(?P<decision>\d+)"
)


@dataclass(frozen=True)
class LineKind:
    """A kind of line.

    Shape: `word`: stable name. `log`: the file that has it; a kind that moved between releases has several. `begins`:
           the text that the message of the line begins with. `pattern`: matched from there on; its groups are the
           fields: `log_offset` and `queue_offset` of a record, `offset_id` (its last 16 digits are the offset),
           `group` of producers, `address` of a client, `topic`, `unique_key` of a transaction, `epoch_ms`.
           `releases`: those that have the text. `source`: upstream file. `has_exception`: the next line is the
           exception. `is_shown`: whether the line is an event of a transaction. `thread`: a part of the name of the
           thread that writes the line; lines of other threads are not of this kind.
    """

    word: str
    log: tuple[str, ...]
    begins: str
    meaning: str
    releases: str
    source: str
    rest: str = ""
    has_exception: bool = False
    is_shown: bool = True
    thread: str = ""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """What matches the line from its begin; compiled when the first line is compared."""
        return re.compile(re.escape(self.begins) + self.rest, re.DOTALL)

    @property
    def names(self) -> str:
        """What the line names: a record, a group of producers, a topic, or only the broker."""
        if {"log_offset", "offset_id", "unique_key"} & set(self.fields):
            return "record"
        return next((name for name in ("group", "topic") if name in self.fields), "broker")

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of what the line names."""
        return tuple(self.pattern.groupindex)


_CHECK = "broker/transaction/queue/TransactionalMessageServiceImpl.java"
_BRIDGE = "broker/transaction/queue/TransactionalMessageBridge.java"
_SERVICE = "broker/transaction/TransactionalMessageCheckService.java"
_LISTENER = "broker/transaction/AbstractTransactionalMessageCheckListener.java"
_DISCARDS = "broker/transaction/queue/DefaultTransactionalMessageCheckListener.java"
_END = "broker/processor/EndTransactionProcessor.java"
_PRODUCERS = "broker/client/ProducerManager.java"
_ROCKS = "broker/transaction/rocksdb/TransactionalMessageRocksDBService.java"
_MESSAGE = r".{0,400}?queueOffset=(?P<queue_offset>\d+),.{0,400}?commitLogOffset=(?P<log_offset>\d+)"
_ALL = "4.3.0 to 5.5.1"
#: The thread in which a slave synchronises with its master.
_SCHEDULED = "BrokerControllerScheduledThread"
_TRANSACTION, _BROKER, _STORE, _REMOTING = LOG_NAMES

KINDS: tuple[LineKind, ...] = (
    LineKind(
        "round-begins", (_TRANSACTION,), "Begin to check prepare message, begin time:",
        "a round of the check begins; its time in epoch milliseconds shows the zone of the log", _ALL, _SERVICE,
        rest=r"(?P<epoch_ms>\d{13})", is_shown=False,
    ),
    LineKind(
        "put-back", (_TRANSACTION,), "Send check message, the offset=",
        "the check put the half message back", "4.3.0; later ones only with debug", _CHECK,
        rest=r"\d+ restored in queueOffset=(?P<queue_offset>\d+) commitLogOffset=(?P<log_offset>\d+)",
    ),
    LineKind(
        "check-sent", (_TRANSACTION,), "Check transaction. real_topic=",
        "the check begins to ask a producer about this copy", "5.1.0 to 5.5.1", _CHECK,
        rest=r".{0,400}?,offset=(?P<queue_offset>\d+),commitLogOffset=(?P<log_offset>\d+)$",
    ),
    LineKind(
        "no-producer", (_TRANSACTION,), "Check transaction failed, channel is null. groupId=",
        "no producer of the group was connected: no process was asked", _ALL, _LISTENER, rest=r"(?P<group>.*)",
    ),
    LineKind(
        "no-producer-rocksdb", (_TRANSACTION,),
        "TransactionalMessageRocksDBService checkProducerTransactionState failed, channel is null. groupId: ",
        "no producer of the group was connected: the check of RocksDB asked no process", "5.4.0 to 5.5.1", _ROCKS,
        rest=rf"(?P<group>.*), msgId: (?P<offset_id>{_OFFSET_ID})",
    ),
    LineKind(
        "check-send-failed", (_BROKER,), "Check transaction failed because invoke producer exception. group=",
        "the check could not be sent to the producer", _ALL, "broker/client/net/Broker2Client.java",
        rest=rf"(?P<group>.*?), msgId=(?P<offset_id>{_OFFSET_ID})",
    ),
    LineKind(
        "check-not-built", (_TRANSACTION,), "Send check message error!",
        "the check could not be sent: an exception", _ALL, _LISTENER, has_exception=True, is_shown=False,
    ),
    LineKind(
        "request", (_TRANSACTION,), "Transaction request:",
        "a decision reached the broker (8 commit, 12 rollback, 0 unknown)",
        "4.3.0 to 4.5.2; later ones only with debug", _END, rest=_REQUEST,
    ),
    LineKind(
        "answered-unknown", (_TRANSACTION,), "Check producer[",
        "the producer answered a check with UNKNOWN", _ALL, _END,
        rest=rf"(?P<address>.{{0,200}}?)\] transaction state, but it's pending status\.{_REQUEST}",
    ),
    LineKind(
        "answered-commit", (_TRANSACTION,), "Check producer[",
        "the producer answered a check with COMMIT", _ALL, _END,
        rest=rf"(?P<address>.{{0,200}}?)\] transaction state, the producer commit the message\.{_REQUEST}",
    ),
    LineKind(
        "answered-rollback", (_TRANSACTION,), "Check producer[",
        "the producer answered a check with ROLLBACK", _ALL, _END,
        rest=rf"(?P<address>.{{0,200}}?)\] transaction state, the producer rollback the message\.{_REQUEST}",
    ),
    LineKind(
        "ended-unknown", (_TRANSACTION,), "The producer[",
        "the local transaction returned UNKNOWN", _ALL, _END,
        rest=rf"(?P<address>.{{0,200}}?)\] end transaction in sending message,  and it's pending status\.{_REQUEST}",
    ),
    LineKind(
        "ended-rollback", (_TRANSACTION,), "The producer[",
        "the local transaction returned ROLLBACK", _ALL, _END,
        rest=rf"(?P<address>.{{0,200}}?)\] end transaction in sending message, rollback the message\.{_REQUEST}",
    ),
    LineKind(
        "commit-refused-immune", (_TRANSACTION,), "Message commit fail [producer end]. ",
        "the broker refused a commit that came after the immunity time", "5.1.1 to 5.5.1", _END,
        rest=r".{0,400}?,commitLogOffset=(?P<log_offset>\d+), wait check",
    ),
    LineKind(
        "rollback-refused-immune", (_TRANSACTION,), "Message rollback fail [producer end]. ",
        "the broker refused a rollback that came after the immunity time", "5.1.1 to 5.5.1", _END,
        rest=r".{0,400}?,commitLogOffset=(?P<log_offset>\d+), wait check",
    ),
    LineKind(
        "request-failed", (_REMOTING,), "RemotingCommand [code=37,",
        "the broker answered a decision with an exception", _ALL, "remoting/netty/NettyRemotingAbstract.java",
        rest=r".{0,600}?extFields=\{.{0,600}?commitLogOffset=(?P<log_offset>\d+)",
    ),
    LineKind(
        "not-in-memory", (_STORE,), "selectMappedBuffer request pos invalid, request pos: ",
        "a request read a place of the log that was not readable yet, or not a record", _ALL,
        "store/MappedFile.java, store/logfile/DefaultMappedFile.java", rest=r"(?P<log_offset>\d+), size: ",
    ),
    LineKind(
        "discarded", (_TRANSACTION,), "MsgExt:MessageExt [", "the check discarded it after its last check", _ALL,
        _DISCARDS, rest=_MESSAGE,
    ),
    LineKind(
        "discard-copied", (_TRANSACTION,), "Put checked-too-many-time half message to TRANS_CHECK_MAXTIME_TOPIC OK. ",
        "the broker wrote its discard copy", "4.5.2 to 5.5.1", _DISCARDS,
        rest=r"Restored in queueOffset=(?P<queue_offset>\d+), commitLogOffset=(?P<log_offset>\d+)",
    ),
    LineKind(
        "discard-failed", (_TRANSACTION,),
        "Put checked-too-many-time half message to TRANS_CHECK_MAXTIME_TOPIC failed, real topic=",
        "the broker could not write its discard copy", "4.5.2 to 5.5.1", _DISCARDS,
        rest=rf".{{0,400}}?, msgId=(?P<offset_id>{_OFFSET_ID})",
    ),
    LineKind(
        "expired", (_TRANSACTION,), "Half message exceed file reserved time ,so skip it.messageId ",
        "older than fileReservedTime: the check passes it", _ALL, _CHECK, rest=rf"(?P<offset_id>{_OFFSET_ID}),",
    ),
    LineKind(
        "dropped-rocksdb", (_TRANSACTION,),
        "TransactionalMessageRocksDBService checkTransRecordsStatus checkTimes > ",
        "the check of RocksDB dropped it after its last check", "5.4.0 to 5.5.1", _ROCKS,
        rest=rf"\d+, need delete, checkTimes: \d+, msgId: (?P<offset_id>{_OFFSET_ID})",
    ),
    LineKind(
        "put-back-failed", (_TRANSACTION,), "PutBackToHalfQueueReturnResult write failed, topic: ",
        "the check could not write the half message back", _ALL, _CHECK,
        rest=rf".{{0,400}}?, msgId: (?P<offset_id>{_OFFSET_ID})",
    ),
    LineKind(
        "op-failed", (_TRANSACTION,), "Transaction op message write failed. messageId is ",
        "the broker could not write the op message of a decision", _ALL, _CHECK,
        rest=rf"(?P<offset_id>{_OFFSET_ID}), queueId is ",
    ),
    LineKind(
        "op-batch-failed", (_TRANSACTION,), "Transaction batch op message write failed. body is ",
        "the broker could not write an op message with several marks", "5.1.0 to 5.5.1", _CHECK, is_shown=False,
    ),
    LineKind(
        "escape-failed", (_TRANSACTION,), "Escaping transactional message failed ",
        "a slave that acts as master could not pass it on to another broker", "5.1.0 to 5.5.1", _CHECK,
        rest=rf"\d+ times! msgId\(offsetId\)=(?P<offset_id>{_OFFSET_ID}),",
    ),
    LineKind(
        "schedule-drops", (_BROKER, _STORE), "[BUG] the real topic of schedule msg is RMQ_SYS_TRANS_HALF_TOPIC",
        "the schedule service dropped a half message that a delay had diverted", "4.6.1 to 5.5.1",
        "broker/schedule/ScheduleMessageService.java, store/schedule/ScheduleMessageService.java",
        rest=r", discard the msg\. msg=.*?UNIQ_KEY=(?P<unique_key>[0-9A-F]{24,56})",
    ),
    LineKind(
        "round-failed", (_TRANSACTION,), "Check error", "an exception ended the round of the check", _ALL, _CHECK,
        has_exception=True,
    ),
    LineKind(
        "ops-skipped", (_TRANSACTION,),
        "Offset illegal. GetMessageStatus=OFFSET_OVERFLOW_ONE, topic=RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "the check reached the end of the op queue; before 4.6.0 it then moved its op cursor there", _ALL, _BRIDGE,
        is_shown=False,
    ),
    LineKind(
        "broker-started", (_BROKER,), "The broker[", "the broker started", _ALL, "broker/BrokerStartup.java",
        rest=r".{0,300}?\] boot success\.",
    ),
    LineKind(
        "producer-connected", (_BROKER,), "new producer connected, group: ", "a producer of the group connected", _ALL,
        _PRODUCERS, rest=r"(?P<group>.*?) channel: ClientChannelInfo",
    ),
    LineKind(
        "producer-left", (_BROKER,), "unregister a producer group[",
        "the last producer of the group disconnected", _ALL, _PRODUCERS,
        rest=r"(?P<group>.*)\] from groupChannelTable",
    ),
    LineKind(
        "slave-deleted-topic", (_BROKER,), "delete topic config OK, topic: TopicConfig [topicName=",
        "a slave deleted a topic while it synchronised with its master", "5.0.0 to 5.5.1",
        "broker/topic/TopicConfigManager.java", rest=r"(?P<topic>[^,\]]{1,255})[,\]]", is_shown=False,
        thread=_SCHEDULED,
    ),
    LineKind(
        "slave-synchronised", (_BROKER,), "Update slave topic config from master",
        "the broker was a slave: it took over the topics of its master", _ALL, "broker/slave/SlaveSynchronize.java",
        is_shown=False,
    ),
    LineKind(
        "became-master", (_BROKER,), "Begin to change to master", "the broker became a master while it ran",
        "4.5.0 to 5.5.1", "broker/BrokerController.java, broker/controller/ReplicasManager.java", is_shown=False,
    ),
)
