"""What RocketMQ itself wrote (`frames/`, made by tests/brokers/record_frames.py) is read, and ours is the same."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.store.store import CHECK_GROUP, HALF_TOPIC, OP_TOPIC
from rmqtx.remoting.connections.batched_reads import QUERY_RECORDS_MAX, Pace, queries
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.client import Client, checked, is_not_there
from rmqtx.remoting.connections.connection import Request, signed
from rmqtx.remoting.protocol.codes import COMMIT, RequestCode
from rmqtx.remoting.protocol.connection_settings import Credentials
from rmqtx.remoting.protocol.errors import Refused
from rmqtx.remoting.protocol.frames import Encoding, Frame, decoded, encoded, parsed_json
from tests.remoting.fake import Answer, FakeServer, response

VERSIONS = ("4.9.7", "5.1.4", "5.3.3", "5.5.0")
RECORDED: dict[str, dict[str, Any]] = {
    version: json.loads((Path(__file__).parent / "frames" / f"{version}.json").read_text()) for version in VERSIONS
}


def cases(part: str) -> list[Any]:
    def name(entry: dict[str, Any], number: int) -> str:
        return "-".join([entry.get("name") or entry.get("class") or str(number), entry.get("asked_in", "")])

    return [
        pytest.param(entry, id=f"{version}-{name(entry, number)}")
        for version, recorded in RECORDED.items()
        for number, entry in enumerate(recorded[part])
    ]


def wanted(entry: dict[str, Any]) -> Frame:
    return Frame(
        entry["code"], entry["opaque"], entry["fields"], base64.b64decode(entry["body"]), entry["flag"],
        entry["remark"], entry["version"], entry["language"], Encoding[entry["encoding"]],
    )


@pytest.mark.parametrize("entry", cases("encoder"))
def test_a_frame_of_the_official_encoder_is_read_as_it_was_meant(entry: dict[str, Any]) -> None:
    assert decoded(bytes.fromhex(entry["hex"])) == wanted(entry)


@pytest.mark.parametrize("entry", cases("encoder"))
def test_ours_is_the_same_frame(entry: dict[str, Any]) -> None:
    official, ours = bytes.fromhex(entry["hex"]), encoded(wanted(entry))
    assert decoded(ours) == decoded(official)
    if entry["encoding"] == "ROCKETMQ":  # Java's maps have an order of their own; all else is fixed
        assert len(ours) == len(official)
        if len(entry["fields"]) < 2:
            assert ours == official


@pytest.mark.parametrize("entry", cases("hook"))
def test_ours_is_the_official_signature(entry: dict[str, Any]) -> None:
    who = Credentials(entry["access_key"], entry["secret_key"], entry["security_token"])
    found = signed(entry["fields"], base64.b64decode(entry["body"]), who)
    assert found["Signature"] == entry["signature"]
    assert who.secret_key not in found.values()


def asked_of(broker: Broker, header_class: str) -> None:
    """Have our typed request sent whose official header has a name."""
    match header_class:
        case "PullMessageRequestHeader":
            broker.pull(HALF_TOPIC, 0, 12)
        case "QueryMessageRequestHeader":
            list(queries(broker, [("orders", "7F00")], Pace()))
        case "EndTransactionRequestHeader":
            broker.end_transaction(
                producer_group="shop", queue_offset=5, commit_log_offset=99, decision=COMMIT, transaction_id="7F00"
            )
        case "ViewMessageRequestHeader":
            broker.view(4711)
        case "QueryConsumerOffsetRequestHeader":
            broker.consumer_offset(CHECK_GROUP, OP_TOPIC)
        case "ResumeCheckHalfMessageRequestHeader":
            broker.resume_check("7F00000100002A9F00")
        case _:
            raise AssertionError(header_class)


@pytest.mark.parametrize("entry", cases("client"))
def test_our_typed_requests_are_the_official_client_s(entry: dict[str, Any]) -> None:
    def answer(request: Frame) -> Answer:
        return response(request, nextBeginOffset="1", minOffset="0", maxOffset="1", offset="1")

    with FakeServer(answer) as server, Client() as client:
        asked_of(Broker(client, server.address, "b", "c"), entry["class"])
    [request] = server.requests
    official = decoded(bytes.fromhex(entry["hex"]))
    assert request.code == official.code == entry["code"]
    # Java sends null as nothing; brokers before 5.0 do not know the first, and the number of records is our own.
    extra = {"setZeroIfNotFound": "false", "_UNIQUE_KEY_QUERY": "true", "maxNum": str(QUERY_RECORDS_MAX)}
    ours = {name: value for name, value in request.fields.items() if extra.get(name) != value}
    assert ours == {name: value for name, value in official.fields.items() if name in ours}
    assert official.fields.keys() - request.fields.keys() <= {"requestSource", "maxMsgBytes", "lo", "ns"}


#: Code of each recorded answer, and whether it says "not there" under code 1.
CODES = {
    "min offset": (0, False), "no cursor": (22, False), "nothing newer": (19, False), "no such topic": (17, False),
    "no such record": (1, True), "no such key": (22, False), "no such producers": (1, True),
    "no such consumers": (206, False), "no such queue": (1, True), "no such half": (1, False),
    "not a broker's": (3, False), "brokers": (0, False),
}


@pytest.mark.parametrize("entry", cases("broker"))
def test_an_answer_of_a_real_broker_is_read(entry: dict[str, Any]) -> None:
    frame = decoded(bytes.fromhex(entry["hex"]))
    code, not_there = CODES[entry["name"]]
    assert frame.is_response
    assert frame.opaque == 9
    assert frame.code in ((code, 0) if entry["name"] == "no cursor" else (code,))  # 4.9.7 gives 0 of a queue from 0 on
    if entry["request"] == "NAME_SERVER":
        [broker] = parsed_json(frame.body)["brokerAddrTable"].values()
        assert broker["brokerName"] == "broker-a"
        return
    request = Request(RequestCode[entry["request"]])
    assert is_not_there(frame, request.code) is not_there
    if code == 1 and not not_there:
        with pytest.raises(Refused, match="Find prepared transaction message failed"):
            checked(frame, request, "broker", (0, 1))


def test_only_4_9_7_answers_in_the_encoding_it_was_asked_in() -> None:
    echoes = {
        version: {
            decoded(bytes.fromhex(entry["hex"])).encoding.name
            for entry in recorded["broker"]
            if entry["asked_in"] == "ROCKETMQ"
        }
        for version, recorded in RECORDED.items()
    }
    assert echoes == {"4.9.7": {"ROCKETMQ"}, "5.1.4": {"JSON"}, "5.3.3": {"JSON"}, "5.5.0": {"JSON"}}
