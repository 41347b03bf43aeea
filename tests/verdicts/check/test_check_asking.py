"""The checks that put nothing back, against what real brokers asked, and their rules at the edges."""

from __future__ import annotations

import importlib.util
from collections import Counter
from itertools import islice
from typing import Any

import pytest

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.verdicts.check.timers_without_copies import (
    CANCELLED,
    KEYS_PER_SCAN,
    SWITCHED_OFF,
    Asking,
    AskingSettings,
    OpenRecord,
    rocksdb_passes,
    timer_runs,
)
from rmqtx.verdicts.simulation.beside_simulated import BesideSimulated
from rmqtx.verdicts.simulation.simulation import SimulatedCheck
from rmqtx.verdicts.simulation.simulation_tables import check_rows, transaction_rows
from rmqtx.verdicts.simulation.simulation_without_queue import BesideTables, beside_tables
from tests.brokers import corpus
from tests.forge.stores import opened

HOUR_MS = 3_600_000
#: Later than every store was written, and than the immunity that its producers asked for.
LATER_MS = 1_800_000_000_000
needs_rocksdb = pytest.mark.skipif(
    importlib.util.find_spec("rocksdict") is None, reason="rocksdict is not installed: pip install 'rmqtx[rocksdb]'"
)
SETTINGS = AskingSettings(time_out_ms=6_000, check_max=2, interval_ms=30_000)


def tables(
    name: str, conf: dict[str, str] | None = None, begin_ms: int = LATER_MS
) -> tuple[BesideTables, list[BesideSimulated]]:
    """A store's tables, and their checks under the configuration of its broker with some keys changed."""
    store = opened(name)
    given = {**corpus.recipe(name)["broker_conf"], **(conf or {})}
    settings = broker_settings(store, conf=given)
    found = beside_tables(store, settings, given)
    return found, found.simulated("as is", settings, given, begin_ms)


def first_round(simulated: list[BesideSimulated]) -> list[dict[str, Any]]:
    """Rows of the first run of each."""
    return [
        row
        for one in simulated
        for batch in check_rows(one, islice(one.rounds(), 1))
        for row in batch.to_pylist()
    ]


# --- real brokers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", corpus.corpus_names(design="state_table"))
def test_a_3_1_asked_for_these_slots_and_took_these_answers(name: str) -> None:
    _, simulated = tables(name)
    rows = first_round(simulated)
    # a producer of the second run answered COMMIT; a slot whose number is another is asked for again
    checks = [row for row in corpus.truth(name) if row["event"] == "after_check"]
    if not corpus.recipe(name).get("upgrade"):
        groups = {check["producer_group"] for check in checks}
        mine = [row for row in rows if row["producer_group"] in groups]
        asked = {(row["commit_log_offset"], row["half_queue_offset"]) for row in mine}
        assert asked == {(check["commit_log_offset"], check["asked_queue_offset"]) for check in checks}
    expected = {row["half_commit_log_offset"]: row for row in corpus.expected(name) if row.get("design")}
    for row in rows:
        truth = expected[row["commit_log_offset"]]
        assert row["transaction_id"] == truth["transaction_id"]
        if truth["asked_after_restart"]:
            assert (row["action"] == "asked") is truth["answered_after_restart"], row
    if name.startswith(("statetable-recovered", "statetable-killed")):
        assert "unanswerable" in {row["action"] for row in rows}
    assert rows or name.startswith(("statetable-slave", "upgraded"))


@pytest.mark.parametrize("name", ["prepared-3.2.6", "prepared-4.2.0", "upgraded-3.1.4-3.2.6", "upgraded-4.2.0-4.9.7"])
def test_from_3_2_on_nobody_is_asked_for_a_prepared_record(name: str) -> None:
    found, simulated = tables(name)
    assert simulated == []
    assert "its prepared records are never checked" in "".join(found.notes)


@needs_rocksdb
@pytest.mark.parametrize("name", [n for n in corpus.corpus_names(design="rocksdb") if n.startswith("rocksdb-")])
def test_a_broker_with_rocksdb_asked_for_these_halves(name: str) -> None:
    times = [row["time_ms"] for row in corpus.truth(name) if row["event"] == "after_check"]
    calm = {"transactionCheckMax": "100000", "transactionTimeOut": "1000"}  # as the second run had it
    _, simulated = tables(name, calm, max(times))
    asked = {row["commit_log_offset"] for row in first_round(simulated) if row["design"] == "rocksdb"}
    halves = {half["commit_log_offset"] for row in corpus.expected(name) for half in row["half_copies"]}
    checks = {row["commit_log_offset"] for row in corpus.truth(name) if row["event"] == "after_check"}
    if name.startswith("rocksdb-both"):  # the check of the half topic asks too, for copies of its own
        assert asked <= checks
        return
    assert checks
    assert asked == checks & halves


@needs_rocksdb
@pytest.mark.parametrize("name", ["rocksdb-5.4.0", "rocksdb-5.5.0"])
def test_as_many_checks_are_to_come_as_the_others_got(name: str) -> None:
    """What the broker dropped it had asked for so often; the checks that it counts of the open ones are those seen."""
    truth = corpus.truth(name)
    seen = Counter(row["commit_log_offset"] for row in truth if row["event"] == "check")
    limit = int(corpus.recipe(name)["broker_conf"]["transactionCheckMax"])
    dropped = [row for row in corpus.expected(name) if row["state"] == "DISCARDED" and row["discard_seen"]]
    most = max(seen[row["half_commit_log_offset"]] for row in dropped)
    assert most == limit + 1
    _, simulated = tables(name)
    rows = rows_of(simulated)
    assert rows
    for row in rows:
        assert row["checks_to_come_count"] + row["checks_count"] == most, row
        assert row["end"] == "dropped"
    open_seen = {row["commit_log_offset"]: seen[row["commit_log_offset"]] for row in rows}
    assert {row["commit_log_offset"]: row["checks_count"] for row in rows} == open_seen


@needs_rocksdb
@pytest.mark.parametrize("name", ["rocksdb-killed-5.4.0", "rocksdb-killed-5.5.0"])
def test_after_a_kill_they_begin_anew(name: str) -> None:
    found, simulated = tables(name)
    assert {row["checks_count"] for row in rows_of(simulated)} >= {0}
    assert "did not stop cleanly" in "".join(found.notes)


def rows_of(simulated: list[BesideSimulated]) -> list[dict[str, Any]]:
    """What becomes of each open record."""
    checks: list[SimulatedCheck] = [*simulated]
    return [row for one in checks for row in transaction_rows(one).to_pylist()]


# --- rules ------------------------------------------------------------------------------------------------------------


def slot(number: int, own: int | None = None, row: int = 0) -> OpenRecord:
    return OpenRecord(row, number * 100, number, number if own is None else own)


def key(place: int, checks: int = 0, born_ms: int = 0, immunity: int | None = None, row: int = 0) -> OpenRecord:
    return OpenRecord(row, place, place, place, born_ms, checks, immunity)


def test_a_timer_asks_without_a_limit_at_a_fixed_rate() -> None:
    runs = list(islice(timer_runs((slot(1), slot(2, own=7), slot(3, row=-1)), 0, 60_000, is_full=True), 500))
    assert [run.begin_ms for run in runs[:3]] == [0, 60_000, 120_000]
    assert {tuple(step.action for step in run.steps) for run in runs} == {
        (Asking.ASKED, Asking.UNANSWERABLE, Asking.UNREADABLE)
    }


def test_a_timer_cancels_itself_once_its_file_is_full_and_decided() -> None:
    assert [run.stop for run in timer_runs((), 0, 60_000, is_full=True)] == [CANCELLED]
    assert len(list(islice(timer_runs((), 0, 60_000, is_full=False), 9))) == 9


def test_a_timer_that_is_switched_off_runs_and_does_nothing() -> None:
    runs = list(islice(timer_runs((slot(1),), 0, 60_000, is_full=True, is_enabled=False), 2))
    assert [(run.steps, run.stop) for run in runs] == [((), SWITCHED_OFF)] * 2


def test_rocksdb_asks_once_more_than_the_limit() -> None:
    passes = list(islice(rocksdb_passes((key(5),), SETTINGS, HOUR_MS), 4))
    assert [[str(step.action) for step in one.steps] for one in passes] == [
        ["asked"], ["asked"], ["asked", "dropped"], [],
    ]
    assert [step.record.checks_count for one in passes for step in one.steps] == [1, 2, 3, 3]


def test_rocksdb_drops_unasked_what_has_too_many_checks_or_no_record() -> None:
    first = next(rocksdb_passes((key(5, checks=3), key(6, row=-1)), SETTINGS, HOUR_MS))
    assert [str(step.action) for step in first.steps] == ["dropped", "unreadable"]


@pytest.mark.parametrize(
    ("born_ms", "immunity", "is_asked"),
    [
        (HOUR_MS, None, False), (HOUR_MS - 5_999, None, False), (HOUR_MS - 6_000, None, True),
        (HOUR_MS - 6_000, 7, False), (HOUR_MS - 7_000, 7, True), (HOUR_MS, 0, True), (HOUR_MS, -1, True),
        (HOUR_MS + 1, 0, False),
    ],
)
def test_rocksdb_leaves_alone_what_is_too_young(born_ms: int, immunity: int | None, is_asked: bool) -> None:
    first = next(rocksdb_passes((key(5, born_ms=born_ms, immunity=immunity),), SETTINGS, HOUR_MS))
    assert bool(first.steps) is is_asked
    assert first.immune_count + first.young_count == (not is_asked)


def test_the_key_behind_a_scan_whose_last_one_was_dropped_is_left_out_once() -> None:
    last = KEYS_PER_SCAN - 1
    records = tuple(key(place, checks=2 if place == last else 0) for place in range(KEYS_PER_SCAN + 2))
    first, second = islice(rocksdb_passes(records, SETTINGS, HOUR_MS), 2)
    asked = {step.record.commit_log_offset for step in first.steps if step.action == Asking.ASKED}
    assert set(range(KEYS_PER_SCAN + 2)) - asked == {KEYS_PER_SCAN}
    assert len(second.steps) == KEYS_PER_SCAN + 1
