"""Each guard: what makes it refuse, and that it lets everything else pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rmqtx.readers.log.record_layout import COMPRESSED
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC
from rmqtx.remoting.protocol.answers import PROXY_PRODUCER
from rmqtx.repairs.acts.guards import ABSOLUTE_GUARDS, GUARD_NAMES, GUARDS, refusals
from rmqtx.repairs.acts.situation import ActRequest, ReadAgain, SentTo, Situation
from rmqtx.repairs.holds.guards import ABSOLUTE_HOLD_GUARDS, HOLD_GUARD_NAMES, SettingsSituation, hold_refusals
from rmqtx.repairs.holds.standing_holds import Hold
from rmqtx.repairs.receipts.act_words import PLANNED, ActKind
from rmqtx.repairs.receipts.receipts import SettingChange
from tests.repairs.forge import NOW_MS, around, final, mark, place, record, row, situation, transaction

ROLLED_BACK = row("ROLLED_BACK", op_marks=[mark(7)], advice="none")
DISCARDED = row("DISCARDED", advice="resume", discard_copies=[place(0, 999)])
HALF_IN_ROCKSDB = replace(record(), topic=ROCKSDB_HALF_TOPIC)
#: A half in RocksDB as a live broker shows it once its checks may be over.
UNREAD = "rocksdb_table_unread"
IN_ROCKSDB = situation(
    row("UNDECIDABLE", reason_code=UNREAD), half_copy=HALF_IN_ROCKSDB
)
#: The op message of another half of it.
OTHER_HALF = {**mark(0), "half_queue_offset": None}
PREPARED = replace(record(0, 700), topic="orders")
AS_HALF = SentTo("broker-b@127.0.0.1:20911", "orders", 3, as_half=True)
TO = SentTo("broker-b@127.0.0.1:20911", "orders", 3)
SPOILT = replace(record(), raw=b"\xff" * 100)
CASES: dict[str, list[tuple[Situation, ActRequest]]] = {
    "slave": [(situation(surroundings=around(is_slave=True)), ActRequest(ActKind.COMMIT))],
    "rocksdb-transactions": [
        (IN_ROCKSDB, ActRequest(ActKind.RESUME)),
        *(
            (situation(surroundings=around(version=(5, 3, 3)), half_copy=HALF_IN_ROCKSDB, named=HALF_IN_ROCKSDB),
             ActRequest(action))
            for action in PLANNED if action not in (ActKind.RESUME, ActKind.CLOSE)
        ),
    ],
    "prepared-record": [
        (situation(surroundings=around(version=version), half_copy=PREPARED), ActRequest(action))
        for version, actions in (
            ((4, 3, 0), PLANNED), ((5, 3, 3), PLANNED), ((4, 2, 0), PLANNED[3:5]), ((3, 1, 4), PLANNED[3:]),
        )
        for action in actions
    ],
    "wrong-group": [
        (situation(), ActRequest(ActKind.COMMIT, group="other")),
        (situation(row(producer_group=None)), ActRequest(ActKind.COMMIT)),
    ],
    "evidence-incomplete": [
        (situation(row("UNDECIDABLE")), ActRequest(ActKind.COMMIT)),
        (situation(surroundings=around(producers=None, producers_unknown="code 16")), ActRequest(ActKind.COMMIT)),
        (situation(surroundings=around(unread=("entries-unread",))), ActRequest(ActKind.ROLLBACK)),
    ],
    "already-delivered": [
        (situation(row("COMMITTED", final_records=[final()], op_marks=[mark(7)])), ActRequest(action))
        for action in (ActKind.COMMIT, ActKind.ROLLBACK, ActKind.DISCARD, ActKind.RESUME, ActKind.REDELIVER)
    ],
    "already-decided": [
        (situation(row("ROLLED_BACK", op_marks=[mark(7)])), ActRequest(action))
        for action in (ActKind.COMMIT, ActKind.ROLLBACK, ActKind.DISCARD, ActKind.RESUME)
    ] + [
        (situation(ROLLED_BACK, around(sent_to=AS_HALF)), ActRequest(ActKind.REDELIVER)),
    ] + [
        (replace(IN_ROCKSDB, transaction=transaction(state, reason_code=UNREAD, op_marks=[OTHER_HALF])),
         ActRequest(ActKind.COMMIT))
        for state in ("PENDING", "UNDECIDABLE")
    ],
    "op-in-memory": [
        (situation(row(flags=["may_be_decided"])), ActRequest(ActKind.COMMIT)),
        (situation({**DISCARDED, "flags": ["may_be_decided"]}), ActRequest(ActKind.COMMIT)),
    ],
    "not-open": [
        (situation(), ActRequest(ActKind.CLOSE)),
        (IN_ROCKSDB, ActRequest(ActKind.CLOSE)),
        (situation(row("COMMITTED", final_records=[final()], advice="none")), ActRequest(ActKind.CLOSE)),
        (situation(DISCARDED), ActRequest(ActKind.DISCARD)),
    ],
    "still-open": [
        (situation(), ActRequest(ActKind.RESUME)),
        (situation({**DISCARDED, "advice": "wait", "flags": ["open_after_decision"]}), ActRequest(ActKind.RESUME)),
        (situation(), ActRequest(ActKind.REDELIVER)),
        (IN_ROCKSDB, ActRequest(ActKind.REDELIVER)),
        (situation(surroundings=around(sent_to=TO)), ActRequest(ActKind.REDELIVER)),
        (situation(surroundings=around(sent_to=AS_HALF, is_there=True)), ActRequest(ActKind.REDELIVER)),
        *(
            (situation(row(state, op_marks=[mark(3)], flags=["open_after_decision"])), ActRequest(ActKind.REDELIVER))
            for state in ("ROLLED_BACK", "DISCARDED")
        ),
    ],
    "traced-rollback": [
        (situation(ROLLED_BACK, around(traced_rollback="trace")), ActRequest(ActKind.REDELIVER)),
        (situation(ROLLED_BACK, around(traces_unread=("b: no permission",))), ActRequest(ActKind.REDELIVER)),
    ],
    "delayed-half": [
        (situation(row("PENDING", flags=["delayed_half"])), ActRequest(ActKind.COMMIT)),
        (situation({**ROLLED_BACK, "flags": ["delayed_half"]}), ActRequest(ActKind.REDELIVER)),
    ],
    "cannot-be-sent": [
        (situation(ROLLED_BACK, around(sent_to=TO, unsendable="it cannot be read"), half_copy=None, named=None),
         ActRequest(ActKind.REDELIVER)),
        *(
            (situation(facts, half_copy=SPOILT, named=SPOILT), ActRequest(action))
            for facts, action in ((row(), ActKind.COMMIT), (ROLLED_BACK, ActKind.REDELIVER))
        ),
    ],
    "decidable-there": [
        (situation(ROLLED_BACK, around(sent_to=TO, is_decidable_there=True)), ActRequest(ActKind.REDELIVER)),
    ],
    "not-a-half": [
        (situation({**DISCARDED, "half_copies": []}), ActRequest(action))
        for action in (ActKind.ROLLBACK, ActKind.REDELIVER)
    ],
    "number-taken": [
        (situation(row(state, flags=["number_taken"], advice="close" if action == "close" else "resume")),
         ActRequest(action))
        for state, action in (
            ("LOST", ActKind.COMMIT), ("LOST", ActKind.ROLLBACK), ("PENDING", ActKind.DISCARD),
            ("ROLLED_BACK", ActKind.CLOSE),
        )
    ],
    "number-shared": [
        (situation(row(flags=["number_shared"])), ActRequest(action)) for action in (ActKind.ROLLBACK, ActKind.DISCARD)
    ],
    "cannot-be-written": [
        (situation(surroundings=around(unwritable={"commit": "it is put off"})), ActRequest(ActKind.COMMIT)),
        (situation(ROLLED_BACK, around(is_stopped=True)), ActRequest(ActKind.REDELIVER)),
        *(
            (situation(surroundings=around(**more, read_again=ReadAgain(7, 9, "T2"))), ActRequest(action))
            for more in ({}, {"unread_op": (5, 3)}, {"hides_new": frozenset({OP_TOPIC})})
            for action in (ActKind.COMMIT, ActKind.ROLLBACK, ActKind.DISCARD)
        ),
        (situation(DISCARDED, around(hides_new=frozenset({HALF_TOPIC}))), ActRequest(ActKind.RESUME)),
    ],
    "younger-copy": [
        (situation(row(half_copies=[place(7, 700), place(9, 900)])), ActRequest(ActKind.COMMIT, queue_offset=7)),
    ],
    "immunity": [(situation(row(flags=["immune"])), ActRequest(ActKind.ROLLBACK))],
    "producer-connected": [
        (situation(surroundings=around(producers=("p at 10.0.0.1:4",))), ActRequest(ActKind.COMMIT)),
        (situation(ROLLED_BACK, around(producers=("p at 10.0.0.1:4",))), ActRequest(ActKind.REDELIVER)),
    ],
    "another-rmqtx": [
        (situation(surroundings=around(rivals=("rmqtx@host@1@0",))), ActRequest(ActKind.COMMIT)),
        (situation(surroundings=around(rivals_unknown="code 16")), ActRequest(ActKind.COMMIT)),
    ],
    "decision-in-flight": [(situation(surroundings=around(settled_ms=1_000)), ActRequest(ActKind.COMMIT))],
    "resume-unanswered": [(situation(DISCARDED, around(version=(4, 5, 1))), ActRequest(ActKind.RESUME))],
    "resume-compressed": [
        (
            situation(
                DISCARDED, around(version=(4, 5, 2), is_stopped=True), discard_copy=record(0, 999, COMPRESSED)
            ),
            ActRequest(ActKind.RESUME),
        ),
        (
            situation(DISCARDED, around(version=(5, 1, 4)), discard_copy=record(0, 999, COMPRESSED)),
            ActRequest(ActKind.RESUME),
        ),
    ],
    "resume-too-old": [
        (situation({**DISCARDED, "born_time_ms": NOW_MS - 73 * 3_600_000}), ActRequest(ActKind.RESUME)),
    ],
}


def test_every_guard_has_a_case() -> None:
    assert set(CASES) == set(GUARD_NAMES)
    assert len(GUARD_NAMES) == len(set(GUARD_NAMES))


@pytest.mark.parametrize(
    ("name", "case", "asked"), [(name, case, asked) for name, cases in CASES.items() for case, asked in cases]
)
def test_it_refuses_and_is_overridden_by_its_own_name_alone(name: str, case: Situation, asked: ActRequest) -> None:
    found = {refusal.guard: refusal for refusal in refusals(case, asked)}
    assert name in found
    assert found[name].why
    assert found[name].advice
    assert (name in {refusal.guard for refusal in refusals(case, asked, [name])}) == (name in ABSOLUTE_GUARDS)
    others = [guard for guard in GUARD_NAMES if guard != name]
    assert name in {refusal.guard for refusal in refusals(case, asked, others)}


OPEN_AGAIN = row("COMMITTED", final_records=[final()], advice="close")
ALLOWED: list[tuple[Situation, str]] = [
    (situation(), ActKind.COMMIT),
    (situation(), ActKind.ROLLBACK),
    (situation(), ActKind.DISCARD),
    (situation(OPEN_AGAIN), ActKind.CLOSE),
    # The check reads no copy of it, so an op message that it does not read either changes nothing.
    *(
        (situation(surroundings=around(**more)), ActKind.COMMIT)
        for more in ({"unread_op": (5, 3)}, {"hides_new": frozenset({OP_TOPIC})})
    ),
    (situation(DISCARDED, around(read_again=ReadAgain(7, 9, "T2"))), ActKind.RESUME),
    # Only a commit delivers the body; on files another copy's body is taken.
    (situation(half_copy=SPOILT, named=SPOILT), ActKind.ROLLBACK),
    (situation(surroundings=around(is_stopped=True), half_copy=SPOILT, named=SPOILT), ActKind.COMMIT),
    (situation(row("ROLLED_BACK", op_marks=[mark(3)], advice="close")), "close"),
    (situation(DISCARDED), ActKind.RESUME),
    (situation(DISCARDED), ActKind.COMMIT),
    (situation(row("LOST")), ActKind.COMMIT),
    (situation(row("LOST")), ActKind.RESUME),
    *((situation(facts), ActKind.REDELIVER) for facts in (ROLLED_BACK, DISCARDED, row("LOST"))),
    *((situation(facts, around(version=(4, 4, 0))), ActKind.REDELIVER) for facts in (ROLLED_BACK, row("LOST"))),
    (situation(ROLLED_BACK, around(version=(4, 2, 0)), half_copy=PREPARED, named=PREPARED), ActKind.REDELIVER),
    *(
        (situation(facts, around(sent_to=AS_HALF, producers=("p",), traced_rollback="trace")), ActKind.REDELIVER)
        for facts in (row(), row(flags=["may_be_decided", "immune"]), DISCARDED, row("LOST"))
    ),
    *(
        (situation(facts, around(sent_to=TO), half_copy=source, named=source), ActKind.REDELIVER)
        for source in (PREPARED, HALF_IN_ROCKSDB, record())
        for facts in (ROLLED_BACK, {**ROLLED_BACK, "flags": ["number_taken"]}, row("LOST"))
    ),
    *(
        (situation(ROLLED_BACK, around(version=version), half_copy=HALF_IN_ROCKSDB, named=HALF_IN_ROCKSDB),
         ActKind.REDELIVER)
        for version in ((5, 4, 0), (5, 5, 0))
    ),
    (situation(row("LOST", flags=["number_taken", "number_shared"])), ActKind.RESUME),
    (situation(row(flags=["number_shared"])), ActKind.COMMIT),
    (situation(row(half_copies=[place(7, 700), place(9, 900)], flags=["number_shared"])), ActKind.ROLLBACK),
    (situation({**DISCARDED, "half_copies": []}), ActKind.COMMIT),
    (situation(row(flags=["masked"])), ActKind.RESUME),
    (situation(row(flags=["may_be_decided"])), ActKind.ROLLBACK),
    (situation({**DISCARDED, "flags": ["may_be_decided"]}), ActKind.RESUME),
    (situation({**DISCARDED, "flags": ["may_be_decided"]}), ActKind.REDELIVER),
    (situation(DISCARDED, around(version=(4, 4, 0))), ActKind.COMMIT),
    *((IN_ROCKSDB, action) for action in (ActKind.COMMIT, ActKind.ROLLBACK, ActKind.DISCARD)),
    (
        replace(IN_ROCKSDB, transaction=transaction("UNDECIDABLE", reason_code=UNREAD, op_marks=[OTHER_HALF])),
        ActKind.ROLLBACK,
    ),
    (
        replace(IN_ROCKSDB, transaction=transaction(
            "DISCARDED", reason_code="rocksdb_dropped", born_time_ms=NOW_MS - 73 * 3_600_000
        )),
        ActKind.RESUME,
    ),
    *(
        (situation(surroundings=surroundings, half_copy=PREPARED, named=PREPARED), action)
        for surroundings in (
            around(version=(3, 1, 4)), around(version=(4, 2, 0)),
            around(version=(4, 9, 7), is_stopped=True, is_of_files=True),
        )
        for action in (ActKind.COMMIT, ActKind.ROLLBACK, ActKind.DISCARD)
    ),
]


@pytest.mark.parametrize(("case", "action"), ALLOWED)
def test_it_lets_pass_what_is_safe(case: Situation, action: ActKind) -> None:
    assert list(refusals(case, ActRequest(action))) == []


@pytest.mark.parametrize(
    ("producers", "words"),
    [
        (("p at 10.0.0.1:4",), "a producer of group"),
        ((f"{PROXY_PRODUCER} at 10.0.0.1:4",), "only a proxy is registered for group"),
        ((f"{PROXY_PRODUCER} at 10.0.0.1:4", "p at 10.0.0.1:4"), "a producer of group"),
    ],
)
def test_a_proxy_is_refused_as_what_it_is(producers: tuple[str, ...], words: str) -> None:
    asked = ActRequest(ActKind.COMMIT)
    (refusal,) = refusals(situation(surroundings=around(producers=producers)), asked)
    assert refusal.guard == "producer-connected"
    assert refusal.why.startswith(words)
    shared = row(transaction_id="01" + "0A" * 16, topic="orders", producer_group="orders")
    (refusal,) = refusals(situation(shared, surroundings=around(producers=producers)), asked)
    assert ("all its gRPC clients share it" in refusal.why) == words.startswith("only")


def test_closing_needs_no_silence() -> None:
    """It delivers nothing, so neither a producer nor a decision under way makes it wrong."""
    noisy = around(producers=("p at 10.0.0.1:4",), settled_ms=0)
    assert list(refusals(situation(OPEN_AGAIN, noisy), ActRequest(ActKind.CLOSE))) == []


def test_the_advice_names_what_is_left_to_do() -> None:
    def advice(facts: dict[str, Any], action: ActKind = ActKind.COMMIT) -> str:
        return next(refusals(situation(facts), ActRequest(action))).advice

    assert "rmqtx close T1" in advice(OPEN_AGAIN)
    assert "wait for the check" in advice(row(), ActKind.RESUME)
    assert "wait" not in advice(row(flags=["never_asked"], advice="decide"), ActKind.RESUME)  # its check is stopped
    assert advice(row("COMMITTED", final_records=[final()])) == "nothing to do"
    for action in (ActKind.ROLLBACK, ActKind.DISCARD):
        assert "inform the owners of its consumers" in advice(row("COMMITTED", final_records=[final()]), action)


def test_actions_and_guards_are_explained() -> None:
    assert set(PLANNED) == {
        ActKind.COMMIT, ActKind.ROLLBACK, ActKind.DISCARD, ActKind.RESUME, ActKind.CLOSE, ActKind.REDELIVER,
    }
    for guard in GUARDS:
        assert guard.prevents
        assert guard.risk


def test_a_prepared_record_is_never_too_old_to_be_checked() -> None:
    """Brokers before 4.3 have no rule about the age, so a longer fileReservedTime changes nothing."""
    case = situation({**DISCARDED, "born_time_ms": NOW_MS - 73 * 3_600_000}, half_copy=PREPARED)
    assert "resume-too-old" not in {refusal.guard for refusal in refusals(case, ActRequest(ActKind.RESUME))}


# -- holds ------------------------------------------------------------------------------------------------------------

HELD = Hold(
    "a@h:1", (SettingChange("transactionCheckMax", "15", "1000000"), SettingChange("fileReservedTime", "72", "120")),
    0, 1, "me@here", "why", ("R",), is_sure=True,
)
HELD_CONF = {"transactionCheckMax": "1000000", "fileReservedTime": "120"}
LIVE = SettingsSituation(ActKind.HOLD, "a@h:1", {**HELD_CONF, "transactionCheckMax": "15"}, (5, 3, 3))
RELEASED = replace(LIVE, action=ActKind.RELEASE, conf=HELD_CONF, hold=HELD)
DRAINED_CONF = {"rejectTransactionMessage": "true", "transactionOpBatchInterval": "100"}
DRAINED = Hold(
    "a@h:1",
    (
        SettingChange("rejectTransactionMessage", "false", "true"),
        SettingChange("transactionOpBatchInterval", "3000", "100"),
    ),
    0, None, "me@here", None, ("R",), is_sure=True,
)
TO_DRAIN = replace(LIVE, action=ActKind.DRAIN, conf={"rejectTransactionMessage": "false"})
HOLD_CASES: dict[str, list[SettingsSituation]] = {
    "without-check": [
        replace(LIVE, version=(4, 2, 0)), replace(LIVE, is_slave=True), replace(LIVE, conf={"fileReservedTime": "72"}),
        replace(TO_DRAIN, version=(4, 2, 0)), replace(TO_DRAIN, is_slave=True), replace(TO_DRAIN, conf={}),
        replace(TO_DRAIN, is_slave=True, has_rocksdb=True),
    ],
    "not-held": [
        replace(RELEASED, hold=None), replace(RELEASED, hold=None, conf={"transactionCheckMax": "15"}),
        replace(RELEASED, hold=None, same_name=("a@other:1",)), replace(RELEASED, hold=None, conf=DRAINED_CONF),
    ],
    "changed-since": [
        replace(RELEASED, conf={**HELD_CONF, "transactionCheckMax": "30"}),
        replace(RELEASED, conf={**HELD_CONF, "fileReservedTime": "96"}),
        replace(RELEASED, conf={"transactionCheckMax": "1000000"}),
        replace(RELEASED, hold=DRAINED, conf={**DRAINED_CONF, "transactionOpBatchInterval": "1000"}),
    ],
    "discards-pending": [
        replace(RELEASED, at_once_ids=("A",)), replace(RELEASED, at_once_ids=tuple("ABCDEFG")),
        replace(RELEASED, at_once_unknown="the table was not read"),
    ],
}
HOLDS_ALLOWED = [
    LIVE, replace(LIVE, hold=HELD), replace(LIVE, is_slave=True, has_rocksdb=True), replace(LIVE, version=(4, 3, 0)),
    TO_DRAIN, replace(TO_DRAIN, version=(4, 3, 0)), replace(TO_DRAIN, conf=DRAINED_CONF, hold=DRAINED),
    replace(RELEASED, hold=DRAINED, conf=DRAINED_CONF),
    replace(RELEASED, hold=DRAINED, conf={**DRAINED_CONF, "rejectTransactionMessage": "false"}),
    RELEASED, replace(RELEASED, conf={"transactionCheckMax": "15", "fileReservedTime": "72"}),
    replace(RELEASED, conf={"transactionCheckMax": "15", "fileReservedTime": "120"}),
]


def test_every_guard_of_holds_has_a_case_and_a_name_of_its_own() -> None:
    assert set(HOLD_CASES) == set(HOLD_GUARD_NAMES)
    assert not set(HOLD_GUARD_NAMES) & set(GUARD_NAMES)


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, cases in HOLD_CASES.items() for case in cases])
def test_a_guard_of_holds_refuses_and_is_overridden_by_its_own_name_alone(name: str, case: SettingsSituation) -> None:
    (found,) = hold_refusals(case)
    assert (found.guard, bool(found.why), bool(found.advice)) == (name, True, True)
    assert [one.guard for one in hold_refusals(case, [name])] == ([name] if name in ABSOLUTE_HOLD_GUARDS else [])
    assert [one.guard for one in hold_refusals(case, set(HOLD_GUARD_NAMES) - {name})] == [name]


@pytest.mark.parametrize("case", HOLDS_ALLOWED)
def test_guards_of_holds_let_everything_else_pass(case: SettingsSituation) -> None:
    assert list(hold_refusals(case)) == []


def test_a_refusal_names_what_is_there_and_what_was_expected() -> None:
    (changed,) = hold_refusals(HOLD_CASES["changed-since"][0])
    assert "transactionCheckMax is 30, expected 1000000 (the hold) or 15 (before)" in changed.why
    (discards,) = hold_refusals(HOLD_CASES["discards-pending"][1])
    assert "7 open half messages: A, B, C, D, E and 2 more" in discards.why
