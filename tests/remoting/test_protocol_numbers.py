"""The numbers of the protocol, and the shortest frames: with another number, another request is sent than named,
and another refusal is reported than the broker's.
"""

from __future__ import annotations

import pytest

from rmqtx.readers.model.findings import Finding
from rmqtx.remoting.protocol.answers import ClientConnection
from rmqtx.remoting.protocol.codes import RequestCode, ResponseCode
from rmqtx.remoting.protocol.connection_settings import RemotingSettings
from rmqtx.remoting.protocol.errors import BadFrame
from rmqtx.remoting.protocol.frames import FRAME, FRAME_BYTES_MAX, Frame, FrameReader, decoded, encoded
from rmqtx.remoting.protocol.record_bytes import _next_head, blocks_of, cut
from tests.forge.records import Message

#: As `javap -constants` prints RequestCode and ResponseCode of rocketmq-remoting 5.5.0.
REQUESTS = """
    10 SEND_MESSAGE, 11 PULL_MESSAGE, 12 QUERY_MESSAGE, 14 QUERY_CONSUMER_OFFSET, 15 UPDATE_CONSUMER_OFFSET,
    21 GET_ALL_TOPIC_CONFIG, 25 UPDATE_BROKER_CONFIG, 26 GET_BROKER_CONFIG, 28 GET_BROKER_RUNTIME_INFO,
    29 SEARCH_OFFSET_BY_TIMESTAMP, 30 GET_MAX_OFFSET, 31 GET_MIN_OFFSET, 33 VIEW_MESSAGE_BY_ID, 34 HEART_BEAT,
    35 UNREGISTER_CLIENT, 37 END_TRANSACTION, 39 CHECK_TRANSACTION_STATE, 43 GET_ALL_CONSUMER_OFFSET,
    105 GET_ROUTEINFO_BY_TOPIC, 106 GET_BROKER_CLUSTER_INFO, 203 GET_CONSUMER_CONNECTION_LIST,
    204 GET_PRODUCER_CONNECTION_LIST, 310 SEND_MESSAGE_V2, 321 QUERY_CONSUME_QUEUE, 323 RESUME_CHECK_HALF_MESSAGE,
    328 GET_ALL_PRODUCER_INFO
"""
RESPONSES = """
    0 SUCCESS, 1 SYSTEM_ERROR, 2 SYSTEM_BUSY, 3 REQUEST_CODE_NOT_SUPPORTED, 4 TRANSACTION_FAILED, 10 FLUSH_DISK_TIMEOUT,
    11 SLAVE_NOT_AVAILABLE, 12 FLUSH_SLAVE_TIMEOUT, 13 MESSAGE_ILLEGAL, 14 SERVICE_NOT_AVAILABLE,
    15 VERSION_NOT_SUPPORTED, 16 NO_PERMISSION, 17 TOPIC_NOT_EXIST, 18 TOPIC_EXIST_ALREADY, 19 PULL_NOT_FOUND,
    20 PULL_RETRY_IMMEDIATELY, 21 PULL_OFFSET_MOVED, 22 QUERY_NOT_FOUND, 23 SUBSCRIPTION_PARSE_FAILED,
    24 SUBSCRIPTION_NOT_EXIST, 25 SUBSCRIPTION_NOT_LATEST, 26 SUBSCRIPTION_GROUP_NOT_EXIST, 27 FILTER_DATA_NOT_EXIST,
    28 FILTER_DATA_NOT_LATEST, 29 INVALID_PARAMETER, 200 TRANSACTION_SHOULD_COMMIT, 201 TRANSACTION_SHOULD_ROLLBACK,
    202 TRANSACTION_STATE_UNKNOW, 203 TRANSACTION_STATE_GROUP_WRONG, 204 NO_BUYER_ID, 205 NOT_IN_CURRENT_UNIT,
    206 CONSUMER_NOT_ONLINE, 207 CONSUME_MSG_TIMEOUT, 208 NO_MESSAGE, 209 POLLING_FULL, 210 POLLING_TIMEOUT,
    211 BROKER_NOT_EXIST, 212 BROKER_DISPATCH_NOT_COMPLETE, 213 BROADCAST_CONSUMPTION, 215 FLOW_CONTROL,
    501 NOT_LEADER_FOR_QUEUE, 604 ILLEGAL_OPERATION, 1500 GO_AWAY, 3001 USER_NOT_EXIST, 3002 POLICY_NOT_EXIST
"""


@pytest.mark.parametrize(("codes", "official"), [(RequestCode, REQUESTS), (ResponseCode, RESPONSES)])
def test_each_code_has_the_number_of_the_broker(codes: type[RequestCode | ResponseCode], official: str) -> None:
    assert [f"{int(code)} {code.name}" for code in codes] == " ".join(official.split()).split(", ")


@pytest.mark.parametrize(("version", "release"), [
    (211, "211"), (212, "212"), (213, "4.0.0"), (214, "4.0.1-SNAPSHOT"), (273, "4.3.0"), (413, "5.0.0"),
])
def test_the_release_of_a_client_is_that_of_its_number(version: int, release: str) -> None:
    assert ClientConnection("c", "10.0.0.7:1", "JAVA", version).release == release


def test_the_shortest_frame_is_one_without_a_header_and_not_another_protocol() -> None:
    with pytest.raises(BadFrame, match="response is not JSON"):
        list(FrameReader().feed((4).to_bytes(4, "big") + bytes(4)))


def test_four_bytes_of_another_protocol_are_enough_to_name_it() -> None:
    with pytest.raises(BadFrame, match="the port uses HTTP"):
        list(FrameReader().feed(b"HTTP"))


def test_a_header_without_a_flag_is_a_request_of_an_unknown_release() -> None:
    """With any bit set it would be taken for a response, and the request of the broker be dropped."""
    header = b'{"code":39,"opaque":7}'
    frame = decoded(FRAME.pack(length_bytes=4 + len(header), encoding_and_header_length=len(header)) + header)
    assert frame == Frame(39, 7)
    assert (frame.flag, frame.version, frame.is_response) == (0, 0, False)


@pytest.mark.parametrize("more", [1, 7, 8, 9])
def test_a_header_longer_than_its_frame_is_not_read_as_far_as_it_goes(more: int) -> None:
    header = b'{"code":39,"opaque":7}'
    with pytest.raises(BadFrame, match="contradict each other"):
        decoded(FRAME.pack(length_bytes=4 + len(header), encoding_and_header_length=len(header) + more) + header)


def test_the_largest_request_is_one_that_a_broker_reads() -> None:
    """16 MiB with its length, by the NettyDecoder of 5.3.3, which closes the connection at one byte more: rmqtx would
    report a lost connection, and what became of the request would be unknown.
    """
    room = FRAME_BYTES_MAX - len(encoded(Frame(10, 1)))
    assert len(encoded(Frame(10, 1, body=bytes(room)))) == 1 << 24
    with pytest.raises(BadFrame, match="too large"):
        encoded(Frame(10, 1, body=bytes(room + 1)))


@pytest.mark.parametrize("junk", [1, 2, 100])
def test_a_record_behind_bytes_that_are_none_is_found(junk: int) -> None:
    findings: list[Finding] = []
    body = Message().record(700) + b"\1" * junk + Message().record(900)
    (block,) = blocks_of([body], "broker", findings)
    assert block.commit_log_offsets.tolist() == [700, 900]
    assert [one.length_bytes for one in findings] == [junk]


def test_a_record_that_a_broker_sends_twice_is_one_and_another_at_its_place_is_not() -> None:
    first, second, other = Message().record(700), Message().record(900), Message(body=b"other").record(900)
    findings: list[Finding] = []
    (block,) = blocks_of([first + second, second + other], "broker", findings)
    assert block.commit_log_offsets.tolist() == [700, 900, 900]
    assert (block.bodies().to_pylist(), findings) == ([b"body", b"body", b"other"], [])


def test_records_of_both_formats_are_cut_and_bytes_of_no_record_end_them() -> None:
    """The second format has the length of a topic in two bytes (5.0); else its records would all be skipped."""
    first, second = Message().record(700), Message(version=2).record(900)
    assert cut(first + second) == ([0, len(first)], [700, 900], len(first) + len(second))
    other = bytearray(second)
    other[4:8] = b"\1\2\3\4"
    assert cut(first + bytes(other)) == ([0], [700], len(first))
    assert cut(first[:-1]) == ([], [], 0)


def test_the_next_record_is_searched_for_from_a_place_on_and_not_before_it() -> None:
    """Else bytes between two records would have the records before them read again, without an end."""
    record = Message().record(700)
    assert _next_head(record + b"\1" * 200, 1) == len(record) + 200
    assert _next_head(record + b"\1" * 200 + record, 1) == len(record) + 200
    assert _next_head(record, 0) == 0


def test_a_response_is_awaited_for_ten_seconds_as_the_help_of_timeout_states() -> None:
    settings = RemotingSettings()
    assert (settings.timeout_ms, settings.connect_timeout_ms) == (10_000, 3_000)
