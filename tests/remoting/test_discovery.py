"""From names and addresses to brokers, and one line where that leads nowhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.store.store import CHECK_GROUP, HALF_TOPIC, TIMER_TOPIC
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.connections.discovery import NameServers, chosen_brokers
from rmqtx.remoting.protocol.codes import RequestCode
from rmqtx.remoting.protocol.connection_settings import RemotingSettings, with_namespace
from rmqtx.remoting.protocol.errors import BadFrame, Unreachable
from rmqtx.remoting.protocol.frames import Frame
from tests.remoting.fake import Answer, FakeServer, response


def broker_answer(request: Frame, name: str = "broker-a", cluster: str = "c1", number: str = "0") -> Answer:
    if request.code == RequestCode.GET_BROKER_CONFIG:
        text = f"brokerName={name}\nbrokerClusterName={cluster}\nbrokerId={number}\n"
        return response(request, body=text.encode())
    return response(request, 3, f" request type {request.code} not supported")


def name_server(table: dict[str, Any]) -> FakeServer:
    def answer(request: Frame) -> Answer:
        if request.code != RequestCode.GET_BROKER_CLUSTER_INFO:
            return []  # those of 4.x are silent
        return response(request, body=json.dumps({"brokerAddrTable": table}).encode())

    return FakeServer(answer)


def entry(name: str, cluster: str, **addresses: str) -> dict[str, Any]:
    numbered = {number.removeprefix("id"): address for number, address in addresses.items()}
    return {"brokerName": name, "cluster": cluster, "brokerAddrs": numbered}


SETTINGS = RemotingSettings(timeout_ms=1000, connect_timeout_ms=1000)


def found(names: list[str], table: dict[str, Any] | None, cluster: str | None = None) -> list[tuple[str, str, int]]:
    with Client(SETTINGS) as client:
        if table is None:
            brokers, _ = chosen_brokers(client, None, names=names, cluster=cluster)
        else:
            with name_server(table) as server:
                servers = NameServers(client, [server.address])
                brokers, _ = chosen_brokers(client, servers, names=names, cluster=cluster)
    return [(broker.cluster, broker.root, broker.broker_id) for broker in brokers]


def test_every_master_of_every_cluster_in_order() -> None:
    with FakeServer(broker_answer) as one, FakeServer(broker_answer) as two, FakeServer(broker_answer) as three:
        table = {
            "y": entry("broker-b", "c1", id0=two.address),
            "x": entry("broker-a", "c1", id0=one.address, id1="10.0.0.1:1"),
            "z": entry("broker-a", "c2", id0=three.address),
        }
        first, second = ("c1", f"broker-a@{one.address}", 0), ("c1", f"broker-b@{two.address}", 0)
        other = ("c2", f"broker-a@{three.address}", 0)
        assert found([], table) == [first, second, other]
        assert found([], table, "c2") == [other]
        assert found(["broker-b"], table) == [second]
        assert found(["broker-b", two.address, "broker-b"], table) == [second]


def test_a_name_server_of_3_1_says_the_clusters_in_a_table_of_their_own() -> None:
    table = {"broker-a": {"brokerName": "broker-a", "brokerAddrs": {"0": "10.0.0.1:10911"}}}
    value = {"brokerAddrTable": table, "clusterAddrTable": {"c1": ["broker-a"]}}

    def answer(request: Frame) -> Answer:
        return response(request, body=json.dumps(value).encode())

    with FakeServer(answer) as server, Client(SETTINGS) as client:
        brokers = NameServers(client, [server.address]).brokers()
    assert [(broker.cluster, broker.name) for broker in brokers] == [("c1", "broker-a")]


def test_an_address_needs_no_name_server_and_says_itself_who_it_is() -> None:
    with FakeServer(lambda request: broker_answer(request, number="1")) as slave:
        assert found([slave.address], None) == [("c1", f"broker-a@{slave.address}", 1)]


def test_an_address_of_ours_stands_for_one_that_only_the_inside_knows() -> None:
    table = {"x": entry("broker-a", "c1", id0="192.0.2.1:10911", id1="192.0.2.2:10911")}
    with FakeServer(broker_answer) as broker, name_server(table) as server, Client(SETTINGS) as client:
        brokers, members = chosen_brokers(client, NameServers(client, [server.address]), names=[broker.address])
    assert [each.root for each in brokers] == [f"broker-a@{broker.address}"]
    assert members[0].addresses == {0: broker.address, 1: "192.0.2.2:10911"}


def test_an_address_that_cannot_be_reached_is_told_whose_it_is() -> None:
    with FakeServer(broker_answer) as broker:
        gone = broker.address
    says = rf"cannot connect to {gone}: connection refused \(the address of broker-a in .*\) - .*--broker HOST"
    with pytest.raises(Unreachable, match=says):
        found([], {"x": entry("broker-a", "c1", id0=gone)})


def test_a_set_without_a_master_is_told() -> None:
    says = r"broker-a has no master now - to read a slave: --broker 127.0.0.1:9"
    with pytest.raises(Unreachable, match=says):
        found([], {"x": entry("broker-a", "c1", id1="127.0.0.1:9")})


@pytest.mark.parametrize(
    ("names", "table", "cluster", "says"),
    [
        (["broker-x"], {"x": entry("broker-a", "c1", id0="127.0.0.1:9")}, None, "the name server lists broker-a"),
        (["broker-x"], None, None, "a name needs a name server: -n HOST:PORT"),
        ([], {"x": entry("broker-a", "c1", id0="127.0.0.1:9")}, "c9", "lists no cluster 'c9' - clusters: c1"),
    ],
)
def test_names_that_nobody_has(names: list[str], table: dict[str, Any] | None, cluster: str | None, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        found(names, table, cluster)


def test_a_broker_of_another_cluster_than_the_named_one_is_refused() -> None:
    """Else `--cluster c2 --broker ADDRESS` reads, or changes, a broker that the user excluded."""
    with FakeServer(broker_answer) as one, FakeServer(lambda request: broker_answer(request, "b", "c2")) as two:
        with pytest.raises(BadRequest, match="belongs to cluster c1, not c2"):
            found([one.address], None, "c2")
        with pytest.raises(BadRequest, match="belongs to cluster c1, not c2"):
            found([two.address, one.address], None, "c2")
        table = {
            "broker-a": entry("broker-a", "c1", id0=one.address), "b": entry("b", "c2", id0=two.address),
        }
        with pytest.raises(BadRequest, match="there is no broker 'broker-a'"):
            found(["broker-a"], table, "c2")
        assert [cluster for cluster, _, _ in found([two.address], None, "c2")] == ["c2"]


def test_a_name_server_where_a_broker_is_meant_and_the_other_way_round() -> None:
    with name_server({}) as server:
        with pytest.raises(Unreachable, match=rf"is a name server, not a broker - .*: -n {server.address}"):
            found([server.address], None)
        with Client(SETTINGS) as client, pytest.raises(Unreachable, match="lists no brokers"):
            chosen_brokers(client, NameServers(client, [server.address]))
    says = r"is not a name server - if it is a broker: --broker 127.0.0.1:\d+"
    with FakeServer(broker_answer) as broker, Client(SETTINGS) as client, pytest.raises(Unreachable, match=says):
        NameServers(client, [broker.address]).brokers()


def test_the_first_name_server_that_answers_and_all_failures_in_one_line() -> None:
    with FakeServer(broker_answer) as gone, FakeServer(broker_answer) as broker:
        refused = gone.address
        gone.__exit__(None, None, None)
        table = {"x": entry("broker-a", "c1", id0=broker.address)}
        with name_server(table) as server, Client(SETTINGS) as client:
            assert len(NameServers(client, [refused, broker.address, server.address]).brokers()) == 1
            with pytest.raises(Unreachable) as caught:
                NameServers(client, [refused, broker.address]).brokers()
    assert str(caught.value) == (
        f"cannot connect to {refused}: connection refused; {broker.address} is not a name server "
        f"- if it is a broker: --broker {broker.address}"
    )


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"brokerAddrTable":[1]}', b'{"brokerAddrTable":{"a":{"brokerName":"a"}}}', b"null"]
)
def test_answers_that_are_none(body: bytes) -> None:
    def answer(request: Frame) -> Answer:
        return response(request, body=body)

    with FakeServer(answer) as server, Client(SETTINGS) as client, pytest.raises(BadFrame):
        NameServers(client, [server.address]).brokers()


def test_names_go_into_namespaces_once() -> None:
    assert with_namespace("shop", "NS") == with_namespace("NS%shop", "NS") == "NS%shop"
    assert with_namespace("%RETRY%shop", "NS") == "%RETRY%NS%shop"
    assert with_namespace("%DLQ%NS%shop", "NS") == "%DLQ%NS%shop"
    assert with_namespace("shop", None) == "shop"
    for name in (HALF_TOPIC, "TOOLS_CONSUMER", CHECK_GROUP, TIMER_TOPIC):
        assert with_namespace(name, "NS") == name
