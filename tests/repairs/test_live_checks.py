"""What the check of a running broker does after an act: a settled copy that it reads again is a reason to refuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, open_store
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.live import witnesses
from rmqtx.remoting.live.queues import OpsUnreadable
from rmqtx.remoting.protocol.answers import BrokerAddresses
from rmqtx.remoting.protocol.codes import RequestCode, ResponseCode
from rmqtx.remoting.protocol.frames import Frame
from rmqtx.repairs.acts.carry_out import checked_acts
from rmqtx.repairs.acts.claims import PREFIX
from rmqtx.repairs.acts.live_medium import LiveMedium
from rmqtx.repairs.acts.orders import ActOrder, CheckedAct, Conduct
from rmqtx.repairs.acts.situation import ActRequest
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.records.record_writer import has_readable_body
from rmqtx.verdicts.model.verdict_words import NextEvent
from tests.histories.damages import DAMAGES
from tests.remoting.fake import response
from tests.remoting.test_live_questions import Served

#: Two compressed copies that this broker put back stop its check, which passes op messages.
STOPPED = "poison-4.4.0"


def checked(one: Served, action: ActKind, *names: str, copy: int | None = None) -> list[CheckedAct]:
    medium = LiveMedium([one.broker], [BrokerAddresses("c", "broker-a", {0: one.broker.address})])
    return checked_acts([ActOrder(name, ActRequest(action, queue_offset=copy)) for name in names], medium, Conduct())


def by_copy(one: Served) -> dict[int, str]:
    return {
        copy["queue_offset"]: row["transaction_id"] for row in one.in_files()
        if row["state"] == "PENDING" for copy in row["half_copies"]
    }


def test_a_decision_is_refused_whose_op_message_a_stopped_check_passes(tmp_path: Path, client: Client) -> None:
    one = Served(STOPPED, tmp_path, client)
    names = by_copy(one)
    with one.server:
        for copy, end in ((23, 24), (25, 23)):
            for action in (ActKind.COMMIT, ActKind.ROLLBACK, ActKind.DISCARD):
                (act,) = checked(one, action, names[copy])
                (refusal,) = act.refusals
                assert refusal.guard == "cannot-be-written"
                assert f"the check ends at half queue offset {end} " in refusal.why
                assert f"reads half copy {copy}, although" in refusal.why
        assert not any(act.refusals for act in checked(one, ActKind.COMMIT, *set(names.values())))


def test_where_the_op_queue_cannot_be_read_it_is_unknown(
    tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Served(STOPPED, tmp_path, client)
    name = by_copy(one)[25]

    def unreadable(*_: object) -> None:
        raise OpsUnreadable("the broker does not serve its op queue")

    monkeypatch.setattr(witnesses.LiveWitnesses, "check_window", unreadable)
    with one.server:
        (act,) = checked(one, ActKind.COMMIT, name)
    (refusal,) = act.refusals
    assert refusal.guard == "evidence-incomplete"
    assert "whether its check reads the op message of a decision: the broker does not serve" in refusal.why


def test_a_later_release_is_asked_only_for_the_end_of_its_op_queue(tmp_path: Path, client: Client) -> None:
    """It reads op messages until all half copies that they name are passed, unless the cursor is after them."""
    one = Served("common-5.3.3", tmp_path, client)
    name = next(row["transaction_id"] for row in one.in_files() if row["state"] == "PENDING")
    with one.server:
        assert not checked(one, ActKind.COMMIT, name)[0].refusals
        cursor = one.answers._cursor

        def beyond(request: Frame) -> Frame:
            found = cursor(request)
            if request.fields["topic"] != OP_TOPIC:
                return found
            return replace(found, fields={**found.fields, "offset": "100000"})

        one.answers._answers = {
            code: beyond if answer == cursor else answer for code, answer in one.answers._answers.items()
        }
        (act,) = checked(one, ActKind.COMMIT, name)
    incomplete, refusal = act.refusals
    assert (incomplete.guard, refusal.guard) == ("evidence-incomplete", "cannot-be-written")
    assert "the op cursor 100000 is after the end of the op queue" in refusal.why
    assert "after the next round of the check" in refusal.advice


def test_a_commit_names_the_newest_copy_that_consumers_can_read(tmp_path: Path, client: Client) -> None:
    """The check of 4.4.0 put a compressed message back with an inflated body and the flag for compression."""
    one = Served(STOPPED, tmp_path, client)
    spoilt = by_copy(one)[23]
    with one.server:
        acts = checked(one, ActKind.COMMIT, *set(by_copy(one).values()))
        act = next(act for act in acts if act.order.transaction_id == spoilt)
        assert not act.refusals
        newest = max(copy.queue_offset for copy in act.situation.transaction.half_copies)
        assert act.named is not None
        assert act.named.queue_offset < newest
        assert has_readable_body(act.named.raw)
        (act,) = checked(one, ActKind.COMMIT, spoilt, copy=newest)
        assert "cannot-be-sent" in {refusal.guard for refusal in act.refusals}
        acts = checked(one, ActKind.ROLLBACK, *set(by_copy(one).values()))
        act = next(act for act in acts if act.order.transaction_id == spoilt)
        assert act.named is not None
        assert act.named.queue_offset == newest


@pytest.mark.parametrize(("offset", "first_read"), [(None, 0), ("100000", 0), ("3", 3)])
def test_a_check_without_a_usable_cursor_reads_each_half_copy(
    tmp_path: Path, client: Client, offset: str | None, first_read: int
) -> None:
    """A broker that was killed before it wrote its cursors has none: 5.x answers so, and 4.x answers 0.

    An act that took the cursor for unknown left an older open copy, and ended as proved; the next round asked about it.
    """
    one = Served("common-5.3.3", tmp_path, client)
    cursor = one.answers._cursor

    def changed(request: Frame) -> Frame:
        found = cursor(request)
        if request.fields["topic"] != HALF_TOPIC:
            return found
        if offset is None:
            return replace(found, code=ResponseCode.QUERY_NOT_FOUND, fields={})
        return replace(found, fields={**found.fields, "offset": offset})

    one.answers._answers = {
        code: changed if answer == cursor else answer for code, answer in one.answers._answers.items()
    }
    medium = LiveMedium([one.broker], [BrokerAddresses("c", "broker-a", {0: one.broker.address})])
    medium._half_ends = {one.broker.root: 0}
    with one.server:
        assert medium.check_cursors() == {one.broker.root: first_read}


def test_records_of_op_messages_whose_slots_are_lost_are_not_read(tmp_path: Path, client: Client) -> None:
    """4.3.0 and 4.4.0 do not serve the op queue, so the log is read; the op cursor is behind the queue that is left.

    The check does not read the op message that an act writes before this cursor.
    """
    one = Served(STOPPED, tmp_path, client)
    DAMAGES["zeroed end of the op queue"](Path(one.store.root), 0.9)
    one.answers.store = open_store(one.store.root)
    name = by_copy(one)[24]
    served = one.answers._slots

    def unserved(request: Frame) -> Frame:
        return response(request) if request.fields["topic"] == OP_TOPIC else served(request)

    one.answers._answers[RequestCode.QUERY_CONSUME_QUEUE] = unserved
    with one.server:
        (act,) = checked(one, ActKind.COMMIT, name)
    incomplete, refusal = act.refusals
    assert (incomplete.guard, refusal.guard) == ("evidence-incomplete", "cannot-be-written")
    assert "the op cursor 11 is after the end of the op queue, so the check does not read op message 9" in refusal.why


def test_a_look_after_a_resume_shows_whether_the_check_reaches_it(tmp_path: Path, client: Client) -> None:
    """Other looks do not read what the check reads before."""
    one = Served(STOPPED, tmp_path, client)
    name = by_copy(one)[25]
    medium = LiveMedium([one.broker], [BrokerAddresses("c", "broker-a", {0: one.broker.address})])
    with one.server:
        assert medium.look([name])[0].next_event != NextEvent.STOPPED
        medium._has_resumed = True
        assert medium.look([name])[0].next_event == NextEvent.STOPPED


def test_other_rmqtx_are_looked_for_before_an_act_on_a_half_copy(tmp_path: Path, client: Client) -> None:
    """It is registered as a member of a group that only rmqtx uses, so that another rmqtx sees it."""
    one = Served("common-5.3.3", tmp_path, client)
    rows = [row for row in one.in_files() if row["state"] == "PENDING" and not row["discard_copies"]]
    name = rows[0]["transaction_id"]
    medium = LiveMedium([one.broker], [BrokerAddresses("c", "broker-a", {0: one.broker.address})])
    one.answers._answers |= dict.fromkeys((RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT), response)
    with one.server:
        (act,) = checked_acts([ActOrder(name, ActRequest(ActKind.COMMIT))], medium, Conduct())
        assert act.situation.discard_copy is None
        with medium.claimed([act.situation]):
            sent = [request for request in one.server.requests if request.code == RequestCode.HEART_BEAT]
    assert [f"{PREFIX}{act.situation.group}".encode() in request.body for request in sent] == [True]
