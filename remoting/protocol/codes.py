"""The numbers of the protocol: requests, responses, versions, languages, flag bits.

Source: remoting/protocol/RequestCode.java, ResponseCode.java, LanguageCode.java, common/MQVersion.java;
docs/formats/wire.md#codes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

IS_RESPONSE, IS_ONEWAY = 0x1, 0x2


class RequestCode(IntEnum):
    """Codes of requests."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    GET_ALL_TOPIC_CONFIG = 21
    UPDATE_BROKER_CONFIG = 25
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    END_TRANSACTION = 37
    CHECK_TRANSACTION_STATE = 39
    GET_ALL_CONSUMER_OFFSET = 43
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    SEND_MESSAGE_V2 = 310
    QUERY_CONSUME_QUEUE = 321
    RESUME_CHECK_HALF_MESSAGE = 323
    GET_ALL_PRODUCER_INFO = 328


class ResponseCode(IntEnum):
    """Codes of responses; docs/formats/wire.md#response-codes."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29
    TRANSACTION_SHOULD_COMMIT = 200
    TRANSACTION_SHOULD_ROLLBACK = 201
    TRANSACTION_STATE_UNKNOW = 202
    TRANSACTION_STATE_GROUP_WRONG = 203
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    POLLING_FULL = 209
    POLLING_TIMEOUT = 210
    BROKER_NOT_EXIST = 211
    BROKER_DISPATCH_NOT_COMPLETE = 212
    BROADCAST_CONSUMPTION = 213
    FLOW_CONTROL = 215
    NOT_LEADER_FOR_QUEUE = 501
    ILLEGAL_OPERATION = 604
    GO_AWAY = 1500
    USER_NOT_EXIST = 3001
    POLICY_NOT_EXIST = 3002


#: Response code → its name.
NAMES: dict[int, str] = {int(code): code.name for code in ResponseCode}

#: END_TRANSACTION's commitOrRollback; nothing else is ever sent (0 gets no response at all).
COMMIT, ROLLBACK = 8, 12

#: Version in our frames: 4.9.3 (V4_9_3), the last one whose clients sign a unique-key query as every broker checks it.
OUR_VERSION = 399

#: LanguageCode, by its number in the ROCKETMQ header.
LANGUAGES = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST",
    "NODE_JS",
)


class Meaning(NamedTuple):
    """A response code in a sentence; `advice` is None for codes that are answers, or where the remark is enough."""

    sentence: str
    advice: str | None = None


_NEVER_SEEN = "brokers 4.3 and later were never seen to send it"

#: In the order of their numbers; sources: ResponseCode.java and the processors that send them.
MEANINGS: dict[ResponseCode, Meaning] = {
    ResponseCode.SUCCESS: Meaning("the request was carried out; a read has its result"),
    ResponseCode.SYSTEM_ERROR: Meaning(
        "any error without a code of its own: an exception in the broker, a record that is not found, a group without "
        "members, and a refusal by the ACL of 4.x; only the remark shows which"
    ),
    ResponseCode.SYSTEM_BUSY: Meaning(
        "the broker's queue for this kind of request is full, or the request waited in it too long: nothing was done",
        "run the command again later, or with fewer requests per second",
    ),
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Meaning(
        "the request is unknown here: an older version, the broker's fast port, or a name server instead of a broker",
        "give name servers with -n, and brokers with --broker and their ordinary port",
    ),
    ResponseCode.TRANSACTION_FAILED: Meaning(f"the transaction could not be decided; {_NEVER_SEEN}"),
    ResponseCode.FLUSH_DISK_TIMEOUT: Meaning(
        "the record was written, but its flush to disk was not confirmed in time: it is lost only if the machine fails"
    ),
    ResponseCode.SLAVE_NOT_AVAILABLE: Meaning(
        "from a slave: it refuses every request that changes something; from a master with synchronous replication: "
        "the record was written, but no slave is available",
        "select the master: --broker NAME, or its address",
    ),
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Meaning("the record was written, but no slave confirmed it in time"),
    ResponseCode.MESSAGE_ILLEGAL: Meaning("the message is not allowed: its body or its properties are too large"),
    ResponseCode.SERVICE_NOT_AVAILABLE: Meaning(
        "the broker is shutting down, its disk is full, or it must not write", "check the broker log and the disk"
    ),
    ResponseCode.VERSION_NOT_SUPPORTED: Meaning("the broker does not serve clients of the version in the request"),
    ResponseCode.NO_PERMISSION: Meaning(
        "permission denied: by access control of 5.3 and later, by a topic or broker without the right to read or "
        "write, or by rejectTransactionMessage",
        "the remark names the missing right; docs/remoting.md lists the rights of each command",
    ),
    ResponseCode.TOPIC_NOT_EXIST: Meaning(
        "the broker has no configuration of this topic; brokers 4.x never have one of the op topic, although it has "
        "records",
        "check whether the topic is on another broker, or in another namespace (--namespace)",
    ),
    ResponseCode.TOPIC_EXIST_ALREADY: Meaning("the topic already exists"),
    ResponseCode.PULL_NOT_FOUND: Meaning("the queue has no newer record"),
    ResponseCode.PULL_RETRY_IMMEDIATELY: Meaning(
        "no record at this offset; the response contains the offset at which to continue"
    ),
    ResponseCode.PULL_OFFSET_MOVED: Meaning(
        "the offset is outside the queue; the response contains the begin or end of the queue"
    ),
    ResponseCode.QUERY_NOT_FOUND: Meaning("the index or the cursors have no entry for this name"),
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Meaning("the filter expression of a pull is invalid"),
    ResponseCode.SUBSCRIPTION_NOT_EXIST: Meaning("the group has no subscription at this broker"),
    ResponseCode.SUBSCRIPTION_NOT_LATEST: Meaning(
        "the group's subscription at this broker is older than the one in the request"
    ),
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Meaning(
        "the broker does not have this consumer group and does not create it (autoCreateSubscriptionGroup=false)"
    ),
    ResponseCode.FILTER_DATA_NOT_EXIST: Meaning("the broker does not have the SQL filter of the request"),
    ResponseCode.FILTER_DATA_NOT_LATEST: Meaning("the broker's SQL filter is older than the one in the request"),
    ResponseCode.INVALID_PARAMETER: Meaning(
        "invalid value in a field of the request, for example a queue that the topic does not have"
    ),
    ResponseCode.TRANSACTION_SHOULD_COMMIT: Meaning(f"part of the oldest design of transactions; {_NEVER_SEEN}"),
    ResponseCode.TRANSACTION_SHOULD_ROLLBACK: Meaning(f"part of the oldest design of transactions; {_NEVER_SEEN}"),
    ResponseCode.TRANSACTION_STATE_UNKNOW: Meaning(f"part of the oldest design of transactions; {_NEVER_SEEN}"),
    ResponseCode.TRANSACTION_STATE_GROUP_WRONG: Meaning(f"part of the oldest design of transactions; {_NEVER_SEEN}"),
    ResponseCode.NO_BUYER_ID: Meaning(f"part of a routing by buyer; {_NEVER_SEEN}"),
    ResponseCode.NOT_IN_CURRENT_UNIT: Meaning(f"part of a routing by unit; {_NEVER_SEEN}"),
    ResponseCode.CONSUMER_NOT_ONLINE: Meaning("no consumer of the group is connected to this broker"),
    ResponseCode.CONSUME_MSG_TIMEOUT: Meaning("a consumer took too long to consume one message on request"),
    ResponseCode.NO_MESSAGE: Meaning("no message was found; only the simple pull of 5.x sends this code"),
    ResponseCode.POLLING_FULL: Meaning("too many requests already wait for new messages (pop consumers of 5.x)"),
    ResponseCode.POLLING_TIMEOUT: Meaning("no message came within the waiting time (pop consumers of 5.x)"),
    ResponseCode.BROKER_NOT_EXIST: Meaning("a name server or controller does not list this broker"),
    ResponseCode.BROKER_DISPATCH_NOT_COMPLETE: Meaning("queues and index are still behind the commit log"),
    ResponseCode.BROADCAST_CONSUMPTION: Meaning("the group consumes by broadcast, so brokers keep no cursors for it"),
    ResponseCode.FLOW_CONTROL: Meaning(
        "the broker limits requests at the moment: nothing was done",
        "run the command again later, or with fewer requests per second",
    ),
    ResponseCode.NOT_LEADER_FOR_QUEUE: Meaning("another broker leads this queue"),
    ResponseCode.ILLEGAL_OPERATION: Meaning(
        "5.1.1 and later refuse a decision after the time in CHECK_IMMUNITY_TIME_IN_SECONDS of the message, unless the "
        "decision answers a check"
    ),
    ResponseCode.GO_AWAY: Meaning(
        "the broker is shutting down and requires a new connection: nothing was done", "run the command again"
    ),
    ResponseCode.USER_NOT_EXIST: Meaning("access control of 5.3 and later does not have this user"),
    ResponseCode.POLICY_NOT_EXIST: Meaning("access control of 5.3 and later does not have this policy"),
}

ADVICE: dict[int, str] = {int(code): meaning.advice for code, meaning in MEANINGS.items() if meaning.advice}
