"""RocketMQ's own decoder reads our frames as we meant them, typed headers too; and what is recorded is still so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from rmqtx.remoting.protocol.codes import RequestCode
from rmqtx.remoting.protocol.frames import Encoding, Frame, encoded
from tests.brokers import maven, record_frames
from tests.brokers.test_live import VERSIONS
from tests.brokers.wire import asked, frame_of
from tests.remoting.test_frames import FRAMES

WHY_NOT = maven.why_not()
pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no Java can be run: {WHY_NOT}")]

#: Our requests' fields, with the class that brokers read them into.
TYPED = record_frames.TYPED | {
    "GetMinOffsetRequestHeader": (RequestCode.GET_MIN_OFFSET, {"topic": "t", "queueId": "0"}),
    "GetMaxOffsetRequestHeader": (RequestCode.GET_MAX_OFFSET, {"topic": "t", "queueId": "0"}),
    "SearchOffsetRequestHeader": (
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"topic": "t", "queueId": "0", "timestamp": "1"},
    ),
    "GetProducerConnectionListRequestHeader": (RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "g"}),
    "GetConsumerConnectionListRequestHeader": (RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"}),
    "QueryConsumeQueueRequestHeader": (
        RequestCode.QUERY_CONSUME_QUEUE, {"topic": "t", "queueId": "0", "index": "5", "count": "32"},
    ),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_java_reads_our_frames(version: str) -> None:
    frames: list[Frame] = []

    @settings(
        max_examples=300, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(FRAMES.filter(lambda frame: "" not in frame.fields))
    def gather(frame: Frame) -> None:
        frames.append(frame)

    gather()
    answers = asked(version, [("decode", {"hex": encoded(frame).hex()}) for frame in frames])
    found = [frame_of(answer, frame.encoding) for answer, frame in zip(answers, frames, strict=True)]
    assert found == [without_empty_values(frame) for frame in frames]


def without_empty_values(frame: Frame) -> Frame:
    """To Java, a text without length in a ROCKETMQ header is none at all."""
    is_kept = frame.encoding is Encoding.JSON
    return replace(frame, fields={name: value for name, value in frame.fields.items() if value or is_kept})


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("encoding", Encoding)
def test_brokers_find_each_field_of_our_typed_requests(version: str, encoding: Encoding) -> None:
    frames = {name: Frame(code, 1, fields, version=399, encoding=encoding) for name, (code, fields) in TYPED.items()}
    lines = [("decode", {"hex": encoded(frame).hex(), "class": name}) for name, frame in frames.items()]
    for (name, frame), answer in zip(frames.items(), asked(version, lines), strict=True):
        typed = {field[2:]: value for field, value in answer.items() if field.startswith("h.")}
        assert frame.fields.items() <= typed.items(), (name, answer)


@pytest.mark.parametrize("version", [version for version in VERSIONS if version in record_frames.VERSIONS])
def test_what_is_recorded_is_what_the_encoder_writes(version: str) -> None:
    recorded = json.loads((Path(record_frames.__file__).parents[1] / "remoting/frames" / f"{version}.json").read_text())
    assert recorded["encoder"] == record_frames.of_the_encoder(version)
    assert recorded["client"] == record_frames.of_the_client(version)
    assert recorded["hook"] == record_frames.of_the_hook(version)
