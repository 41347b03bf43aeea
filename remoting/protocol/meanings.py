"""What each response code means, and what to do about it."""

from __future__ import annotations

from typing import NamedTuple

from remoting.protocol.codes import ResponseCode


class Meaning(NamedTuple):
    """A response code in a sentence; `advice` is None for what is an answer, or where the remark says it all."""

    sentence: str
    advice: str | None = None


_NEVER_SEEN = "brokers of 4.3 and later have not been seen to send it"

#: In the order of their numbers; sources: ResponseCode.java and the processors that send them.
MEANINGS: dict[ResponseCode, Meaning] = {
    ResponseCode.SUCCESS: Meaning("done, or here it is"),
    ResponseCode.SYSTEM_ERROR: Meaning(
        "everything that has no code of its own: an exception in the broker, a record that cannot be found, a group "
        "without members, and with ACL of 4.x a refusal; only the remark says which"
    ),
    ResponseCode.SYSTEM_BUSY: Meaning(
        "the broker's queue for such requests is full, or one waited in it for too long: nothing was done",
        "ask again later, or slower",
    ),
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Meaning(
        "it does not know this request: an older version, its fast port, or a name server where a broker is meant",
        "-n names name servers, --broker brokers by their ordinary port",
    ),
    ResponseCode.TRANSACTION_FAILED: Meaning(f"the transaction could not be ended; {_NEVER_SEEN}"),
    ResponseCode.FLUSH_DISK_TIMEOUT: Meaning(
        "the record was written and its flush to disk not seen in time: it is there unless the machine fails"
    ),
    ResponseCode.SLAVE_NOT_AVAILABLE: Meaning(
        "asked to act, a slave says so; a master that replicates synchronously: no slave is there, the record is",
        "name the master: --broker NAME, or its address",
    ),
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Meaning("the record was written and no slave confirmed it in time"),
    ResponseCode.MESSAGE_ILLEGAL: Meaning("the message itself is not allowed: too large, or its properties are"),
    ResponseCode.SERVICE_NOT_AVAILABLE: Meaning(
        "the broker is shutting down, its disk is full, or it must not write", "look at the broker's log and disk"
    ),
    ResponseCode.VERSION_NOT_SUPPORTED: Meaning("the broker does not serve clients of the version that was said"),
    ResponseCode.NO_PERMISSION: Meaning(
        "not allowed: access control of 5.3 and later, a topic or broker without the right to read or write, or "
        "rejectTransactionMessage",
        "the remark says whose right is missing; docs/remoting.md lists the rights of each command",
    ),
    ResponseCode.TOPIC_NOT_EXIST: Meaning(
        "the broker has no configuration of this topic; brokers of 4.x never have one of the op topic, though it has "
        "records",
        "is the topic of another broker, or another namespace?",
    ),
    ResponseCode.TOPIC_EXIST_ALREADY: Meaning("the topic is there already"),
    ResponseCode.PULL_NOT_FOUND: Meaning("nothing newer is in the queue"),
    ResponseCode.PULL_RETRY_IMMEDIATELY: Meaning("nothing to give at this offset; it says where to go on"),
    ResponseCode.PULL_OFFSET_MOVED: Meaning("the offset is outside the queue; it says where the queue begins or ends"),
    ResponseCode.QUERY_NOT_FOUND: Meaning("the index or the cursors know nothing under this name"),
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Meaning("the filter expression of a pull cannot be understood"),
    ResponseCode.SUBSCRIPTION_NOT_EXIST: Meaning("the group has subscribed to nothing here"),
    ResponseCode.SUBSCRIPTION_NOT_LATEST: Meaning("the group's subscription here is older than the one in the request"),
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Meaning(
        "the broker has no such consumer group and creates none (autoCreateSubscriptionGroup=false)"
    ),
    ResponseCode.FILTER_DATA_NOT_EXIST: Meaning("an SQL filter that the broker was never told"),
    ResponseCode.FILTER_DATA_NOT_LATEST: Meaning("an SQL filter that is older than the one in the request"),
    ResponseCode.INVALID_PARAMETER: Meaning("a field of the request cannot be: a queue that the topic does not have"),
    ResponseCode.TRANSACTION_SHOULD_COMMIT: Meaning(f"of the oldest design of transactions; {_NEVER_SEEN}"),
    ResponseCode.TRANSACTION_SHOULD_ROLLBACK: Meaning(f"of the oldest design of transactions; {_NEVER_SEEN}"),
    ResponseCode.TRANSACTION_STATE_UNKNOW: Meaning(f"of the oldest design of transactions; {_NEVER_SEEN}"),
    ResponseCode.TRANSACTION_STATE_GROUP_WRONG: Meaning(f"of the oldest design of transactions; {_NEVER_SEEN}"),
    ResponseCode.NO_BUYER_ID: Meaning(f"of a routing by buyer; {_NEVER_SEEN}"),
    ResponseCode.NOT_IN_CURRENT_UNIT: Meaning(f"of a routing by unit; {_NEVER_SEEN}"),
    ResponseCode.CONSUMER_NOT_ONLINE: Meaning("no consumer of the group is connected to this broker"),
    ResponseCode.CONSUME_MSG_TIMEOUT: Meaning("a consumer that was asked to consume one message took too long"),
    ResponseCode.NO_MESSAGE: Meaning("there is no message; only the simple pull of 5.x says so"),
    ResponseCode.POLLING_FULL: Meaning("too many wait for new messages already (pop consumers of 5.x)"),
    ResponseCode.POLLING_TIMEOUT: Meaning("nothing came while it was waited for (pop consumers of 5.x)"),
    ResponseCode.BROKER_NOT_EXIST: Meaning("a name server, or controller, does not know this broker"),
    ResponseCode.BROKER_DISPATCH_NOT_COMPLETE: Meaning("queues and index are still behind the commit log"),
    ResponseCode.BROADCAST_CONSUMPTION: Meaning("the group consumes by broadcast, so that brokers keep no cursors"),
    ResponseCode.FLOW_CONTROL: Meaning(
        "the broker takes no more for now: nothing was done", "ask again later, or slower"
    ),
    ResponseCode.NOT_LEADER_FOR_QUEUE: Meaning("another broker leads this queue"),
    ResponseCode.ILLEGAL_OPERATION: Meaning(
        "5.1.1 and later refuse a decision after the time of immunity that the message itself asked for "
        "(CHECK_IMMUNITY_TIME_IN_SECONDS), unless it answers a check"
    ),
    ResponseCode.GO_AWAY: Meaning(
        "the broker is shutting down and wants a new connection: nothing was done", "ask again"
    ),
    ResponseCode.USER_NOT_EXIST: Meaning("access control of 5.3 and later knows no such user"),
    ResponseCode.POLICY_NOT_EXIST: Meaning("access control of 5.3 and later has no such policy"),
}

ADVICE: dict[int, str] = {int(code): meaning.advice for code, meaning in MEANINGS.items() if meaning.advice}
