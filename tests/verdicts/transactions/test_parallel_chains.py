"""Chains that are not one line: halves that a timer kept, cursors older than what was checked, ops that were lost."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import show
from rmqtx.verdicts.audit.timeline import StoreTimelineSource, timeline
from tests.brokers import corpus
from tests.forge.logs import Forge
from tests.forge.records import Message
from tests.forge.stores import opened, settings_of
from tests.representatives import rest_is_slow
from tests.verdicts.truth import audited

FAILOVER = ("failover-4.9.7", "failover-5.3.3")
PARALLEL = (*FAILOVER, "parallel-5.3.3", "timer-5.3.0", "cursorback-5.3.3", "cursorback-4.9.7", "delayed-5.1.4")
ADVISED = (
    *PARALLEL, "opslost-5.3.3", "rollbackslost-5.3.3", "killed-5.3.3", "cursoredited-5.3.3", "cursoredited-4.9.7",
)
ONE_LINE = ("common-4.9.7", "common-5.3.3", "killed-5.3.3", "rollbackslost-5.3.3")


def _by_case(name: str) -> dict[str, dict[str, Any]]:
    rows = {row["transaction_id"]: row for row in audited(name)}
    return {row["case"]: rows[row["transaction_id"]] for row in corpus.expected(name)}


@pytest.mark.parametrize("name", rest_is_slow([*PARALLEL, *ONE_LINE], quick=5))
def test_what_the_producer_was_asked_is_shown_as_asked(name: str) -> None:
    """Each copy that a producer heard of is a check, and each check counts one more than a copy before it."""
    asked: dict[str, set[int]] = {}
    for event in corpus.truth(name):
        if event["event"] == "check":
            asked.setdefault(event["case"], set()).add(event["queue_offset"])
    store = opened(name)
    seen = 0
    for case, row in _by_case(name).items():
        events = timeline(row, [StoreTimelineSource(store, settings_of(name)(store))]).to_pylist()
        checks = {event["queue_offset"] for event in events if event["event"] == "check"}
        not_asked = {event["queue_offset"] for event in events if event["event"] in ("sent", "put back", "resumed")}
        heard = asked.get(case, set()) & (checks | not_asked)
        assert heard <= checks, (case, heard - checks)
        seen += len(heard)
    assert seen


@pytest.mark.parametrize("name", [*PARALLEL, *ONE_LINE])
def test_resumed_is_what_a_resume_made(name: str) -> None:
    truth = corpus.truth(name)
    resumed = {event["case"] for event in truth if event["event"] == "resumed" and event["code"] == 0}
    found = _by_case(name)
    assert {case for case, row in found.items() if "resumed" in row["flags"]} == resumed
    for row in found.values():
        assert not {"resumed", "checked_again_after_restart"} <= set(row["flags"])
        assert not {"delayed_half", "checked_again_after_restart"} <= set(row["flags"])


def _newest(copies: list[dict[str, Any]]) -> int:
    return max(int(copy["commit_log_offset"]) for copy in copies)


@pytest.mark.parametrize("name", ["parallel-5.3.3", *FAILOVER])
def test_cursors_that_lag_are_said_and_are_no_resume(name: str) -> None:
    given_up = [row for row in _by_case(name).values() if row["discard_copies"]]
    rows = [row for row in given_up if _newest(row["half_copies"]) > _newest(row["discard_copies"][:1])]
    assert len(rows) > 3
    for row in rows:
        assert "checked_again_after_restart" in row["flags"]
        assert "it began again at an older cursor" in row["reason"]


def test_the_commit_of_the_first_record_decides_nothing_where_a_timer_kept_its_half() -> None:
    """The COMMIT record names commit-log offset 0, and its op is the timer queue's number 0: that of its own copy."""
    rows = _by_case("timer-5.3.0")
    first = rows["timer_unanswered.0"]
    assert [mark["half_queue_offset"] for mark in first["op_marks"]] == [0]
    for case, row in rows.items():
        if case.startswith("timer_unanswered"):
            assert (row["state"], row["advice"]) == ("DISCARDED", "resume")


@pytest.mark.parametrize(("name", "plan", "state"), [
    ("opslost-5.3.3", "op_batch_lost", "PENDING"),
    ("rollbackslost-5.3.3", "rolled_back_then_discarded", "DISCARDED"),
])
def test_a_rollback_that_was_in_memory_only_is_not_called_undecided(name: str, plan: str, state: str) -> None:
    decided = {
        event["case"] for event in corpus.truth(name)
        if event["event"] in ("decision", "check")
        and "ROLLBACK_MESSAGE" in (event.get("what"), event.get("answer"))
    }
    rows = {case: row for case, row in _by_case(name).items() if case.startswith(plan) and case in decided}
    assert len(rows) >= 10
    for row in rows.values():
        assert row["state"] == state
        assert "may_be_decided" in row["flags"]
        assert "may have been rolled back: ops of the last 60 s (transactionOpBatchInterval) were only" in row["reason"]


def test_ops_of_a_broker_that_stopped_cleanly_or_writes_them_at_once_are_no_doubt() -> None:
    for name in ("common-5.3.3", "killed-4.9.7"):
        assert not [row for row in audited(name) if "may_be_decided" in row["flags"]]


def test_the_window_is_that_of_the_interval() -> None:
    """By default 3 s: what had its last occasion before that is not doubted."""
    store = opened("killed-5.3.3")
    with_conf = {row["transaction_id"] for row in audited("killed-5.3.3") if "may_be_decided" in row["flags"]}
    rows = audit([store], lambda one: broker_settings(one, version="5.3.3")).table().to_pylist()
    by_default = {row["transaction_id"] for row in rows if "may_be_decided" in row["flags"]}
    assert by_default < with_conf
    assert "3 s (transactionOpBatchInterval, by default)" in next(
        row["reason"] for row in rows if row["transaction_id"] in by_default
    )


def test_the_advice_is_what_the_restarted_broker_does() -> None:
    """The second run of each store is its own broker's: what it asked or put back again was open, all else was not."""
    is_open: dict[str, Counter[bool]] = {}
    for name in ADVISED:
        rows = {row["transaction_id"]: row for row in audited(name)}
        for wanted in corpus.expected(name):
            advice = rows[wanted["transaction_id"]]["advice"]
            is_open.setdefault(advice, Counter())[wanted["open"]] += 1
    assert {advice: set(counts) for advice, counts in is_open.items()} == {
        "wait": {True}, "close": {True}, "resume": {False}, "none": {False},
    }
    assert min(sum(counts.values()) for counts in is_open.values()) >= 10


def test_what_was_given_up_on_is_waited_for_where_a_chain_of_it_has_checks_left() -> None:
    rows = {row["transaction_id"]: row for row in audited("parallel-5.3.3")}
    seen = 0
    for wanted in corpus.expected("parallel-5.3.3"):
        row = rows[wanted["transaction_id"]]
        if row["state"] == "DISCARDED":
            assert wanted["open"]
            assert row["advice"] == "wait"
            assert row["reason"].endswith("; the check will still reach a copy of it: the broker checks it again")
            seen += 1
    assert seen


def test_the_marks_of_one_op_message_have_one_order(tmp_path: Path) -> None:
    """Histories 1353267 on 5.1.4 to 5.5.0: an audit of several files had those first whose copies are in the same file.

    Then its row differed from that of `show`, and from that of a live broker.
    """
    forge = Forge(tmp_path / "store", segment_bytes=1024)
    first = forge.half("A")
    forge.append(Message(topic="other", body=b"x" * 700))
    forge.op(first, forge.half("A", checks=1))
    store = open_store(forge.write())
    rows = audit([store], settings_of("common-5.3.3")).table().to_pylist()
    shown = show([store], settings_of("common-5.3.3"), "A").table().to_pylist()
    assert [mark["half_queue_offset"] for mark in rows[0]["op_marks"]] == [0, 1]
    assert shown[0]["op_marks"] == rows[0]["op_marks"]
