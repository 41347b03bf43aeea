"""The proxy of the tests of faults breaks what it is told to, and nothing else."""

from __future__ import annotations

import pytest

from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.protocol.codes import COMMIT, RequestCode
from rmqtx.remoting.protocol.connection_settings import RemotingSettings
from rmqtx.remoting.protocol.errors import NoAnswer
from rmqtx.remoting.protocol.frames import Frame
from tests.brokers.proxy import Fault, FaultProxy
from tests.remoting.fake import Answer, FakeServer, response

END = int(RequestCode.END_TRANSACTION)


def echo(request: Frame) -> Answer:
    return response(request, offset=request.fields.get("queueId", "0"))


def acted(client: Client, proxy: FaultProxy) -> int:
    broker = Broker(client, proxy.address, "a", "c")
    return broker.end_transaction(
        producer_group="g", queue_offset=1, commit_log_offset=2, decision=COMMIT, transaction_id="x"
    ).code


@pytest.mark.parametrize(
    ("fault", "reaches"),
    [
        (Fault("cut", "response", END), True), (Fault("cut", "response", END, keep_bytes=0), True),
        (Fault("cut", "request", END), False), (Fault("drop", "response", END), True),
        (Fault("drop", "request", END), False), (Fault("hang", "response", END), True),
        (Fault("delay", "response", END, delay_ms=4_000), True),
    ],
    ids=str,
)
def test_what_acts_meets_a_fault_and_what_reads_does_not(fault: Fault, reaches: bool) -> None:
    with FakeServer(echo) as server, FaultProxy(server.address) as proxy:
        with Client(RemotingSettings(timeout_ms=2_000)) as client:
            broker = Broker(client, proxy.address, "a", "c")
            proxy.break_next(fault)
            assert broker.min_offset("t", 5) == 5
            with pytest.raises(NoAnswer):
                acted(client, proxy)
            assert broker.min_offset("t", 6) == 6
            assert acted(client, proxy) == 0
        assert proxy.struck == [fault]
        assert [frame.code for frame in server.requests].count(END) == (2 if reaches else 1)
        assert proxy.requests[END] == 2


def test_the_nth_and_all_later_ones_until_it_is_healed() -> None:
    settings = RemotingSettings(timeout_ms=2_000)
    with FakeServer(echo) as server, FaultProxy(server.address) as proxy, Client(settings) as client:
        proxy.break_next(Fault("cut", "request", END, nth=2, is_lasting=True))
        assert acted(client, proxy) == 0
        for _ in range(2):
            with pytest.raises(NoAnswer):
                acted(client, proxy)
        proxy.heal()
        assert acted(client, proxy) == 0
