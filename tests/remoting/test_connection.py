"""Connections: responses to whom they belong, patience, what broke, and what is asked twice or never."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.connections.connection import Connection, Request
from rmqtx.remoting.connections.transport import PlainStream, open_stream
from rmqtx.remoting.protocol.codes import COMMIT, RequestCode, ResponseCode
from rmqtx.remoting.protocol.connection_settings import Credentials, RemotingSettings
from rmqtx.remoting.protocol.errors import BadFrame, NoAnswer, Refused, Unreachable
from rmqtx.remoting.protocol.frames import Encoding, Frame, encoded
from tests.remoting.fake import Answer, FakeServer, response

ASKED = Request(RequestCode.GET_MIN_OFFSET, {"topic": "t", "queueId": 0})


def echo(request: Frame) -> Answer:
    return response(request, offset=request.fields.get("queueId", "0"))


def impatient(timeout_ms: int = 1_500) -> Client:
    return Client(RemotingSettings(timeout_ms=timeout_ms))


def end(client: Client, server: FakeServer) -> object:
    broker = Broker(client, server.address, "a", "c")
    return broker.end_transaction(
        producer_group="g", queue_offset=1, commit_log_offset=2, decision=COMMIT, transaction_id="x"
    )


def codes(server: FakeServer) -> list[int]:
    return [frame.code for frame in server.requests]


@pytest.mark.parametrize("encoding", Encoding)
def test_many_threads_on_one_connection_get_their_own(encoding: Encoding) -> None:
    with FakeServer(echo) as server, Client(RemotingSettings(encoding=encoding)) as client:
        broker = Broker(client, server.address, "a", "c")
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(lambda number: broker.min_offset("t", number), range(2000)))
        assert found == list(range(2000))
        assert server.connections == 1


def test_responses_in_another_order_find_their_askers() -> None:
    held: list[Frame] = []

    def answer(request: Frame) -> Answer:
        held.append(request)
        return [echo_of(held.pop()) for _ in range(8)] if len(held) == 8 else []

    def echo_of(request: Frame) -> Frame:
        return response(request, offset=request.fields["queueId"])

    with FakeServer(answer) as server, Client() as client:
        requests = (Request(RequestCode.GET_MIN_OFFSET, {"queueId": number}) for number in range(64))
        found = [frame.fields["offset"] for frame in client.calls(server.address, requests, window=8)]
    assert found == [str(number) for number in range(64)]


def test_no_answer_comes_in_time() -> None:
    with FakeServer(lambda request: []) as server, impatient() as client:
        with pytest.raises(NoAnswer, match=r"did not answer GET_MIN_OFFSET within 1500 ms - .*add --timeout"):
            client.call(server.address, ASKED)
        assert len(server.requests) == 1


def test_a_connection_that_fell_silent_is_not_used_again() -> None:
    is_silent = threading.Event()

    def answer(request: Frame) -> Answer:
        return [] if is_silent.is_set() else echo(request)

    with FakeServer(answer) as server, impatient() as client:
        client.call(server.address, ASKED)
        is_silent.set()
        with pytest.raises(NoAnswer):
            client.call(server.address, ASKED)
        is_silent.clear()
        client.call(server.address, ASKED)
        assert server.connections == 2


def test_a_late_response_hurts_nobody() -> None:
    def answer(request: Frame) -> Answer:
        if request.fields["queueId"] == "9":
            time.sleep(0.5)
        return echo(request)

    with FakeServer(answer) as server, impatient(5000) as client:
        connection = client.connection(server.address)
        slow = connection.start(Request(RequestCode.GET_MIN_OFFSET, {"queueId": 9}))
        quick = connection.start(Request(RequestCode.GET_MIN_OFFSET, {"queueId": 1}))
        with pytest.raises(NoAnswer):
            slow.result(1)
        with pytest.raises(NoAnswer):  # it had said nothing since it was asked
            quick.result(5000)
        assert client.call(server.address, ASKED).code == 0


@pytest.mark.parametrize("kept", [0, 3, 6, 20])
def test_a_read_cut_short_is_asked_again_once(kept: int) -> None:
    def answer(request: Frame) -> Answer:
        return echo(request) if len(server.requests) > 1 else encoded(response(request, offset="5"))[:kept]

    with FakeServer(answer) as server, impatient(5000) as client:
        end_first_connection(server)
        assert client.call(server.address, ASKED).fields["offset"] == "0"
        assert len(server.requests) == 2
        assert server.connections == 2


def end_first_connection(server: FakeServer) -> None:
    """End the first connection once its first request has come."""

    def work() -> None:
        while not server.requests:
            time.sleep(0.005)
        time.sleep(0.05)
        server._sockets[0].shutdown(socket.SHUT_RDWR)

    threading.Thread(target=work, daemon=True).start()


def test_reads_that_always_break_end_with_one_line() -> None:
    with FakeServer(lambda request: None) as server, impatient(2000) as client:
        with pytest.raises(NoAnswer, match=r"closed the connection - if the port requires TLS, add --tls"):
            client.call(server.address, ASKED)
        assert len(server.requests) == 2


@pytest.mark.parametrize("fault", ["silent", "ends", "garbage", "cut"])
def test_what_acts_is_sent_once_and_nobody_knows(fault: str) -> None:
    def answer(request: Frame) -> Answer:
        return {"silent": [], "ends": None, "garbage": b"\xff" * 40, "cut": [encoded(response(request))[:9]]}[fault]

    with FakeServer(answer) as server, impatient() as client:
        with pytest.raises(NoAnswer):
            end(client, server)
        assert codes(server) == [RequestCode.END_TRANSACTION]


def test_what_acts_is_not_sent_where_nobody_listens() -> None:
    with FakeServer(echo) as server:
        address = server.address
    with impatient() as client, pytest.raises(Unreachable, match="connection refused"):
        Broker(client, address, "a", "c").resume_check("x")


def test_what_acts_goes_over_no_old_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqtx.remoting.connections.client._IDLE_MS_MAX", 50)
    with FakeServer(echo) as server, impatient() as client:
        client.call(server.address, ASKED)
        time.sleep(0.1)
        end(client, server)
        assert server.connections == 2


def test_a_pipeline_goes_on_over_a_new_connection() -> None:
    asked = 0

    def answer(request: Frame) -> Answer:
        nonlocal asked
        asked += 1
        return None if asked in (40, 41, 90) else echo(request)

    with FakeServer(answer) as server, impatient(5000) as client:
        requests = (Request(RequestCode.GET_MIN_OFFSET, {"queueId": number}) for number in range(200))
        found = [int(frame.fields["offset"]) for frame in client.calls(server.address, requests)]
        assert found == list(range(200))


def test_what_is_no_frame_is_said() -> None:
    says = pytest.raises(BadFrame, match=r"does not use RocketMQ's protocol: not a frame")
    with FakeServer(lambda request: b"\x7f\xff\xff\xff" * 4) as server, impatient() as client, says:
        client.call(server.address, ASKED)


def test_unknown_codes_and_remarks_reach_the_error() -> None:
    def answer(request: Frame) -> Answer:
        return response(request, 4242, "of the\nfuture\x1b[31m")

    with FakeServer(answer) as server, impatient() as client, pytest.raises(Refused) as caught:
        client.call(server.address, ASKED)
    assert caught.value.code == 4242
    assert caught.value.remark == "of the\nfuture\x1b[31m"
    assert str(caught.value).endswith("refused GET_MIN_OFFSET: code 4242, of the future\x1b[31m")


def test_a_slave_that_gives_no_records_is_not_called_busy() -> None:
    """What a real slave of 5.3.3 answers: tests/brokers/forcing/test_guards_slow.py, test_slave."""
    remark = "[REJECTREQUEST]system busy, start flow control for a while"
    with FakeServer(lambda request: response(request, ResponseCode.SYSTEM_BUSY, remark)) as server:
        client = impatient()
        with client, pytest.raises(Refused) as pulled:
            Broker(client, server.address, "a", "c").pull("t", 0, 0)
        with impatient() as other, pytest.raises(Refused) as asked:
            other.call(server.address, ASKED)
    assert "slaveReadEnable=false" in str(pulled.value.advice)
    assert asked.value.advice == "run the command again later, or with fewer requests per second"


def test_requests_of_the_broker_reach_the_handler_and_nothing_else() -> None:
    heard: list[Frame] = []
    check = Frame(RequestCode.CHECK_TRANSACTION_STATE, 77, {"msgId": "x"}, b"record", 2)

    def answer(request: Frame) -> Answer:
        return [check, response(request)]

    with FakeServer(answer) as server:
        connection = Connection(server.address, RemotingSettings(), heard.append)
        try:
            assert connection.call(ASKED).code == 0
        finally:
            connection.close()
    assert heard == [check]


def test_a_closed_client_lets_nobody_wait() -> None:
    with FakeServer(lambda request: []) as server:
        client = Client(RemotingSettings(timeout_ms=60_000))
        pending = client.connection(server.address).start(ASKED)
        threading.Timer(0.1, client.close).start()
        with pytest.raises(NoAnswer, match="rmqtx closed the connection"):  # and not: did not answer in time
            pending.result(60_000)


def test_an_address_that_does_not_answer_keeps_the_others_going(monkeypatch: pytest.MonkeyPatch) -> None:
    has_begun, is_over = threading.Event(), threading.Event()

    def opened(address: str, settings: RemotingSettings) -> object:
        if address != "127.0.0.1:1":
            return open_stream(address, settings)
        has_begun.set()
        assert is_over.wait(60), "the other address was not asked meanwhile"
        raise Unreachable("it does not answer")

    monkeypatch.setattr("rmqtx.remoting.connections.connection.open_stream", opened)
    with FakeServer(echo) as server, Client() as client, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.call, "127.0.0.1:1", ASKED)
        assert has_begun.wait(60)
        assert client.call(server.address, ASKED).code == 0
        assert not waiting.done()
        is_over.set()
        with pytest.raises(Unreachable, match="it does not answer"):
            waiting.result()


def test_memory_stays_flat_in_a_long_pipeline() -> None:
    import tracemalloc

    body = bytes(20_000)
    with FakeServer(lambda request: response(request, body=body)) as server, impatient(10_000) as client:
        tracemalloc.start()
        try:
            requests = (ASKED for _ in range(3000))  # 60 MB in all
            for _ in client.calls(server.address, requests):
                server.requests.clear()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 12_000_000


def test_no_secret_is_in_what_is_sent_or_shown() -> None:
    who = Credentials("me", "very-secret-4711", "token-4711")
    settings = RemotingSettings(credentials=who)
    with FakeServer(echo) as server, Client(settings) as client:
        client.call(server.address, ASKED)
        [request] = server.requests
    assert request.fields["AccessKey"] == "me"
    assert "Signature" in request.fields
    for text in (repr(who), str(who), repr(settings), repr(client), repr(vars(client)), str(dict(request.fields))):
        assert "very-secret-4711" not in text
    assert "token-4711" not in repr(settings)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="a setting of Linux")
def test_the_system_does_not_send_a_request_again_for_minutes() -> None:
    with FakeServer(echo) as server:
        stream = open_stream(server.address, RemotingSettings())
        assert isinstance(stream, PlainStream)
        kept = stream._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        stream.close()
    assert kept == 10_000
