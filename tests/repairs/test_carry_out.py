"""The path of an action on a medium that does what it is told at the worst moment."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.model.errors import UnwritableFile
from rmqtx.remoting.protocol.answers import Answer
from rmqtx.remoting.protocol.errors import NoAnswer, Refused, Unreachable
from rmqtx.repairs.acts import wait_for_effect
from rmqtx.repairs.acts.carry_out import carry_out, checked_acts, refuse_redelivered_elsewhere
from rmqtx.repairs.acts.medium import Tail
from rmqtx.repairs.acts.orders import ActOrder, Conduct
from rmqtx.repairs.acts.situation import ActRequest, NamedRecord, SentTo, Situation
from rmqtx.repairs.receipts.act_words import ActKind, ActOutcome
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.receipts import Receipt
from tests.forge.records import Message
from tests.repairs.forge import FakeMedium, around, as_a_broker, final, mark, place, record, row, situation

QUICK = Conduct(prove_ms=5_000)
BRIEF = Conduct(prove_ms=50)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_for_effect, "_PAUSES_SECONDS", (0.001,))


def act(
    medium: FakeMedium, journal: Journal, action: ActKind = ActKind.COMMIT, conduct: Conduct = QUICK, **request: Any
) -> Receipt:
    acts = checked_acts([ActOrder("T1", ActRequest(action, **request), "because")], medium, conduct)
    carry_out(acts, medium, journal, conduct, lambda _: None)
    receipt = acts[0].receipt
    assert receipt is not None
    assert journal.read().receipts[-1].outcome == receipt.outcome
    return receipt


def test_a_commit_is_sent_once_and_proved(journal: Journal) -> None:
    medium = FakeMedium({"T1": row()}, on_act=as_a_broker)
    receipt = act(medium, journal)
    assert medium.acts == [(ActKind.COMMIT, 7)]
    assert (receipt.outcome, receipt.state_before, receipt.state_after) == ("proved", "PENDING", "COMMITTED")
    assert medium.waited_ms == 8_500


def test_what_is_decided_during_the_wait_is_not_decided_again(journal: Journal) -> None:
    def decided(medium: FakeMedium) -> None:
        if medium.looks == 2:  # the producer's rollback, which sat in the op batch
            medium.rows["T1"] |= {"op_marks": [mark(7)], "state": "ROLLED_BACK"}

    medium = FakeMedium({"T1": row()}, on_look=decided, on_act=as_a_broker)
    receipt = act(medium, journal)
    assert medium.acts == []
    assert receipt.outcome == "refused_by_guard"
    assert receipt.notes[0].startswith("already-decided: it is already rolled back")


def test_the_newest_copy_is_named_though_the_check_came_in_between(journal: Journal) -> None:
    def checked(medium: FakeMedium) -> None:
        if medium.looks == 2:
            medium.rows["T1"]["half_copies"] = [place(7, 700), place(9, 900)]

    medium = FakeMedium({"T1": row()}, on_look=checked, on_act=as_a_broker)
    act(medium, journal)
    assert medium.acts == [(ActKind.COMMIT, 9)]


@pytest.mark.parametrize("action", ["commit", "rollback"])
def test_a_copy_put_back_between_look_and_act_is_closed(journal: Journal, action: ActKind) -> None:
    def put_back(medium: FakeMedium, word: str, queue_offset: int) -> None:
        if len(medium.acts) == 1:
            medium.rows["T1"]["half_copies"] = [place(7, 700), place(9, 900)]
        as_a_broker(medium, word, queue_offset)

    medium = FakeMedium({"T1": row()}, on_act=put_back)
    receipt = act(medium, journal, action)
    assert medium.acts == [(action, 7), (ActKind.ROLLBACK, 9)]
    assert receipt.outcome == "proved"
    assert len(receipt.requests) == 2


def test_what_the_check_puts_back_while_we_look_is_closed_at_once(journal: Journal) -> None:
    """The op of our decision waits in the broker's batch, and meanwhile the check comes by."""
    def slow(medium: FakeMedium, word: str, queue_offset: int) -> None:
        if word == "commit":
            medium.rows["T1"] |= {"final_records": [final()], "state": "COMMITTED"}
            medium.fresh = [("T1", record(9, 900)), ("T1", record(7, 700)), ("T2", record(11, 1100))]
        else:
            medium.rows["T1"] |= {"op_marks": [mark(7), mark(9)], "half_copies": [place(7, 700), place(9, 900)]}

    medium = FakeMedium({"T1": row()}, on_act=slow)
    receipt = act(medium, journal, conduct=Conduct(prove_ms=500))
    assert medium.acts == [(ActKind.COMMIT, 7), (ActKind.ROLLBACK, 9)]
    assert receipt.outcome == "proved"


def test_older_copies_that_the_check_has_before_it_are_closed_too(journal: Journal) -> None:
    """A broker that was killed has an older cursor: the copies that it had passed come to the check again."""
    facts = row(half_copies=[place(3, 300), place(5, 500), place(7, 700)])
    medium = FakeMedium({"T1": facts}, on_act=as_a_broker, cursor=5)
    receipt = act(medium, journal)
    assert medium.acts == [(ActKind.COMMIT, 7), (ActKind.ROLLBACK, 5)]
    assert receipt.outcome == "proved"
    assert receipt.notes == ["the check would have reached half copy 5 too: it was closed"]


def test_a_close_names_the_copy_that_has_no_op(journal: Journal) -> None:
    facts = row(
        "COMMITTED", half_copies=[place(3, 300), place(5, 500), place(7, 700)], final_records=[final()],
        op_marks=[mark(7)], flags=["open_after_decision"], advice="close",
    )
    medium = FakeMedium({"T1": facts}, on_act=as_a_broker, cursor=3)
    receipt = act(medium, journal, ActKind.CLOSE)
    assert medium.acts == [(ActKind.ROLLBACK, 5), (ActKind.ROLLBACK, 3)]
    assert receipt.outcome == "proved"


def test_an_op_that_shows_is_not_the_end_while_a_pass_of_the_check_goes_on(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pass had read the ops before ours was written, and puts the copy back although its op can be read."""
    monkeypatch.setattr(wait_for_effect, "_QUIET_SECONDS", 0.3)

    def late(medium: FakeMedium) -> None:
        facts = medium.rows["T1"]
        if facts["op_marks"] and not medium.fresh and len(facts["half_copies"]) == 1 and medium.looks > 3:
            facts["half_copies"] = [place(7, 700), place(9, 900)]
            medium.fresh = [("T1", record(9, 900))]

    medium = FakeMedium({"T1": row()}, on_act=as_a_broker, on_look=late, cursor=7)
    receipt = act(medium, journal, conduct=Conduct(prove_ms=3_000))
    assert medium.acts == [(ActKind.COMMIT, 7), (ActKind.ROLLBACK, 9)]
    assert receipt.outcome == "proved"
    assert receipt.notes == ["the check put back half copy 9 meanwhile: it was closed too"]


@pytest.mark.parametrize("action", ["commit", "rollback"])
@pytest.mark.parametrize(("cursor", "is_exclusive", "is_over"), [(7, False, False), (8, False, True), (7, True, True)])
def test_a_receipt_shows_that_the_check_had_not_passed_the_copy(
    journal: Journal, action: ActKind, cursor: int, is_exclusive: bool, is_over: bool
) -> None:
    """Without this note a user takes the transaction for closed, while the check may put its copy back."""
    medium = FakeMedium({"T1": row()}, on_act=as_a_broker, cursor=cursor, is_exclusive=is_exclusive)
    receipt = act(medium, journal, action, conduct=BRIEF)
    assert receipt.outcome == "proved"
    note = (
        "the check was still running at the end; to see whether it put the copy back again: rmqtx receipts --recheck"
    )
    assert receipt.notes == ([] if is_over else [note])
    assert journal.read().receipts[-1].notes == receipt.notes


def test_nothing_is_closed_before_our_commit_is_seen(journal: Journal) -> None:
    """A rollback on the younger copy of what nobody committed would be the decision itself."""
    def lost(medium: FakeMedium, word: str, queue_offset: int) -> None:
        medium.rows["T1"]["half_copies"] = [place(7, 700), place(9, 900)]

    medium = FakeMedium({"T1": row()}, on_act=lost, answer=NoAnswer("silence"))
    receipt = act(medium, journal, conduct=BRIEF)
    assert medium.acts == [(ActKind.COMMIT, 7)]
    assert receipt.outcome == "unknown"


def test_an_answer_that_is_lost_is_looked_up(journal: Journal) -> None:
    medium = FakeMedium({"T1": row()}, on_act=as_a_broker, answer=NoAnswer("silence"))
    receipt = act(medium, journal)
    assert receipt.outcome == "proved"
    assert "silence" in receipt.notes[0]


def test_what_was_not_sent_is_said_to_be_not_sent(journal: Journal) -> None:
    receipt = act(FakeMedium({"T1": row()}, answer=Unreachable("nobody there")), journal)
    assert receipt.outcome == "not_sent"


def test_the_brokers_no_is_its_own_outcome(journal: Journal) -> None:
    receipt = act(FakeMedium({"T1": row()}, answer=Answer(1, "The producer group wrong")), journal)
    assert receipt.outcome == "refused_by_broker"
    assert receipt.notes == ["code 1: The producer group wrong"]


def test_a_second_delivery_is_seen_while_it_is_watched(journal: Journal) -> None:
    def late(medium: FakeMedium) -> None:
        if medium.looks == 5:
            as_a_broker(medium, ActKind.COMMIT, 7)

    medium = FakeMedium({"T1": row()}, on_act=as_a_broker, on_look=late)
    receipt = act(medium, journal, conduct=Conduct(prove_ms=50, watch_ms=200))
    assert receipt.outcome == "contradicted"
    assert receipt.flags_after == ["duplicate_commit"]


def test_a_commit_after_our_rollback_contradicts_it(journal: Journal) -> None:
    def late(medium: FakeMedium) -> None:
        if medium.looks == 5:
            medium.rows["T1"]["final_records"] = [final()]

    medium = FakeMedium({"T1": row()}, on_act=as_a_broker, on_look=late)
    assert act(medium, journal, ActKind.ROLLBACK, Conduct(prove_ms=50, watch_ms=200)).outcome == "contradicted"


def test_a_rollback_after_our_commit_contradicts_it(journal: Journal) -> None:
    def late(medium: FakeMedium) -> None:
        if medium.looks == 5:
            medium.rows["T1"] |= {"op_marks": [mark(7, 0), mark(7, 1)], "flags": ["conflict"]}

    medium = FakeMedium({"T1": row()}, on_act=as_a_broker, on_look=late)
    receipt = act(medium, journal, conduct=Conduct(prove_ms=50, watch_ms=200))
    assert receipt.outcome == "contradicted"
    assert "its producer rolled it back" in receipt.notes[0]


def test_what_was_accepted_and_is_not_seen_is_unknown(journal: Journal) -> None:
    receipt = act(FakeMedium({"T1": row()}), journal, conduct=BRIEF)
    assert receipt.outcome == "unknown"
    assert receipt.notes[0].startswith("the broker accepted the request")


def test_a_rival_is_refused_without_any_wait(journal: Journal) -> None:
    medium = FakeMedium({"T1": row()}, rivals={"shop": ("rmqtx@elsewhere@1@0",)}, on_act=as_a_broker)
    receipt = act(medium, journal)
    assert (medium.acts, medium.waited_ms, receipt.outcome) == ([], 0, "refused_by_guard")


def test_a_commit_of_what_has_a_discard_copy_only_asks_for_a_half_first(journal: Journal) -> None:
    facts = row("DISCARDED", half_copies=[], discard_copies=[place(0, 999)])

    def resumed(medium: FakeMedium, word: str, queue_offset: int) -> None:
        if word == "resume":
            medium.rows["T1"] |= {"half_copies": [place(20, 2_000)], "state": "PENDING"}
        else:
            as_a_broker(medium, word, queue_offset)

    medium = FakeMedium({"T1": facts}, on_act=resumed)
    receipt = act(medium, journal)
    assert medium.acts == [(ActKind.RESUME, 0), (ActKind.COMMIT, 20)]
    assert receipt.outcome == "proved"
    assert receipt.named_copy is not None
    assert receipt.named_copy.queue_offset == 20


def test_a_resume_is_accepted_not_committed(journal: Journal) -> None:
    facts = row("DISCARDED", discard_copies=[place(0, 999)])
    medium = FakeMedium({"T1": facts}, on_act=as_a_broker)
    assert act(medium, journal, ActKind.RESUME).outcome == "accepted"
    assert medium.acts == [(ActKind.RESUME, 0)]


@pytest.mark.parametrize(("event", "words"), [
    ("asked", "the broker will check it again"), ("stopped", "does not reach it, because it stops at another"),
])
def test_a_resume_tells_whether_the_check_reaches_the_new_copy(journal: Journal, event: str, words: str) -> None:
    """4.5.2 accepts one behind a spoiled copy at which each of its rounds ends."""
    facts = row("DISCARDED", discard_copies=[place(0, 999)])

    def resumed(medium: FakeMedium, _word: str, _queue_offset: int) -> None:
        medium.rows["T1"] |= {"half_copies": [place(7, 700), place(9, 900)], "state": "PENDING", "next_event": event}

    (note,) = act(FakeMedium({"T1": facts}, on_act=resumed), journal, ActKind.RESUME).notes
    assert words in note


def test_an_override_is_in_the_receipt_and_lets_only_its_guard_pass(journal: Journal) -> None:
    medium = FakeMedium({"T1": row()}, around(producers=("p at 10.0.0.1:4",)), on_act=as_a_broker)
    assert act(medium, journal).outcome == "refused_by_guard"
    receipt = act(medium, journal, conduct=Conduct(overrides=("producer-connected",), prove_ms=50))
    assert receipt.outcome == "proved"
    assert receipt.overrides == ["producer-connected"]


def test_a_short_wait_is_refused_unless_overridden(journal: Journal) -> None:
    medium = FakeMedium({"T1": row()}, on_act=as_a_broker)
    receipt = act(medium, journal, conduct=Conduct(settle_ms=10, prove_ms=50))
    assert receipt.notes[0].startswith("decision-in-flight")
    assert medium.acts == []


def test_nothing_is_sent_where_no_receipt_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "receipts.jsonl").mkdir()
    medium = FakeMedium({"T1": row()}, on_act=as_a_broker)
    acts = checked_acts([ActOrder("T1", ActRequest(ActKind.COMMIT))], medium, QUICK)
    with pytest.raises(UnwritableFile):
        carry_out(acts, medium, Journal(tmp_path / "receipts.jsonl"), QUICK, lambda _: None)
    assert medium.acts == []


def test_a_request_without_an_answer_may_arrive_late_so_the_next_run_waits_for_it(journal: Journal) -> None:
    lost = FakeMedium({"T1": row()}, answer=NoAnswer("no answer"))
    assert act(lost, journal, conduct=BRIEF).outcome == "unknown"
    medium = FakeMedium({"T1": row()}, on_act=as_a_broker)
    assert act(medium, journal, conduct=Conduct(prove_ms=5_000, settle_ms=9_000)).outcome == "proved"
    assert 60_000 < medium.waited_ms <= 69_000
    other = FakeMedium({"T1": row(transaction_id="T1", keys="other")}, on_act=as_a_broker)
    assert act(other, Journal(journal.path.with_name("other.jsonl"))).outcome == "proved"
    assert other.waited_ms == 8_500


def test_an_act_that_was_killed_may_have_sent_its_request(journal: Journal) -> None:
    journal.begin(Receipt(ActKind.COMMIT, "T1", "broker-a@h:1"))
    medium = FakeMedium({"T1": row()}, on_act=as_a_broker)
    act(medium, journal)
    assert medium.waited_ms > 60_000
    override = Conduct(prove_ms=5_000, overrides=("decision-in-flight",))
    journal.begin(Receipt(ActKind.COMMIT, "T1", "broker-a@h:1"))
    hasty = FakeMedium({"T1": row()}, on_act=as_a_broker)
    act(hasty, journal, conduct=override)
    assert hasty.waited_ms == 0


def rolled_back(**more: Any) -> dict[str, Any]:
    return row("ROLLED_BACK", op_marks=[mark(7)], advice="none", **more)


def committed_late(medium: FakeMedium, word: str, queue_offset: int) -> None:
    """What a broker writes for a COMMIT after a rollback: a COMMIT record, and a second op mark of the same copy."""
    facts = medium.rows["T1"]
    assert word == "commit"
    facts |= {
        "final_records": [*facts["final_records"], final()], "state": "COMMITTED",
        "op_marks": [*facts["op_marks"], mark(queue_offset, 4)], "flags": ["commit_after_rollback", "conflict"],
    }


def test_what_was_rolled_back_is_redelivered_once(journal: Journal) -> None:
    medium = FakeMedium({"T1": rolled_back()}, on_act=committed_late)
    receipt = act(medium, journal, ActKind.REDELIVER)
    assert medium.acts == [("commit", 7)]
    assert (receipt.outcome, receipt.state_before, receipt.state_after) == ("proved", "ROLLED_BACK", "COMMITTED")
    assert medium.waited_ms == 8_500
    assert act(medium, journal, ActKind.REDELIVER).notes[0].startswith("already-delivered: ")
    assert len(medium.acts) == 1


@pytest.mark.parametrize(("action", "state", "flags"), [
    (ActKind.REDELIVER, "LOST", []), (ActKind.COMMIT, "LOST", []), (ActKind.COMMIT, "PENDING", ["masked"]),
])
def test_what_the_op_message_of_another_one_hid_is_delivered(
    action: ActKind, state: str, flags: list[str], journal: Journal
) -> None:
    """Its op mark is older than the COMMIT record, as after a rollback; no producer rolled it back.

    PENDING where the check has not passed its half copy yet.
    """

    def delivered(medium: FakeMedium, word: str, queue_offset: int) -> None:
        committed_late(medium, word, queue_offset)
        medium.rows["T1"]["flags"] = ["commit_after_rollback"]

    facts = row(state, op_marks=[mark(7)], advice="decide", flags=flags)
    receipt = act(FakeMedium({"T1": facts}, on_act=delivered), journal, action)
    assert (receipt.outcome, receipt.state_before, receipt.notes) == ("proved", state, [])


def test_a_redelivery_is_proved_only_where_the_queue_leads_to_it(journal: Journal) -> None:
    medium = FakeMedium({"T1": rolled_back()}, on_act=committed_late, lacking="slot 0 leads elsewhere")
    receipt = act(medium, journal, ActKind.REDELIVER, BRIEF)
    assert receipt.outcome == "unknown"
    assert "slot 0 leads elsewhere" in receipt.notes


@pytest.mark.parametrize("action", [ActKind.COMMIT, ActKind.ROLLBACK])
def test_an_act_is_proved_only_where_the_check_reads_its_op_message(journal: Journal, action: ActKind) -> None:
    """It was `proved`, and on a broker whose op queue ends with a filler the check asked, or discarded, once more."""
    medium = FakeMedium({"T1": row()}, on_act=as_a_broker, lacking="the op queue ends before it")
    receipt = act(medium, journal, action, BRIEF)
    assert receipt.outcome == "unknown"
    assert "the op queue ends before it" in receipt.notes


def test_a_second_delivery_during_a_redelivery_is_reported(journal: Journal) -> None:
    def twice(medium: FakeMedium, word: str, queue_offset: int) -> None:
        committed_late(medium, word, queue_offset)
        medium.rows["T1"]["final_records"].append(final(1))
        medium.rows["T1"]["flags"].append("duplicate_commit")

    medium = FakeMedium({"T1": rolled_back()}, on_act=twice)
    assert act(medium, journal, ActKind.REDELIVER).outcome == "contradicted"


def test_a_redelivery_never_names_the_discard_copy(journal: Journal) -> None:
    medium = FakeMedium({"T1": row("DISCARDED", half_copies=[], discard_copies=[place(0, 999)])})
    conduct = Conduct(overrides=("not-a-half",), prove_ms=50)
    assert act(medium, journal, ActKind.REDELIVER, conduct).outcome == "refused_by_guard"
    assert medium.acts == []


@pytest.mark.parametrize(
    ("answer", "outcome"), [(Answer(1, "no"), "refused_by_broker"), (NoAnswer("silence"), "unknown")]
)
def test_the_first_unexpected_answer_ends_redeliveries(journal: Journal, answer: Any, outcome: str) -> None:
    medium = FakeMedium({name: rolled_back(transaction_id=name) for name in ("T1", "T2", "T3")}, answer=answer)
    orders = [ActOrder(name, ActRequest(ActKind.REDELIVER), "because") for name in medium.rows]
    acts = checked_acts(orders, medium, BRIEF)
    carry_out(acts, medium, journal, BRIEF, lambda _: None)
    assert medium.acts == [("commit", 7)]
    assert [one.begun().outcome for one in acts] == [outcome, "not_sent", "not_sent"]
    assert acts[1].begun().notes == ["nothing was sent: the redelivery of T1 was not accepted"]


def test_a_copy_that_was_sent_is_proved_without_an_op_message(journal: Journal) -> None:
    def stored(medium: FakeMedium, word: str, queue_offset: int) -> None:
        medium.rows["T1"]["final_records"] = [final()]

    around_copies = around(sent_to=SentTo("broker-b@127.0.0.1:20911", "orders", 3))
    medium = FakeMedium({"T1": row("LOST", advice="none")}, around_copies, on_act=stored, cursor=None)
    receipt = act(medium, journal, ActKind.REDELIVER)
    assert (receipt.outcome, receipt.store) == ("proved", "broker-b@127.0.0.1:20911")
    (refused,) = checked_acts([ActOrder("T1", ActRequest(ActKind.REDELIVER))], medium, QUICK)[0].refusals
    assert "it is already delivered: a copy is in orders queue 0" in refused.why


def test_a_redelivery_names_the_newest_copy_that_consumers_can_read(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of 4.3.0 to 4.5.x puts compressed messages back with a body that consumers cannot read."""
    raw = {7: Message(body=b"as sent").record(700), 9: Message(body=b"spoilt", crc=1).record(900)}
    real = FakeMedium.record
    spoilt = replace(record(9, 900), raw=raw[9])

    def readable(self: FakeMedium, situation: Situation, queue_offset: int) -> NamedRecord | None:
        found = real(self, situation, queue_offset)
        return None if found is None else replace(found, raw=raw[queue_offset])

    monkeypatch.setattr(FakeMedium, "record", readable)
    def once(medium: FakeMedium, word: str, queue_offset: int) -> None:
        (committed_late if word == "commit" else as_a_broker)(medium, word, queue_offset)

    medium = FakeMedium({"T1": rolled_back(half_copies=[place(7, 700), place(9, 900)])}, on_act=once)
    monkeypatch.setattr(
        medium, "situations", lambda rows, settled_ms: [
            situation(one.row(), around(settled_ms=settled_ms), half_copy=spoilt, named=spoilt) for one in rows
        ],
    )
    act(medium, journal, ActKind.REDELIVER, BRIEF)
    assert medium.acts[0] == ("commit", 7)
    raw[7] = raw[9]
    medium.rows["T1"] |= rolled_back(half_copies=[place(7, 700), place(9, 900)])
    assert act(medium, journal, ActKind.REDELIVER, BRIEF).notes[0].startswith("cannot-be-sent: ")


def test_what_the_journal_has_for_another_broker_is_not_redelivered(journal: Journal) -> None:
    medium = FakeMedium({"T1": rolled_back()}, on_act=committed_late)
    orders = [ActOrder("T1", ActRequest(ActKind.REDELIVER), "because")]
    earlier = act(medium, journal, ActKind.REDELIVER)
    medium.rows["T1"] = rolled_back()  # as at a broker that does not have the message
    for store, conduct, refused in (
        (earlier.store, QUICK, []), ("broker-b@127.0.0.1:20911", QUICK, ["already-delivered"]),
        ("broker-b@127.0.0.1:20911", Conduct(overrides=("already-delivered",)), []),
    ):
        acts = checked_acts(orders, medium, conduct)
        receipts = [replace(one, store=store) for one in journal.read().receipts]
        refuse_redelivered_elsewhere(acts, receipts, conduct)
        assert [refusal.guard for refusal in acts[0].refusals] == refused
    (taken,) = checked_acts(orders, medium, QUICK)
    refuse_redelivered_elsewhere([taken], [replace(earlier, outcome=ActOutcome.NOT_SENT, store="b@h:1")], QUICK)
    assert taken.is_allowed


def test_a_broker_that_refuses_the_end_of_its_half_queue_is_not_asked_more_often(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker 4.x refuses pulls from the half topic (17) before its first round: only looks show the effect."""

    class Refusing(FakeMedium):
        def tail(self, transaction_ids: Collection[str]) -> Tail:
            raise Refused("no topic configuration", code=17)

    monkeypatch.setattr(wait_for_effect, "_PAUSES_SECONDS", (0.1,))
    medium = Refusing({"T1": row()})
    act(medium, journal, conduct=Conduct(prove_ms=250))
    assert medium.looks <= 6
