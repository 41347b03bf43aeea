"""When the broker gives up on each transaction: the same as the check played step by step, and why it never does."""

from __future__ import annotations

import dataclasses
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending, show
from rmqtx.verdicts.check.check_rules import Action, CheckSettings, check_rules, check_settings, supposed_version
from rmqtx.verdicts.check.half_queue_check import play_rounds
from rmqtx.verdicts.check.state import HalfCopy
from rmqtx.verdicts.check.window import check_window, next_round_ms
from rmqtx.verdicts.deadlines.discard_rounds import OpenHalves, discards_by_round
from rmqtx.verdicts.deadlines.predicting import predict_from_files
from rmqtx.verdicts.evidence.store_facts import known_until_ms
from rmqtx.verdicts.model.predicted import (
    NEVER,
    NEVER_ASKED,
    NEVER_DISCARDED,
    NO_SLOT,
    PAST,
    SLAVE,
    Event,
    Prediction,
    Why,
    deadline_of,
)
from rmqtx.verdicts.simulation.simulation import Simulated
from rmqtx.verdicts.simulation.simulation_tables import transaction_rows
from tests.brokers import corpus
from tests.conftest import MOMENT, READ_AT_MS
from tests.forge.stores import opened, settings_of
from tests.verdicts.check.test_check_loop import NOW_MS, half, state

#: Stores of each kind of history and of brokers from each line; all of them take a minute.
STORES = (
    "common-4.3.0", "common-4.4.0", "common-4.9.7", "common-5.1.4", "common-5.5.0", "killed-4.9.7", "killed-5.3.3",
    "cursoredited-4.4.0", "cursoredited-5.1.4", "busystop-5.3.3", "poison-4.4.0", "upgraded-4.2.0-4.9.7",
)
HOUR_MS = 3_600_000


def predicted(name: str, conf: dict[str, str], store: Store | None = None) -> tuple[Store, Prediction]:
    store = store or opened(name)
    settings = broker_settings(store, conf=conf, version=str(corpus.recipe(name)["version"]))
    return store, predict_from_files(store, settings, check_cursors(store), store.taken_time_ms)


def test_one_hour_and_three_days_give_users_different_deadlines() -> None:
    """An hour after the end of a store: fileReservedTime has just ended, or ends long after the checks."""
    differing = 0
    for name in STORES:
        store = opened(name)
        found = []
        for hours in (72, 1):
            settings = dataclasses.replace(settings_of(name)(store), file_reserved_time_hours=hours)
            found.append(predict_from_files(store, settings, check_cursors(store), moment_of(store)))
        differing += found[0].times_ms.tolist() != found[1].times_ms.tolist()
        assert not found[0].are_expired.any(), "read too late: the age ends them before their checks do"
    assert differing > len(STORES) // 2


def moment_of(store: Store) -> int:
    """An hour after the last seconds of a store, whenever the test runs: only the older halves are an hour old."""
    return known_until_ms(store) + HOUR_MS - 10_000


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("reserved_hours", [72, 1])
def test_all_at_once_is_what_step_by_step_gives(name: str, reserved_hours: int) -> None:
    store = opened(name)
    now_ms = moment_of(store)
    settings = dataclasses.replace(settings_of(name)(store), file_reserved_time_hours=reserved_hours)
    rules, how = check_rules(supposed_version(settings)[0]), check_settings(settings)
    cursors = check_cursors(store)
    assert cursors.half is not None
    assert cursors.op is not None
    found = predict_from_files(store, settings, cursors, now_ms)
    window = check_window(store, rules, 0, cursors.half.get(0), cursors.op.get(0))
    simulated = Simulated(store.root, "as is", window, rules, how, now_ms + how.interval_ms)
    rows = transaction_rows(simulated).to_pylist()
    names = ("commit_log_offset", "end_time_ms", "checks_to_come_count", "may_be_a_round_later")
    ended = found.chosen(found.times_ms != NEVER)
    assert sorted(
        zip(*(one.tolist() for one in (ended.offsets, ended.times_ms, ended.checks_to_come, ended.may_be_later)),
            strict=True)
    ) == sorted(tuple(row[name] for name in names) for row in rows if row["end_time_ms"] is not None)
    expired = {row["commit_log_offset"] for row in rows if row["end"] == "expired"}
    assert set(found.offsets[found.are_expired].tolist()) == expired
    assert set(found.whys) == {row["commit_log_offset"] for row in rows if row["end_time_ms"] is None}
    assert rows


_HALVES = st.lists(
    st.builds(
        half,
        number=st.just(0),
        age_ms=st.sampled_from([-9_000, 0, 1, 2_999, 3_000, 4_000, 59_999, 60_000, 90_000, 7_200_000]),
        checks=st.none() | st.integers(0, 6),
        immunity=st.none() | st.sampled_from([-1, 0, 3, 40, 3_600]),
    ),
    max_size=9,
)


def _immunity_ms(copy: HalfCopy, settings: CheckSettings) -> int:
    if copy.immunity_seconds is None:
        return -1
    return settings.time_out_ms if copy.immunity_seconds == -1 else copy.immunity_seconds * 1_000


@given(
    halves=_HALVES,
    check_max=st.integers(0, 6),
    interval_ms=st.sampled_from([1_000, 2_000, 30_000]),
    reserved_ms=st.sampled_from([0, 60_000, 7_230_000]),
    version=st.sampled_from([(4, 5, 0), (4, 9, 7), (5, 1, 4), (5, 4, 0)]),
)
def test_any_queue_ends_as_step_by_step(
    halves: list[HalfCopy], check_max: int, interval_ms: int, reserved_ms: int, version: tuple[int, int, int]
) -> None:
    copies = [one._replace(row=number, queue_offset=number) for number, one in enumerate(halves)]
    settings = CheckSettings(3_000, check_max, interval_ms, reserved_ms)
    rules = check_rules(version)
    ends: dict[int, int] = {}
    for played in islice(play_rounds(state(list(copies)), rules, settings, NOW_MS), 400):
        ends |= {
            step.half.row: step.time_ms
            for step in played.steps
            if step.half is not None and step.action in (Action.DISCARDED, Action.EXPIRED)
        }
        if len(ends) == len(copies):
            break
    columns = OpenHalves(
        np.array([one.born_time_ms for one in copies], np.int64),
        np.array([one.store_time_ms for one in copies], np.int64),
        np.array([one.checks_count or 0 for one in copies], np.int64),
        np.array([one.checks_count is None for one in copies], np.bool_),
        np.array([_immunity_ms(one, settings) for one in copies], np.int64),
    )
    found = discards_by_round(columns, rules, settings, NOW_MS)
    for row, time_ms in enumerate(found.time_ms.tolist()):
        # A half that is exactly as old as its time waits in the loop for a moment, and so does all behind it.
        assert abs(time_ms - ends[row]) <= 2_000 if time_ms != NEVER else row not in ends


def test_a_setting_that_never_discards_is_over_in_one_step() -> None:
    born = np.full(50_000, NOW_MS - 60_000, np.int64)
    halves = OpenHalves(born, born, np.zeros(50_000, np.int64), np.ones(50_000, np.bool_), np.full(50_000, -1))
    settings = CheckSettings(6_000, 1 << 30, 30_000, 72 * HOUR_MS)
    found = discards_by_round(halves, check_rules((5, 3, 3)), settings, NOW_MS)
    assert set(found.time_ms.tolist()) == {NOW_MS + 72 * HOUR_MS - 60_000 + 30_000}
    assert found.is_expired.all()


def test_every_question_gives_the_same_deadline() -> None:
    name = "common-5.3.3"
    rows = audit([opened(name)], settings_of(name)).table().to_pylist()
    is_open = [row for row in rows if row["state"] == "PENDING" or row["advice"] == "close"]
    assert [row for row in rows if row["discard_at_ms"] is not None] == is_open
    assert pending([opened(name)], settings_of(name)).table().to_pylist() == is_open
    for row in is_open[:3]:
        assert show([opened(name)], settings_of(name), row["transaction_id"]).table().to_pylist() == [row]


@pytest.mark.parametrize(
    ("name", "conf", "why"),
    [
        ("statetable-slave-3.1.4", {}, NEVER_DISCARDED),
        ("prepared-4.2.0", {}, NEVER_ASKED),
        ("common-5.3.3", {"brokerRole": "SLAVE"}, SLAVE),
    ],
)
def test_why_nothing_is_discarded(name: str, conf: dict[str, str], why: object) -> None:
    _, found = predicted(name, conf)
    assert (len(found.offsets), found.why) == (0, why)


def test_a_timer_of_3_1_asks_about_each_open_slot_and_discards_nothing() -> None:
    _, found = predicted("statetable-3.1.4", {})
    assert len(found.offsets) == 16
    assert set(found.events.tolist()) == {Event.ASKED}
    assert set(found.times_ms.tolist()) == {NEVER}
    assert set(found.whys.values()) == {NEVER_DISCARDED}


def test_a_page_gives_the_reason_of_each_transaction_and_not_of_its_store() -> None:
    """A 3.1 broker checks what has a slot in its state table; what has none waits for nothing that comes."""
    name = "statetable-lossy-3.1.4"
    reading = audit([opened(name)], settings_of(name))
    rows = reading.table().to_pylist()
    found: dict[bool, set[Why | None]] = {True: set(), False: set()}
    for row in rows:
        if row["state"] == "PENDING":
            deadline = deadline_of(row, reading.predicted)
            assert deadline is not None
            assert deadline.discard_at_ms is None
            found["never_asked" in row["flags"]].add(deadline.why)
    assert found == {True: {NO_SLOT}, False: {NEVER_DISCARDED}}
    name = "prepared-4.2.0"
    reading = audit([opened(name)], settings_of(name))
    open_ones = [row for row in reading.table().to_pylist() if row["state"] == "PENDING"]
    whys = {deadline.why for row in open_ones if (deadline := deadline_of(row, reading.predicted)) is not None}
    assert whys == {NEVER_ASKED}


def test_transactions_in_rocksdb_are_dropped_when_their_checks_are_spent() -> None:
    name = "rocksdb-5.5.0"
    store, found = predicted(name, {"transactionCheckMax": "5", "transactionCheckInterval": "2000"})
    first = store.taken_time_ms  # its first pass is at the start
    assert len(found.offsets)
    assert {(time_ms - first) % 2_000 for time_ms in found.times_ms.tolist()} == {0}
    assert found.times_ms.max() <= first + 5 * 2_000


@pytest.mark.parametrize("interval", ["0", "-1"])
def test_a_check_in_rocksdb_without_a_pause_takes_a_moment_for_each_round(interval: str) -> None:
    """Else no round would be later than the one before, and of a negative setting each one earlier."""
    conf = {"transactionCheckMax": "5", "transactionCheckInterval": interval}
    store, found = predicted("rocksdb-5.5.0", conf)
    assert found.times_ms.min() >= store.taken_time_ms
    assert (np.diff(np.unique(found.times_ms)) >= 1).all()
    assert found.times_ms.max() > store.taken_time_ms


def test_nothing_is_predicted_for_a_past_time() -> None:
    name = "common-5.3.3"
    end_ms = known_until_ms(opened(name))
    reading = audit([opened(name)], settings_of(name), at_ms=end_ms - 1)
    rows = reading.table()
    for column in ("discard_at_ms", "next_event", "next_event_at_ms", "answer_effect"):
        assert rows[column].null_count == rows.num_rows
    assert [one.why for one in reading.predicted.values()] == [PAST]


def test_a_time_after_the_end_of_a_store_only_sets_the_clock() -> None:
    """Nothing has happened in the store since: the rows are those of a reading at that moment."""
    name, later_ms = "common-5.3.3", READ_AT_MS + 50 * HOUR_MS
    rows = audit([opened(name)], settings_of(name), at_ms=later_ms).table()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MOMENT, lambda _: later_ms)
        assert rows == audit([opened(name)], settings_of(name)).table()
    assert rows["discard_at_ms"].null_count < rows.num_rows


def test_a_running_broker_makes_its_next_round_an_interval_after_its_last() -> None:
    assert next_round_ms(None, 30_000, 1_000_000) == 1_000_000
    assert next_round_ms(990_000, 30_000, 1_000_000) == 1_020_000
    assert next_round_ms(1_000_500, 30_000, 1_000_000) == 1_030_500  # copies of a round since the store was opened
    assert next_round_ms(969_900, 30_000, 1_000_000) == 1_000_000  # due, and late by a moment
    assert next_round_ms(908_000, 30_000, 1_000_000) == 1_028_000


def test_a_running_check_stands_behind_what_it_has_put_back() -> None:
    name = "cursoredited-5.1.4"  # many copies of each transaction are behind its cursor
    store, stopped = predicted(name, {})
    _, running = predicted(name, {}, dataclasses.replace(store, used_by_process=1))
    assert running.is_running
    assert len(running.offsets) < len(stopped.offsets)
    assert set(running.offsets.tolist()) <= set(stopped.offsets.tolist())
