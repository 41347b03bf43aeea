"""Copies from the files of a dead broker to a broker that answers by hand: sent once, found again by every act."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqtx.readers.model import clock
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import Store, open_store
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.protocol.answers import BrokerAddresses
from rmqtx.remoting.protocol.codes import RequestCode, ResponseCode
from rmqtx.remoting.protocol.errors import NoAnswer
from rmqtx.remoting.protocol.frames import Frame
from rmqtx.repairs.acts.carry_out import carry_out, checked_acts
from rmqtx.repairs.acts.orders import ActOrder, CheckedAct, Conduct
from rmqtx.repairs.acts.send_medium import SendMedium
from rmqtx.repairs.acts.situation import ActRequest
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.journal import Journal
from tests.brokers import corpus
from tests.forge.records import Message
from tests.remoting.fake import response
from tests.remoting.test_live_questions import Served

DEAD, TARGET = "prepared-4.2.0", "acting-5.3.3"
QUICK = Conduct(settle_ms=0, overrides=("decision-in-flight",), prove_ms=3_000)


class Taking(Served):
    """A broker with other transactions that stores what is sent, and finds it by its id and its place."""

    def __init__(self, place: Path, client: Client) -> None:
        super().__init__(TARGET, place, client)
        self.sent: list[tuple[dict[str, str], bytes]] = []
        self.code = ResponseCode.SUCCESS
        more = {
            RequestCode.SEND_MESSAGE_V2: self._send, RequestCode.QUERY_MESSAGE: self._query,
            RequestCode.PULL_MESSAGE: self._pull, RequestCode.HEART_BEAT: response,
        }
        self._old = dict(self.answers._answers)
        self.answers._answers |= more

    def _send(self, request: Frame) -> Frame:
        if self.code == ResponseCode.SUCCESS:
            self.sent.append((dict(request.fields), request.body))
        return response(request, self.code, None, b"", msgId="00" * 16, queueId=request.fields["e"], queueOffset="0")

    def _records(self) -> Iterator[tuple[dict[str, str], bytes]]:
        for number, (fields, body) in enumerate(self.sent):
            properties = tuple(tuple(one.split("\x01")) for one in fields["i"].split("\x02") if one)
            message = Message(
                topic=fields["b"], queue_id=int(fields["e"]), queue_offset=number, body=body,
                properties=properties, sys_flag=int(fields["f"]), flag=int(fields["h"]),  # type: ignore[arg-type]
            )
            yield fields, message.record(1_000_000 + 10_000 * number)

    def _query(self, request: Frame) -> Frame:
        found = [
            record for fields, record in self._records()
            if fields["b"] == request.fields["topic"] and f"UNIQ_KEY\x01{request.fields['key']}\x02" in fields["i"]
        ]
        return response(request, body=b"".join(found)) if found else self._old[RequestCode.QUERY_MESSAGE](request)

    def _pull(self, request: Frame) -> Frame:
        number, records = int(request.fields["queueOffset"]), list(self._records())
        if number < len(records) and records[number][0]["b"] == request.fields["topic"]:
            end = str(len(records))
            return response(
                request, body=records[number][1], nextBeginOffset=str(number + 1), minOffset="0", maxOffset=end
            )
        return self._old[RequestCode.PULL_MESSAGE](request)


@pytest.fixture
def dead(tmp_path: Path) -> Store:
    return open_store(corpus.unpack(DEAD, tmp_path / "dead"))


def act(target: Taking, dead: Store, names: list[str], journal: Journal, *, as_half: bool = False) -> list[CheckedAct]:
    members = [BrokerAddresses("c", "broker-a", {0: target.broker.address})]
    medium = SendMedium(
        [target.broker], members, target.broker, [dead], lambda store: broker_settings(store, version="4.2.0"),
        as_half=as_half,
    )
    acts = checked_acts([ActOrder(name, ActRequest(ActKind.REDELIVER), "paid") for name in names], medium, QUICK)
    carry_out(acts, medium, journal, QUICK, lambda _: None)
    return acts


def named(state: str) -> list[str]:
    return [row["transaction_id"] for row in corpus.expected(DEAD) if row["state"] == state and row["transaction_id"]]


def test_a_copy_is_sent_once_and_found_again(dead: Store, tmp_path: Path, client: Client) -> None:
    target, names = Taking(tmp_path, client), named("ROLLED_BACK")[:2]
    with target.server:
        begin_ms = clock.now_ms()
        acts = act(target, dead, names, Journal(tmp_path / "one.jsonl"))
        assert all(begin_ms <= one.situation.conditions.now_ms <= begin_ms + 600_000 for one in acts)
        assert [one.begun().outcome for one in acts] == ["proved", "proved"], acts[0].begun().notes
        assert {one.begun().store for one in acts} == {target.broker.root}
        again = act(target, dead, names, Journal(tmp_path / "two.jsonl"))  # as another machine
        assert all("already-delivered" in one.begun().notes[0] for one in again)
        refused = act(target, dead, [named("PENDING")[0], named("COMMITTED")[0]], Journal(tmp_path / "two.jsonl"))
        assert [one.refusals[0].guard for one in refused] == ["still-open", "already-delivered"]
    assert len(target.sent) == 2
    for fields, _ in target.sent:
        assert int(fields["f"]) & 0xC == 0  # neither a half message nor a COMMIT record
        assert "TRAN_MSG" not in fields["i"]
        assert "RMQTX_ORIGIN" in fields["i"]


@pytest.mark.parametrize("code", [ResponseCode.TOPIC_NOT_EXIST, None])
def test_what_is_not_accepted_ends_the_run(
    code: ResponseCode | None, dead: Store, tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, names = Taking(tmp_path, client), named("ROLLED_BACK")[:2]
    if code is None:  # the broker stored it, and its answer was lost
        real = target.broker.__class__.send

        def lost(self: object, *arguments: object) -> object:
            real(self, *arguments)  # type: ignore[arg-type]
            raise NoAnswer("silence")

        monkeypatch.setattr(target.broker.__class__, "send", lost)
    else:
        target.code = code
    with target.server:
        acts = act(target, dead, names, Journal(tmp_path / "one.jsonl"))
    outcomes = ["proved" if code is None else "refused_by_broker", "not_sent"]
    assert [one.begun().outcome for one in acts] == outcomes


def test_the_copy_that_is_flushed_late_counts_as_sent(dead: Store, tmp_path: Path, client: Client) -> None:
    target = Taking(tmp_path, client)
    target.code = ResponseCode.FLUSH_DISK_TIMEOUT
    real = target._send

    def stored(request: Frame) -> Frame:
        target.sent.append((dict(request.fields), request.body))
        return real(request)

    target.answers._answers[RequestCode.SEND_MESSAGE_V2] = stored
    with target.server:
        (one,) = act(target, dead, named("ROLLED_BACK")[:1], Journal(tmp_path / "one.jsonl"))
    assert one.begun().outcome == "proved"
    assert "stored, but FLUSH_DISK_TIMEOUT" in one.begun().notes
