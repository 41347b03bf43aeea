"""A producer's side of the protocol, against bytes of brokers and official clients, and against a broker made here."""

from __future__ import annotations

import json
import lzma
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.log.properties import PRODUCER_GROUP, UNIQ_KEY
from rmqtx.remoting.producer.producer import (
    OUR_CLIENTS,
    Check,
    Member,
    Membership,
    Message,
    heartbeat_body,
    our_client_id,
    parsed_check,
    properties_text,
    sent,
)
from rmqtx.remoting.producer.unique_keys import UNIQUE_KEY, UniqueKeys
from rmqtx.remoting.protocol.codes import IS_ONEWAY, IS_RESPONSE, RequestCode
from rmqtx.remoting.protocol.connection_settings import RemotingSettings
from rmqtx.remoting.protocol.errors import Refused
from rmqtx.remoting.protocol.frames import Frame, decoded, encoded
from tests.remoting.fake import FakeServer, response

CHECKS = sorted((Path(__file__).parent / "checks").glob("*.json"))
TRUTH = Path(__file__).parents[1] / "corpus" / "common-5.3.3" / "truth.jsonl.xz"


@pytest.mark.parametrize("file", CHECKS, ids=lambda file: file.stem)
def test_the_question_of_a_real_broker_names_the_copy_that_it_put_back(file: Path) -> None:
    told = json.loads(file.read_text())
    frame = decoded(bytes.fromhex(told["hex"]))
    assert (frame.code, frame.flag) == (RequestCode.CHECK_TRANSACTION_STATE, IS_ONEWAY)
    check = parsed_check(frame, "here:1")
    assert check is not None
    assert (check.queue_offset, check.commit_log_offset) == tuple(told["put_back"].values())
    assert check.transaction_id == told["sent"]["transaction_id"]
    assert check.commit_log_offset > told["sent"]["commit_log_offset"]
    assert f"{PRODUCER_GROUP}\x01e-check\x02".encode() in check.record
    assert f"{UNIQ_KEY}\x01{check.transaction_id}".encode() in check.record
    assert "a body" not in repr(check)


def test_a_question_without_offsets_is_none() -> None:
    frame = Frame(RequestCode.CHECK_TRANSACTION_STATE, 1, {"tranStateTableOffset": "5"})
    assert parsed_check(frame, "here:1") is None
    frame = replace(frame, fields={"tranStateTableOffset": "5", "commitLogOffset": "x"})
    assert parsed_check(frame, "here:1") is None


def test_unique_keys_are_what_official_clients_make(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of the corpus had an IPv6 address; the rest of its keys is as ours. Its clock was in UTC."""
    events = [json.loads(line) for line in lzma.decompress(TRUTH.read_bytes()).decode().splitlines()]
    official = next(event for event in events if event["event"] == "sent" and event["transaction_id"])
    tail = bytes(4) + bytes.fromhex(official["transaction_id"])[16:]
    told = UNIQUE_KEY.unpack(tail)
    moment = datetime.fromtimestamp(official["time_ms"] / 1000, UTC)
    month = moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    made_ms = int(month.timestamp() * 1000) + told["month_ms"] % (1 << 32)
    assert 0 <= official["time_ms"] - made_ms < 10_000
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    ours = UNIQUE_KEY.unpack(bytes.fromhex(UniqueKeys().new(made_ms)))
    monkeypatch.undo()
    time.tzset()
    assert ours["address"] == bytes([127, 0, 0, 1])
    assert ours["month_ms"] == told["month_ms"]


def test_unique_keys_never_repeat_and_wrap() -> None:
    keys = UniqueKeys()
    many = [keys.new(1_790_000_000_000) for _ in range(65_537)]
    assert len(set(many)) == 65_536  # the counter has 16 bits, and the clock goes on meanwhile
    assert len(keys.new()) == 32
    assert UniqueKeys().new(0)[12:20] != UniqueKeys().new(0)[12:20]
    late = UNIQUE_KEY.unpack(bytes.fromhex(keys.new(1_793_400_000_000)))  # 30 days into a month: more than 2^31 ms
    assert late["month_ms"] < 0


def test_properties_and_heartbeats_as_clients_write_them() -> None:
    assert properties_text({"KEYS": "a b", "TRAN_MSG": "true"}) == "KEYS\x01a b\x02TRAN_MSG\x01true\x02"
    with pytest.raises(AssertionError):
        properties_text({"KEYS": "a\x02b"})
    assert json.loads(heartbeat_body("me", ["g", "h"])) == {
        "clientID": "me", "producerDataSet": [{"groupName": "g"}, {"groupName": "h"}], "consumerDataSet": [],
    }
    assert our_client_id().startswith(OUR_CLIENTS)
    assert our_client_id() != our_client_id()


def test_a_send_is_stored_whose_disk_or_slave_was_too_slow() -> None:
    fields = {"msgId": "7F00000100002A9F0000000000002976", "queueId": "0", "queueOffset": "18"}
    done = sent(Frame(12, 1, fields, flag=IS_RESPONSE), "KEY")
    assert (done.queue_offset, done.commit_log_offset, done.status) == (18, 0x2976, "FLUSH_SLAVE_TIMEOUT")


# -- a broker made here -----------------------------------------------------------------------------------------------


class FakeBroker(FakeServer):
    """Answers everything with success, and can ask itself."""

    def __init__(self) -> None:
        self.code = 0
        super().__init__(self._done)

    def _done(self, request: Frame) -> Frame:
        message_id = "7F00000100002A9F0000000000000010"
        return response(request, self.code, msgId=message_id, queueId="0", queueOffset="3")

    def ask(self, fields: dict[str, str]) -> None:
        self._sockets[-1].sendall(encoded(Frame(RequestCode.CHECK_TRANSACTION_STATE, 1, fields, flag=2)))

    def codes(self) -> list[int]:
        return [frame.code for frame in self.requests]


def until(true: Any) -> None:
    end = time.monotonic() + 300
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_half_says_whose_it_is_and_creates_no_topic() -> None:
    with FakeBroker() as broker:
        member = Member(RemotingSettings(), broker.address, ("shop", "other"), "me", lambda _: None)
        done = member.send_half(Message("orders", b"body", "KEY", 2, {"KEYS": "order-1"}))
        assert (done.transaction_id, done.commit_log_offset) == ("KEY", 16)
        fields = broker.requests[0].fields
        assert broker.codes() == [RequestCode.SEND_MESSAGE_V2]
        assert [fields[name] for name in "abcef"] == ["shop", "orders", "orders", "2", "4"]
        properties = dict(part.split("\x01") for part in fields["i"].split("\x02") if part)
        assert properties == {
            "KEYS": "order-1", "WAIT": "true", "UNIQ_KEY": "KEY", "TRAN_MSG": "true", "PGROUP": "shop",
        }
        broker.code = 17
        with pytest.raises(Refused):
            member.send_half(Message("orders", b"body", "KEY3"))
        member.close()


def test_a_membership_hears_checks_comes_back_and_leaves() -> None:
    heard: list[Check] = []
    changes: list[bool] = []
    with FakeBroker() as broker:
        with Membership(
            RemotingSettings(), [broker.address], ("shop", "claim"), heard.append,
            lambda _address, why: changes.append(why is None), heartbeat_ms=300,
        ) as membership:
            assert broker.codes() == [RequestCode.HEART_BEAT]
            broker.ask({"tranStateTableOffset": "5", "commitLogOffset": "700", "transactionId": "T1"})
            until(lambda: heard)
            assert (heard[0].queue_offset, heard[0].commit_log_offset, heard[0].transaction_id) == (5, 700, "T1")
            until(lambda: len(broker.requests) >= 3)  # heartbeats go on
            broker.cut()
            until(lambda: membership.member(broker.address).is_closed or broker._sockets)
            until(lambda: broker._sockets and not membership.member(broker.address).is_closed)
            broker.ask({"tranStateTableOffset": "6", "commitLogOffset": "800", "transactionId": "T2"})
            until(lambda: len(heard) == 2)
        left = [frame for frame in broker.requests if frame.code == RequestCode.UNREGISTER_CLIENT]
        assert [frame.fields["producerGroup"] for frame in left] == ["shop", "claim"]
        bodies = {frame.body for frame in broker.requests if frame.code == RequestCode.HEART_BEAT}
        assert bodies == {heartbeat_body(membership.client_id, ("shop", "claim"))}


def test_a_membership_says_that_its_broker_is_away() -> None:
    changes: list[str | None] = []
    with FakeBroker() as broker:
        settings = RemotingSettings(connect_timeout_ms=500, timeout_ms=500)
        with Membership(
            settings, [broker.address], ("shop",), lambda _: None, lambda _, why: changes.append(why)
        ):
            broker.close()
            until(lambda: changes)
            assert broker.address in (changes[0] or "")
