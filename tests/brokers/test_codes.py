"""Each response code that can be provoked from outside, provoked once on a real broker, and told as an error.

What cannot be is listed, with the reason, in docs/remoting.md.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqtx.readers.model import clock
from rmqtx.remoting.connections.batched_reads import Pace, queries
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.client import Client, checked
from rmqtx.remoting.connections.connection import Request, Value
from rmqtx.remoting.producer.producer import Member, Message, Sent, our_client_id, properties_text
from rmqtx.remoting.protocol.codes import COMMIT, NAMES, RequestCode, ResponseCode
from rmqtx.remoting.protocol.errors import Refused
from rmqtx.remoting.protocol.frames import Frame
from tests.brokers import maven, secured
from tests.brokers.rig import HALF_TOPIC, REQUEST_CONFIG, REQUEST_TOPIC, Rig
from tests.brokers.test_live import VERSIONS

WHY_NOT = maven.why_not()
pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]

TOPIC, GROUP, WRITE_ONLY = "codes-orders", "codes-shop", "codes-write-only"


class Stage:
    """A broker, our client, and some records."""

    def __init__(self, rig: Rig, client: Client) -> None:
        self.rig, self.client = rig, client
        self.broker = Broker(client, rig.address, "broker-a", "rmqtx")
        self.member = Member(client.settings, rig.address, [GROUP], our_client_id(), lambda check: None)
        self.keys = iter(f"CODES{number:04}" for number in range(1, 1000))

    def ask(self, code: int, /, **fields: Value) -> Frame:
        """A response, whatever its code is."""
        return self.client.connection(self.rig.address).call(Request(code, fields))

    def tell(self, code: int, body: bytes) -> None:
        """A request that is all body."""
        assert self.client.call(self.rig.address, Request(code, body=body)).code == 0

    def pull(self, **other: Value) -> Frame:
        fields: dict[str, Value] = {
            "consumerGroup": "TOOLS_CONSUMER", "topic": TOPIC, "queueId": 0, "queueOffset": 0, "maxMsgNums": 32,
            "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
            "expressionType": "TAG",
        }
        return self.ask(RequestCode.PULL_MESSAGE, **(fields | other))

    def send(self, topic: str, **properties: str) -> Frame:
        """An ordinary message to the first queue of a topic."""
        fields: dict[str, Value] = {
            "a": GROUP, "b": topic, "c": topic, "d": 0, "e": 0, "f": 0, "g": clock.now_ms(), "h": 0,
            "i": properties_text({"UNIQ_KEY": next(self.keys), "WAIT": "true", **properties}), "j": 0, "k": False,
            "l": 0, "m": False,
        }
        request = Request(RequestCode.SEND_MESSAGE_V2, fields, b"x")
        return self.client.connection(self.rig.address).call(request)

    def half(self, **properties: str) -> Sent:
        return self.member.send_half(Message(TOPIC, b"half", next(self.keys), 0, properties))

    def end(self, sent: Sent, **other: Value) -> Frame:
        fields: dict[str, Value] = {
            "producerGroup": GROUP, "tranStateTableOffset": sent.queue_offset,
            "commitLogOffset": sent.commit_log_offset, "commitOrRollback": COMMIT, "fromTransactionCheck": True,
            "msgId": sent.transaction_id, "transactionId": sent.transaction_id,
        }
        return self.ask(RequestCode.END_TRANSACTION, **(fields | other))

    def topic(self, name: str, permission: int) -> None:
        fields: dict[str, Value] = {
            "topic": name, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": permission,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
        }
        assert self.ask(REQUEST_TOPIC, **fields).code == 0

    def configure(self, **values: str) -> None:
        text = "".join(f"{name}={value}\n" for name, value in values.items())
        self.tell(REQUEST_CONFIG, text.encode())


@pytest.fixture(scope="module", params=VERSIONS)
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    conf = {"transactionTimeOut": "1000"}
    with Rig(request.param, tmp_path_factory.mktemp("codes"), conf) as rig, Client() as client:
        rig.start_names()
        rig.start_broker()
        secured.wait_registered(client, rig)
        stage = Stage(rig, client)
        stage.topic(TOPIC, 6)
        stage.topic(WRITE_ONLY, 2)
        stage.member.heartbeat()
        assert stage.send(TOPIC, TAGS="some").code == 0
        deadline = time.monotonic() + 20
        while stage.pull().code != 0 and time.monotonic() < deadline:
            time.sleep(0.1)
        yield stage
        stage.member.close()


def provoked(frame: Frame, code: ResponseCode, says: str) -> None:
    """It is that code, with that remark, and the error names both and is explained."""
    assert frame.code == code, frame
    with pytest.raises(Refused, match=f"code {code.value} {code.name}") as caught:
        checked(frame, Request(RequestCode.PULL_MESSAGE), "broker", (0,))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_1_system_error(stage: Stage) -> None:
    sent = stage.half()
    wrong = {"producerGroup": "other"}
    provoked(stage.end(sent, **wrong), ResponseCode.SYSTEM_ERROR, "The producer group wrong")
    provoked(stage.end(sent, tranStateTableOffset=99), ResponseCode.SYSTEM_ERROR, "state table offset wrong")
    provoked(stage.end(sent, commitLogOffset=1 << 40), ResponseCode.SYSTEM_ERROR, "Find prepared transaction message")
    provoked(stage.end(sent, commitOrRollback=99), ResponseCode.SYSTEM_ERROR, "commitOrRollback")


def test_3_not_supported(stage: Stage) -> None:
    provoked(stage.ask(9999), ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "request type 9999 not supported")


def test_13_message_illegal(stage: Stage) -> None:
    provoked(stage.send(TOPIC, long="x" * 40_000), ResponseCode.MESSAGE_ILLEGAL, "")


def test_16_no_permission(stage: Stage) -> None:
    provoked(stage.pull(topic=WRITE_ONLY), ResponseCode.NO_PERMISSION, "is forbidden")
    provoked(stage.send(HALF_TOPIC), ResponseCode.NO_PERMISSION, "")


def test_17_topic_not_exist(stage: Stage) -> None:
    provoked(stage.pull(topic="nothing-like-it"), ResponseCode.TOPIC_NOT_EXIST, "not exist")
    route = Request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "nothing-like-it", "acceptStandardJsonOnly": True})
    provoked(stage.client.connection(stage.rig.name_server).call(route), ResponseCode.TOPIC_NOT_EXIST, "")


def test_19_20_21_of_a_pull_are_answers(stage: Stage) -> None:
    end = stage.broker.max_offset(TOPIC)
    assert stage.broker.pull(TOPIC, 0, end).status == "none"
    assert stage.broker.pull(TOPIC, 0, end + 1000).status == "moved"
    assert stage.pull(subscription="another").code == ResponseCode.PULL_RETRY_IMMEDIATELY


def test_22_query_not_found(stage: Stage) -> None:
    assert list(queries(stage.broker, [(TOPIC, "nothing-like-it")], Pace())) == []
    found = stage.ask(
        RequestCode.QUERY_MESSAGE, topic=TOPIC, key="none", maxNum=1, beginTimestamp=0, endTimestamp=1 << 62
    )
    provoked(found, ResponseCode.QUERY_NOT_FOUND, "can not find message")


def test_23_24_25_subscriptions(stage: Stage) -> None:
    provoked(stage.pull(subscription="||"), ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription")
    without = stage.pull(sysFlag=0, consumerGroup="codes-readers")
    provoked(without, ResponseCode.SUBSCRIPTION_NOT_EXIST, "not exist")
    subscription = {"topic": TOPIC, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1}
    consumer = {
        "groupName": "codes-readers", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [subscription], "unitMode": False,
    }
    body = json.dumps({"clientID": our_client_id(), "producerDataSet": [], "consumerDataSet": [consumer]}).encode()
    stage.tell(RequestCode.HEART_BEAT, body)
    late = stage.pull(sysFlag=0, consumerGroup="codes-readers", subVersion=1 << 50)
    provoked(late, ResponseCode.SUBSCRIPTION_NOT_LATEST, "not latest")


def test_26_group_not_exist(stage: Stage) -> None:
    stage.configure(autoCreateSubscriptionGroup="false")
    try:
        provoked(stage.pull(consumerGroup="codes-none"), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "does not exist")
    finally:
        stage.configure(autoCreateSubscriptionGroup="true")


def test_29_invalid_parameter(stage: Stage) -> None:
    code = ResponseCode.INVALID_PARAMETER if stage.rig.release >= (5, 3, 2) else ResponseCode.SYSTEM_ERROR
    provoked(stage.pull(queueId=77), code, "queueId[77] is illegal")


def test_206_consumer_not_online(stage: Stage) -> None:
    found = stage.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="nobody")
    provoked(found, ResponseCode.CONSUMER_NOT_ONLINE, "not online")


def test_604_illegal_operation(stage: Stage) -> None:
    sent = stage.half(CHECK_IMMUNITY_TIME_IN_SECONDS="1")
    time.sleep(2.5)
    found = stage.end(sent, fromTransactionCheck=False)
    if stage.rig.release >= (5, 1, 1):
        provoked(found, ResponseCode.ILLEGAL_OPERATION, "not set any response code")
        found = stage.end(sent)  # as an answer to a check, which ours are
    assert found.code == 0


def test_a_group_nobody_is_in_and_an_offset_nothing_is_at_are_answers(stage: Stage) -> None:
    assert stage.broker.producer_connections("nobody") == []
    assert [each.client_id for each in stage.broker.producer_connections(GROUP)] == [stage.member.client_id]
    for offset in (-1, 7, 1 << 40):
        assert stage.broker.view(offset) is None
    assert stage.broker.slots(TOPIC, 77, 0, 4).max_offset == 0


@pytest.mark.skipif("RMQTX_BROKER_VERSIONS" not in os.environ, reason="a second broker: make test-brokers starts it")
def test_2_and_11_of_a_slave(stage: Stage, tmp_path: Path) -> None:
    conf = {"brokerRole": "SLAVE", "brokerId": "1"}
    with Rig(stage.rig.version, tmp_path, conf) as rig, Client() as client:
        rig.start_names()
        rig.start_broker()
        slave = Stage(rig, client)
        try:
            answer = slave.broker.end_transaction(
                producer_group=GROUP, queue_offset=0, commit_log_offset=0, decision=COMMIT, transaction_id="x"
            )
            assert (answer.code, NAMES[answer.code]) == (11, "SLAVE_NOT_AVAILABLE")
            with pytest.raises(Refused) as caught:
                slave.half()
            assert NAMES[caught.value.code] in ("SYSTEM_BUSY", "SERVICE_NOT_AVAILABLE")
        finally:
            slave.member.close()
