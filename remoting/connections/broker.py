"""One broker and its requests, typed. Reads change nothing on the broker: pulls name the group TOOLS_CONSUMER.

A request with any other group creates that group on the broker (autoCreateSubscriptionGroup).
Source: docs/formats/wire.md#requests, docs/formats/wire.md#pull, docs/formats/wire.md#cursor-request.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rmqtx.readers.model.errors import RmqtxError
from rmqtx.readers.model.releases import Version, parse_version
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.connections.connection import Request, Value
from rmqtx.remoting.protocol.answers import Answer, ClientConnection, Pulled, QueueSlot, QueueSlots
from rmqtx.remoting.protocol.codes import COMMIT, ROLLBACK, RequestCode, ResponseCode
from rmqtx.remoting.protocol.errors import BadFrame, NoAnswer, Refused
from rmqtx.remoting.protocol.frames import Frame, parsed_json, parsing

READ_GROUP = "TOOLS_CONSUMER"
#: Most records that a broker returns at once, whatever the request (maxTransferCountOnMessageInMemory).
PULL_RECORDS_MAX = 32
_PULL_CODES = {
    ResponseCode.SUCCESS: "found", ResponseCode.PULL_NOT_FOUND: "none",
    ResponseCode.PULL_RETRY_IMMEDIATELY: "filtered", ResponseCode.PULL_OFFSET_MOVED: "moved",
}
_SUBSCRIPTION_IN_REQUEST = 4
_RUNTIME_ATTEMPTS, _RUNTIME_PAUSE_SECONDS = 4, 1.0


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker by its address; `name` and `cluster` as in the name server's list, `broker_id` 0 for a master."""

    client: Client
    address: str
    name: str
    cluster: str
    broker_id: int = 0

    @property
    def root(self) -> str:
        """Its value in the column `store`."""
        return f"{self.name}@{self.address}"

    def _call(self, request: Request, *accepted: int) -> Frame:
        return self.client.call(self.address, request, accepted=accepted or (ResponseCode.SUCCESS,))

    # -- facts about the broker ---------------------------------------------------------------------------------

    def runtime(self) -> dict[str, str]:
        """Return its runtime information; docs/formats/wire.md#runtime.

        Raises: Refused, also, after some seconds, by a broker 4.9.7 that has no statistics yet.
        """
        for attempt in range(1, _RUNTIME_ATTEMPTS + 1):
            try:
                body = self._call(Request(RequestCode.GET_BROKER_RUNTIME_INFO)).body
                break
            except Refused as error:
                # 4.9.7 in the first seconds after its start: the average of no samples.
                if "NoSuchElementException" not in (error.remark or "") or attempt == _RUNTIME_ATTEMPTS:
                    raise
                time.sleep(_RUNTIME_PAUSE_SECONDS)
        value = parsed_json(body)
        with parsing("runtime information"):
            return {str(name): str(text) for name, text in value["table"].items()}

    def config(self) -> dict[str, str]:
        """Return its present configuration."""
        text = self._call(Request(RequestCode.GET_BROKER_CONFIG)).body.decode("utf-8", "replace")
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    def version(self) -> Version:
        """Return its version, from its runtime information.

        Raises: BadFrame if that has no version that can be parsed.
        """
        text = self.runtime().get("brokerVersionDesc", "")
        try:
            return parse_version(text)
        except RmqtxError as error:
            raise BadFrame(
                f"{self.address} does not report a known version", expected="V5_3_3", actual=text[:40]
            ) from error

    # -- queues -------------------------------------------------------------------------------------------------

    def min_offset(self, topic: str, queue_id: int = 0) -> int:
        """Return the smallest queue offset of the queue."""
        return self._offset(Request(RequestCode.GET_MIN_OFFSET, {"topic": topic, "queueId": queue_id}))

    def max_offset(self, topic: str, queue_id: int = 0) -> int:
        """Return the queue offset after the last slot."""
        return self._offset(Request(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": queue_id}))

    def _offset(self, request: Request) -> int:
        return _number(self._call(request), "offset")

    def offset_at(self, topic: str, queue_id: int, time_ms: int) -> int | None:
        """Return the queue offset of the first record stored at a time or later.

        None where the broker cannot search, because a slot leads to no record (4.9.7).
        """
        fields: dict[str, Value] = {"topic": topic, "queueId": queue_id, "timestamp": time_ms}
        try:
            return self._offset(Request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields))
        except Refused as error:
            if not error.meets_empty_slot:
                raise
            return None

    def consumer_offset(self, group: str, topic: str) -> int | None:
        """Return a group's cursor in queue 0; None where the broker has none.

        For a queue that still has its first record, 4.x returns 0 instead.
        """
        fields: dict[str, Value] = {
            "consumerGroup": group, "topic": topic, "queueId": 0, "setZeroIfNotFound": False,
        }
        frame = self._call(
            Request(RequestCode.QUERY_CONSUMER_OFFSET, fields), ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND
        )
        return _number(frame, "offset") if frame.code == ResponseCode.SUCCESS else None

    def slots(self, topic: str, queue_id: int, queue_offset: int, count: int) -> QueueSlots:
        """Return entries of a consume queue; works without a topic configuration (the op topic of 4.x)."""
        fields: dict[str, Value] = {"topic": topic, "queueId": queue_id, "index": queue_offset, "count": count}
        request = Request(RequestCode.QUERY_CONSUME_QUEUE, fields)
        body = self._call(request, ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR).body
        if not body:  # the queue does not exist
            return QueueSlots([], 0, 0)
        value = parsed_json(body)
        with parsing("entries of a queue"):
            return QueueSlots(
                [
                    QueueSlot(queue_offset + n, int(e["physicOffset"]), int(e["physicSize"]), int(e["tagsCode"]))
                    for n, e in enumerate(value.get("queueData") or [])
                ],
                int(value["minQueueIndex"]), int(value["maxQueueIndex"]),
            )

    def pull(self, topic: str, queue_id: int, queue_offset: int, count: int = PULL_RECORDS_MAX) -> Pulled:
        """Return records of a queue, at most as many as the broker returns at once.

        Raises: Refused (17 where the topic has no configuration, as the op topic of 4.x).
        """
        return pulled(self._call(_pull(topic, queue_id, queue_offset, count), *_PULL_CODES))

    def has_topic(self, topic: str) -> bool:
        """Whether the broker has a topic; the request does not create it.

        Raises: Refused for any other reason, Unreachable, NoAnswer.
        """
        try:
            self.pull(topic, 0, 0, 1)
        except Refused as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return False
            raise
        return True

    def pulls(self, places: Iterable[tuple[str, int, int, int]]) -> Iterator[Pulled]:
        """Pull from many places (topic, queue number, queue offset, count), with several requests under way.

        Order: that of the places.
        """
        requests = (_pull(*place) for place in places)
        for frame in self.client.calls(self.address, requests, accepted=_PULL_CODES):
            yield pulled(frame)

    # -- single records -----------------------------------------------------------------------------------------

    def view(self, commit_log_offset: int) -> bytes | None:
        """Return the record at a commit-log offset, as in the log; None where the broker cannot read one."""
        request = Request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": commit_log_offset})
        frame = self._call(request, ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
        return frame.body or None

    # -- clients ------------------------------------------------------------------------------------------------

    def producer_connections(self, group: str) -> list[ClientConnection]:
        """Return the connected producers of a group; a producer that has not sent since its start is not listed."""
        request = Request(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": group})
        frame = self._call(request, ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
        if frame.code != ResponseCode.SUCCESS:
            return []
        value = parsed_json(frame.body)
        with parsing("a list of connections"):
            return [
                ClientConnection(str(e["clientId"]), str(e["clientAddr"]), str(e["language"]), int(e["version"]))
                for e in value.get("connectionSet") or []
            ]

    def all_producers(self) -> dict[str, list[ClientConnection]]:
        """Return the connected producers by group, of brokers from 4.9.4 on; older ones never answer.

        Source: broker/client/ProducerManager.java getProducerTable.
        """
        value = parsed_json(self._call(Request(RequestCode.GET_ALL_PRODUCER_INFO)).body)
        with parsing("the list of producers"):
            return {
                str(group): [
                    ClientConnection(
                        str(e["clientId"]), str(e["remoteIP"]).lstrip("/"), str(e["language"]), int(e["version"]),
                        int(e["lastUpdateTimestamp"]),
                    )
                    for e in clients or []
                ]
                for group, clients in (value.get("data") or {}).items()
            }

    # -- changes ------------------------------------------------------------------------------------------------

    def end_transaction(
        self, *, producer_group: str, queue_offset: int, commit_log_offset: int, decision: int, transaction_id: str,
    ) -> Answer:
        """Decide a half copy: COMMIT or ROLLBACK. Sent once; not idempotent: a second commit delivers again.

        Raises: Unreachable (nothing was sent), NoAnswer (unknown outcome: look it up before any other act).
        Source: EndTransactionProcessor; docs/formats/end_transaction.md#order.
        """
        assert decision in (COMMIT, ROLLBACK)  # 0 gets no response, anything else an exception
        fields: dict[str, Value] = {
            "producerGroup": producer_group, "tranStateTableOffset": queue_offset, "commitLogOffset": commit_log_offset,
            "commitOrRollback": decision, "fromTransactionCheck": True,  # else immunity is refused with 604 (5.1.1+)
            "msgId": transaction_id, "transactionId": transaction_id,
        }
        return self._act(Request(RequestCode.END_TRANSACTION, fields))

    def send(self, fields: Mapping[str, Value], body: bytes) -> tuple[Answer, Mapping[str, str]]:
        """Send a message, once, and return the fields of the response too: `queueId`, `queueOffset` and `msgId`.

        Raises: Unreachable (nothing was sent), NoAnswer (unknown outcome: look it up before any other act).
        Source: client/impl/MQClientAPIImpl.java sendMessage; docs/formats/wire.md#requests.
        """
        frame = self._once(Request(RequestCode.SEND_MESSAGE_V2, fields, body))
        return Answer(frame.code, frame.remark), frame.fields

    def resume_check(self, message_id: str) -> Answer:
        """Append a copy of a record to the half topic with its check count at 0. Each call appends another copy.

        Raises: Unreachable, NoAnswer (4.3.0 to 4.5.1 do not support the request and never answer).
        Source: docs/formats/half_and_op.md#resume.
        """
        return self._act(Request(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": message_id}))

    def update_config(self, values: Mapping[str, str]) -> Answer:
        """Set some settings of the running broker, which also writes all its settings into its configuration file.

        A value that the broker cannot parse is answered with 0 and ignored: read the settings back (`config`).
        Raises: Unreachable, NoAnswer.
        Source: AdminBrokerProcessor.updateBrokerConfig, Configuration.update; docs/formats/wire.md#update-config.
        """
        body = "".join(f"{name}={value}\n" for name, value in values.items()).encode()
        return self._act(Request(RequestCode.UPDATE_BROKER_CONFIG, body=body))

    def _act(self, request: Request) -> Answer:
        frame = self._once(request)
        return Answer(frame.code, frame.remark)

    def _once(self, request: Request) -> Frame:
        try:
            return self.client.answer(self.address, request)
        except BadFrame as error:  # the request was sent, and its response cannot be read
            raise NoAnswer(error.message, advice=error.advice) from error


def _pull(topic: str, queue_id: int, queue_offset: int, count: int) -> Request:
    fields: dict[str, Value] = {
        "consumerGroup": READ_GROUP, "topic": topic, "queueId": queue_id, "queueOffset": queue_offset,
        "maxMsgNums": count, "sysFlag": _SUBSCRIPTION_IN_REQUEST, "commitOffset": 0, "suspendTimeoutMillis": 0,
        "subscription": "*", "subVersion": 0, "expressionType": "TAG",
    }
    return Request(RequestCode.PULL_MESSAGE, fields)


def pulled(frame: Frame) -> Pulled:
    """Return the response to a pull as a value. Raises: BadFrame."""
    begin, low, high = (_number(frame, name) for name in ("nextBeginOffset", "minOffset", "maxOffset"))
    status = _PULL_CODES[ResponseCode(frame.code)]
    return Pulled(status, begin, low, high, frame.body if status == "found" else b"")  # type: ignore[arg-type]


def _number(frame: Frame, name: str) -> int:
    with parsing(f"a response's {name}"):
        return int(frame.fields[name])
