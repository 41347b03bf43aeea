"""Causes in clients and settings, against what clients and brokers reported."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.causes.cause import NONE, PROVES
from rmqtx.verdicts.causes.evidence import NEEDED_COLUMNS, Evidence
from rmqtx.verdicts.causes.strengths import CAUSES
from rmqtx.verdicts.model.verdict_words import State
from tests.brokers import corpus
from tests.forge.stores import opened
from tests.verdicts.causes.diagnosed import diagnosed, proven, settings_of, strengths, version_of


def plans(word: str, name: str) -> Counter[str]:
    """The number of transactions of each plan that fit a cause."""
    return Counter(row["plan"] for row in fitting(word, name).to_pylist())


def fitting(word: str, name: str) -> pa.Table:
    found = evidence(name)
    plan_of = {row["transaction_id"]: row["plan"] for row in corpus.expected(name)}
    rows = found.rows.filter(pa.array(CAUSES[word].rule(found) > NONE))
    return rows.append_column("plan", pa.array([plan_of[one] for one in rows["transaction_id"].to_pylist()]))


def evidence(name: str) -> Evidence:
    store = opened(name)
    settings = settings_of(store, name, version_of(name))
    reading = audit([store], lambda _: settings, columns=NEEDED_COLUMNS)
    return Evidence(reading.table(), reading.evidence)


def test_a_clock_that_is_ahead() -> None:
    name = "ahead-5.3.3"
    found = plans("producer-clock-ahead", name)
    assert found == {"clock_ahead_unanswered": 4, "clock_ahead_commit_at_check": 4, "clock_ahead_late_commit": 4}
    late = Counter(row["plan"] for row in proven("decision-names-old-copy", name))
    assert late == {"clock_ahead_late_commit": 4}


def test_immunity_uses_up_the_checks() -> None:
    name = "ahead-5.3.3"
    assert plans("immunity-longer-than-checks", name) == {"immunity_discarded": 4}
    asked = {event["case"] for event in corpus.truth(name) if event["event"] == "check"}
    assert not any(case.startswith("immunity_discarded") for case in asked)
    assert not plans("immunity-longer-than-checks", "common-5.3.3")  # immune for a while, and then asked


def test_halves_that_the_pool_hides() -> None:
    name = "pool-5.3.3"
    assert plans("pool-hides-half", name) == {"hidden_by_pool": 6}
    answers = Counter(
        event["answer"] for event in corpus.truth(name)
        if event["event"] == "check" and event["case"].startswith("hidden_by_pool")
    )
    assert set(answers) == {"COMMIT_MESSAGE"}
    found = strengths(diagnosed(name, "5.3.3")[1])
    assert set(found["no-decision-in-time"]) == {"could_explain"}


@pytest.mark.parametrize("conf", [None, {"transientStorePoolEnable": "false"}])
def test_without_the_pool_nothing_is_hidden(conf: dict[str, str] | None) -> None:
    found = evidence("pool-5.3.3")
    stores = {root: replace(one, conf=conf) for root, one in found.stores.items()}
    assert not CAUSES["pool-hides-half"].rule(Evidence(found.rows, stores)).any()


def test_an_op_cursor_that_jumps() -> None:
    """The client was asked about what it had committed at once, and the message was delivered again."""
    name = "opjumped-4.5.0"
    asked = {event["transaction_id"] for event in corpus.truth(name) if event["event"] == "check"}
    rows = [row for row in corpus.expected(name) if row["plan"] == "op_cursor_jumps" and row["transaction_id"] in asked]
    assert rows
    assert {row["deliveries_count"] for row in rows} == {2}
    found = fitting("op-cursor-jumped", name)
    assert set(found["transaction_id"].to_pylist()) == {row["transaction_id"] for row in rows}


def test_a_client_that_ignores_the_result() -> None:
    """4.3.1 asked its listener before each check, and sent only what it answered to the check."""
    name = "ignored-4.3.1"
    assert strengths(diagnosed(name, "4.3.1")[1])["decided-only-at-checks"] == {"could_explain": 10}
    assert plans("decided-only-at-checks", name) == {"result_ignored": 10}
    at_once = Counter(event["case"] for event in corpus.truth(name) if event["event"] == "decision")
    assert len([case for case in at_once if case.startswith("result_ignored")]) == 10


@pytest.mark.parametrize("word", ["delay-diverts-half", "schedule-drops-half", "timer-diverts-half"])
def test_delays_that_newer_clients_refuse(word: str) -> None:
    """The client 5.5.0 throws for delay levels and timers; 4.6.0 to 5.4.0 clear the level and keep the timer."""
    change = CAUSES[word].change
    assert "the Java client 5.5.0 refuses delays and timers in transactions" in change
    assert "those of 4.6.0 to 5.4.0 clear only the delay level" in change


def test_a_group_without_a_producer() -> None:
    found = evidence("common-5.3.3")
    alive = pa.array([None if number % 3 == 2 else bool(number % 3) for number in range(found.count)])
    live = Evidence(found.rows.append_column("producer_alive", alive), found.stores)
    chosen = CAUSES["producer-not-connected"].rule(live) == PROVES
    is_dead = np.asarray(alive.fill_null(True)) == 0
    was_checked = found.any_of(found.copies, found.copies.checks > 0)
    assert chosen.any()
    assert (chosen == (is_dead & was_checked & found.state(State.PENDING))).all()
    assert not (CAUSES["producer-not-connected"].rule(found) == PROVES).any()


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("delayed-4.3.0", "delay-diverts-half"), ("delayed-5.3.3", "timer-diverts-half"),
        ("delayed-5.5.0", "schedule-drops-half"),
    ],
)
def test_what_becomes_of_a_diverted_half_by_release(name: str, word: str) -> None:
    expected = {
        row["transaction_id"] for row in corpus.expected(name)
        if "delayed_half" in row["flags_at_least"] and (row["state"] == "LOST") == (word == "schedule-drops-half")
    }
    assert {row["transaction_id"] for row in proven(word, name)} == expected
    assert expected
