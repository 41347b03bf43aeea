"""Record what RocketMQ itself sends over the network: `python -m tests.brokers.record_frames tests/remoting/frames`.

For each version: frames of the official encoder in both encodings, typed requests of the official client, signatures of
the official hook, and the answers of a real broker and name server, byte for byte.
"""

from __future__ import annotations

import base64
import json
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.protocol.codes import RequestCode
from rmqtx.remoting.protocol.connection_settings import Credentials, host_and_port
from rmqtx.remoting.protocol.frames import Encoding, Frame, encoded
from tests.brokers import secured
from tests.brokers.rig import HALF_TOPIC, OP_TOPIC, Rig
from tests.brokers.wire import asked, encode_line

VERSIONS = ("4.9.7", "5.1.4", "5.3.3", "5.5.0")
CREDENTIALS = (
    Credentials("rmqtx", "not-a-secret"),
    Credentials("rmqtx", "not-a-secret-either", "token-1"),
    Credentials("名", "密"),
)
TOPIC = "recorded-orders"

SAMPLES: dict[str, Frame] = {
    "bare": Frame(RequestCode.GET_BROKER_RUNTIME_INFO, 1, version=399),
    "response": Frame(0, 2, {"offset": "4711"}, b"", 1, "FOUND", 479, "JAVA"),
    "oneway": Frame(RequestCode.END_TRANSACTION, 2**31 - 1, {"a": "b"}, b"", 2, version=399),
    "unicode": Frame(
        RequestCode.QUERY_MESSAGE, 3, {"topic": "订单", "key": "π \t\"\\ é \U0001f680"}, "身体".encode(), 0, "déjà"
    ),
    "empty value": Frame(RequestCode.GET_MIN_OFFSET, 4, {"topic": "", "queueId": "0"}, version=401),
    "binary body": Frame(RequestCode.SEND_MESSAGE, 5, {"topic": "t"}, bytes(range(256)), version=513, language="GO"),
    "long field": Frame(RequestCode.PULL_MESSAGE, 6, {"subscription": "x" * 3000}, b"", 1, "no such thing\n at all"),
}
LARGE_CODE = Frame(200_050, 7, {"a": "1"})

#: Requests of the official client, by the class of the header.
TYPED: dict[str, tuple[RequestCode, dict[str, str]]] = {
    "PullMessageRequestHeader": (RequestCode.PULL_MESSAGE, {
        "consumerGroup": "TOOLS_CONSUMER", "topic": HALF_TOPIC, "queueId": "0", "queueOffset": "12", "maxMsgNums": "32",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }),
    "QueryMessageRequestHeader": (RequestCode.QUERY_MESSAGE, {
        "topic": "orders", "key": "7F00", "maxNum": "64", "beginTimestamp": "0", "endTimestamp": str(1 << 62),
    }),
    "EndTransactionRequestHeader": (RequestCode.END_TRANSACTION, {
        "producerGroup": "shop", "tranStateTableOffset": "5", "commitLogOffset": "99", "commitOrRollback": "8",
        "fromTransactionCheck": "true", "msgId": "7F00", "transactionId": "7F00",
    }),
    "ViewMessageRequestHeader": (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "4711"}),
    "QueryConsumerOffsetRequestHeader": (RequestCode.QUERY_CONSUMER_OFFSET, {
        "consumerGroup": "CID_RMQ_SYS_TRANS", "topic": OP_TOPIC, "queueId": "0",
    }),
    "ResumeCheckHalfMessageRequestHeader": (RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": "7F00000100002A9F00"}),
}

_PULL = TYPED["PullMessageRequestHeader"][1]

#: Requests to a real broker; none changes anything.
QUESTIONS: dict[str, tuple[RequestCode, dict[str, str]]] = {
    "min offset": (RequestCode.GET_MIN_OFFSET, {"topic": TOPIC, "queueId": "0"}),
    "no cursor": (RequestCode.QUERY_CONSUMER_OFFSET, {
        "consumerGroup": "nobody", "topic": TOPIC, "queueId": "3", "setZeroIfNotFound": "false",
    }),
    "nothing newer": (RequestCode.PULL_MESSAGE, _PULL | {"topic": TOPIC, "queueOffset": "0"}),
    "no such topic": (RequestCode.PULL_MESSAGE, _PULL | {"topic": "nothing-like-it"}),
    "no such record": (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(1 << 40)}),
    "no such key": (RequestCode.QUERY_MESSAGE, TYPED["QueryMessageRequestHeader"][1] | {"topic": TOPIC}),
    "no such producers": (RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "nobody"}),
    "no such consumers": (RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "nobody"}),
    "no such queue": (RequestCode.QUERY_CONSUME_QUEUE, {"topic": TOPIC, "queueId": "77", "index": "0", "count": "3"}),
    "no such half": (RequestCode.END_TRANSACTION, TYPED["EndTransactionRequestHeader"][1] | {"commitLogOffset": "-1"}),
    "not a broker's": (RequestCode.GET_BROKER_CLUSTER_INFO, {}),
}


def _described(frame: Frame) -> dict[str, Any]:
    return {
        "code": frame.code, "opaque": frame.opaque, "fields": dict(frame.fields), "flag": frame.flag,
        "body": base64.b64encode(frame.body).decode(), "remark": frame.remark, "version": frame.version,
        "language": frame.language, "encoding": frame.encoding.name,
    }


def _in(encoding: Encoding, frame: Frame) -> Frame:
    return Frame(
        frame.code, frame.opaque, frame.fields, frame.body, frame.flag, frame.remark, frame.version, frame.language,
        encoding,
    )


def of_the_encoder(version: str) -> list[dict[str, Any]]:
    """The samples, encoded by the official encoder."""
    frames = {f"{name}, {code.name}": _in(code, frame) for name, frame in SAMPLES.items() for code in Encoding}
    frames["large code, JSON"] = LARGE_CODE
    answers = asked(version, [encode_line(frame) for frame in frames.values()])
    return [
        {"name": name, **_described(frame), "hex": answer["hex"]}
        for (name, frame), answer in zip(frames.items(), answers, strict=True)
    ]


def of_the_client(version: str) -> list[dict[str, Any]]:
    """The requests of the official client, from its own typed headers."""
    lines = [encode_line(Frame(code, 1, fields, version=399), name) for name, (code, fields) in TYPED.items()]
    return [
        {
            "class": name, "code": int(answer["code"]), "hex": answer["hex"],
            "fields": {field[2:]: value for field, value in answer.items() if field.startswith("f.")},
        }
        for name, answer in zip(TYPED, asked(version, lines), strict=True)
    ]


def of_the_hook(version: str) -> list[dict[str, Any]]:
    """The signatures of the official hook; keys of no account."""
    cases = [(frame, who) for frame in SAMPLES.values() for who in CREDENTIALS]
    answers = asked(version, [encode_line(frame, None, who) for frame, who in cases])
    return [
        {
            "fields": dict(frame.fields), "body": base64.b64encode(frame.body).decode(), "access_key": who.access_key,
            "secret_key": who.secret_key, "security_token": who.security_token, "signature": answer["f.Signature"],
        }
        for (frame, who), answer in zip(cases, answers, strict=True)
    ]


def raw_answer(address: str, frame: Frame) -> bytes:
    """The bytes of the answer to a frame."""
    with socket.create_connection(host_and_port(address), 10) as connection:
        connection.sendall(encoded(frame))
        data = b""
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            more = connection.recv(1 << 16)
            assert more, "the connection ended"
            data += more
    return data


def of_a_broker(version: str) -> list[dict[str, Any]]:
    """The answers of a real broker and its name server, in both encodings."""
    with tempfile.TemporaryDirectory() as directory, Rig(version, Path(directory)) as rig:
        rig.start_names()
        rig.start_broker()
        with Client() as client:
            secured.wait_registered(client, rig)
            secured.create_topic(client, rig.address, TOPIC)
        found = []
        for encoding in Encoding:
            for name, (code, fields) in QUESTIONS.items():
                data = raw_answer(rig.address, Frame(code, 9, fields, version=399, encoding=encoding))
                found.append({"name": name, "asked_in": encoding.name, "request": code.name, "hex": data.hex()})
            question = Frame(RequestCode.GET_BROKER_CLUSTER_INFO, 9, version=399, encoding=encoding)
            data = raw_answer(rig.name_server, question)
            found.append({"name": "brokers", "asked_in": encoding.name, "request": "NAME_SERVER", "hex": data.hex()})
    return found


def recorded(version: str) -> Mapping[str, Any]:
    """All recorded frames of one version."""
    return {
        "version": version, "encoder": of_the_encoder(version), "client": of_the_client(version),
        "hook": of_the_hook(version), "broker": of_a_broker(version),
    }


def main(directory: Path) -> None:
    """Write one file per version."""
    for version in VERSIONS:
        text = json.dumps(recorded(version), indent=1, ensure_ascii=True)
        (directory / f"{version}.json").write_text(text + "\n")
        print(f"{version}: {len(text)} characters")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
