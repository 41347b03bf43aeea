"""Deadlines calculated for all half messages at once are those of the check played step by step, also where half
messages have properties that few producers set: an immunity time, checks before, a long list of properties.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.model.releases import Version
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.store import Store, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.check.check_rules import CheckSettings, check_rules, check_settings, supposed_version
from rmqtx.verdicts.check.check_stops import check_stops
from rmqtx.verdicts.check.stored_records import ABSENT, StoredHalves
from rmqtx.verdicts.check.window import CheckWindow, CheckWindows, check_window
from rmqtx.verdicts.deadlines import predicting
from rmqtx.verdicts.deadlines.discard_rounds import OpenHalves, discards_by_round
from rmqtx.verdicts.deadlines.predicting import from_real_cursor, played, predict_from_files, predict_window, standing
from rmqtx.verdicts.evidence.store_facts import known_until_ms
from rmqtx.verdicts.model.predicted import (
    ASSUMED_SETTINGS,
    ASSUMED_VERSION,
    COPY_ARRAYS,
    NEVER,
    OUT_OF_REACH,
    ROUNDS_MAX,
    TOO_MANY,
    UNREAD_LOG,
    Event,
    Prediction,
    deadline_of,
)
from rmqtx.verdicts.simulation.simulation import Simulated
from rmqtx.verdicts.simulation.simulation_tables import transaction_rows
from tests.brokers import corpus
from tests.forge.stores import opened, settings_of, unpacked

NAME = "common-5.3.3"
MINUTE_MS = 60_000


def window_with(
    columns: dict[str, int | list[int]], *, of_whole_queue: bool = False
) -> tuple[Store, BrokerSettings, CheckWindow]:
    """The window of a store whose half messages all have these values, or those of a list in turn.

    `of_whole_queue`: as if the check had not begun: with half messages that ops end.
    """
    store = opened(NAME)
    settings = dataclasses.replace(settings_of(NAME)(store), transaction_time_out_ms=2 * MINUTE_MS)
    cursors = check_cursors(store)
    assert cursors.half is not None
    assert cursors.op is not None
    rules = check_rules(supposed_version(settings)[0])
    half, op = (None, None) if of_whole_queue else (cursors.half.get(0), cursors.op.get(0))
    window = check_window(store, rules, 0, half, op)
    halves = window.state.halves
    assert isinstance(halves, StoredHalves)
    numbers = {**halves.numbers, **{one: np.resize(value, len(halves.numbers[one])) for one, value in columns.items()}}
    halves = dataclasses.replace(halves, numbers=numbers)
    return store, settings, dataclasses.replace(window, state=dataclasses.replace(window.state, halves=halves))


def both_ways(
    columns: dict[str, int | list[int]], *, without_group: bool = False, version: Version | None = None,
    **changes: int,
) -> tuple[Prediction, Prediction]:
    """What is predicted for all at once, and step by step; the broker starts when all is just written.

    `without_group`: every second half message names no producer group. `changes`: of settings.
    """
    store, settings, window = window_with(columns)
    settings = dataclasses.replace(settings, **changes)  # type: ignore[arg-type]
    if without_group:
        groups = [one if row % 2 else None for row, one in enumerate(window.words["producer_group"].to_pylist())]
        place = window.words.schema.get_field_index("producer_group")
        words = window.words.set_column(place, window.words.schema.field(place), pa.array(groups, pa.string()))
        window = dataclasses.replace(window, words=words)
    rules, now_ms = check_rules(version or supposed_version(settings)[0]), known_until_ms(store)
    found = predict_window(store.root, window, rules, settings, now_ms, is_running=False)
    how = check_settings(settings)
    return found, played(Simulated(store.root, "as is", window, rules, how, now_ms + how.interval_ms), is_running=False)


def values(found: Prediction) -> dict[str, Any]:
    """The open half messages of a prediction, by column."""
    some = found.chosen(found.events != Event.ENDED)
    return {name: getattr(some, name).tolist() for name in COPY_ARRAYS}


@pytest.mark.parametrize(
    "columns",
    [
        {"immunity_seconds": -1}, {"immunity_seconds": 0}, {"immunity_seconds": 1}, {"immunity_seconds": 3_600},
        {"checks_count": 0}, {"checks_count": 1}, {"checks_count": 14}, {"checks_count": 15}, {"checks_count": 16},
        {"immunity_seconds": -1, "checks_count": 14}, {"checks_count": [15, ABSENT, 14, 3]},
        {"checks_count": [15, 0, ABSENT], "immunity_seconds": [ABSENT, -1, 60, ABSENT, 0]},
    ],
    ids=str,
)
def test_deadlines_of_half_messages_with_rare_properties(columns: dict[str, int | list[int]]) -> None:
    found, by_steps = both_ways(columns)
    assert values(found) == values(by_steps)
    assert (found.times_ms != NEVER).any()


_AGES_MS = (-70_000, -1, 0, 1, 5_999, 6_000, 6_001, 90_000, 3_595_000, 7_200_000)


@given(
    ages_ms=st.lists(st.sampled_from(_AGES_MS), min_size=1, max_size=5),
    stored_ago_ms=st.lists(st.sampled_from((-50_000, 0, 1, 40_000)), min_size=1, max_size=4),
    checks=st.lists(st.sampled_from((ABSENT, 0, 1, 4, 5, 6)), min_size=1, max_size=5),
    immunity=st.lists(st.sampled_from((ABSENT, -1, 0, 1, 7, 3_600)), min_size=1, max_size=3),
    check_max=st.sampled_from((1, 5, 6)),
    reserved_hours=st.sampled_from((1, 72)),
    version=st.sampled_from(((4, 4, 0), (4, 9, 7), (5, 1, 4), (5, 5, 0))),
)
@example([6_000], [40_000], [1], [ABSENT], 5, 72, (5, 5, 0))  # exactly as old as transactionTimeout
@example([6_000], [40_000], [1], [ABSENT], 5, 72, (4, 4, 0))
@examples(max_examples=60)
def test_any_half_messages_have_the_deadlines_of_the_check_played_step_by_step(
    ages_ms: list[int], stored_ago_ms: list[int], checks: list[int], immunity: list[int], check_max: int,
    reserved_hours: int, version: Version,
) -> None:
    """To the millisecond: what waits for op messages, and what the clock of a broker that was set back hides."""
    now_ms = known_until_ms(opened(NAME)) + 30_000  # the first round
    columns: dict[str, int | list[int]] = {
        "born_time_ms": [now_ms - age for age in ages_ms], "store_time_ms": [now_ms - ago for ago in stored_ago_ms],
        "checks_count": checks, "immunity_seconds": immunity,
    }
    found, by_steps = both_ways(
        columns, version=version, transaction_time_out_ms=6_000, transaction_check_max=check_max,
        transaction_check_interval_ms=30_000, file_reserved_time_hours=reserved_hours,
    )
    assert values(found) == values(by_steps)


def test_a_check_every_millisecond_asks_as_often_as_played() -> None:
    """The smallest interval: rounds are skipped in the calculation, and each question must still be counted."""
    found, by_steps = both_ways(
        {"immunity_seconds": 1, "checks_count": 0}, transaction_check_max=1_100, transaction_check_interval_ms=1,
        transaction_time_out_ms=0,
    )
    assert found.checks_to_come.tolist() == by_steps.checks_to_come.tolist()
    assert Event.PUT_BACK in found.events


def test_a_check_without_a_pause_waits_for_a_clock_that_was_set_back_as_played() -> None:
    """With transactionCheckInterval 0 each round that ends at the first half message takes a millisecond of rounds."""
    begin_ms = known_until_ms(opened(NAME))
    found, by_steps = both_ways(
        {"store_time_ms": begin_ms + 50, "born_time_ms": begin_ms - 1_000, "checks_count": 3},
        transaction_check_interval_ms=0, transaction_check_max=5, transaction_time_out_ms=10,
    )
    assert values(found) == values(by_steps)
    assert set(found.times_ms.tolist()) != {NEVER}


def test_a_clock_that_was_set_back_beyond_all_rounds_gives_no_deadline() -> None:
    """A store time of years ahead: a time computed from it would be printed as if the broker ran until then."""
    now_ms, how = 1_700_000_000_000, CheckSettings(6_000, 5, 30_000, 3_600_000)
    ahead = np.array([now_ms + 3 * ROUNDS_MAX * how.interval_ms], np.int64)
    halves = OpenHalves(ahead, ahead, np.array([1]), np.array([False]), np.array([-1]))
    found = discards_by_round(halves, check_rules((5, 3, 3)), how, now_ms)
    assert found.time_ms.tolist() == [NEVER]
    near = np.array([now_ms + 10 * how.interval_ms], np.int64)
    halves = OpenHalves(near, near, np.array([1]), np.array([False]), np.array([-1]))
    found = discards_by_round(halves, check_rules((5, 3, 3)), how, now_ms)
    assert near[0] < found.time_ms[0] < near[0] + 10 * how.interval_ms


def test_an_own_immunity_time_of_minus_1_is_that_of_the_broker() -> None:
    """A producer that sets -1 is asked when transactionTimeout is over; until then its half message is put back."""
    first = {value: both_ways({"immunity_seconds": value})[0] for value in (-1, 0)}
    waits, asks = (first[value].events[first[value].events != Event.ENDED] for value in (-1, 0))
    assert set(waits.tolist()) == {Event.PUT_BACK}
    assert set(asks.tolist()) == {Event.ASKED}


def test_no_question_is_announced_about_half_messages_without_a_producer_group() -> None:
    """Their checks are counted and end, but who waits for the question of the broker waits in vain."""
    found, by_steps = both_ways({"immunity_seconds": 0}, without_group=True)
    assert values(found) == values(by_steps)
    unasked = found.events == Event.PUT_BACK
    assert unasked.any()
    assert (found.events == Event.ASKED).any()
    assert set(found.checks_to_come[unasked].tolist()) == {0}
    assert (found.times_ms[unasked] != NEVER).all()


def test_a_check_that_stands_still_discards_nothing_and_says_so() -> None:
    store, settings, window = window_with({}, of_whole_queue=True)
    rules, now_ms = check_rules(supposed_version(settings)[0]), known_until_ms(store)
    runs = predict_window(store.root, window, rules, settings, now_ms, is_running=False)
    found = standing(runs)
    ended = runs.events == Event.ENDED
    assert ended.any()
    assert not ended.all()
    assert found.events[ended].tolist() == [Event.ENDED] * int(ended.sum())
    assert set(found.events[~ended].tolist()) == {Event.STOPPED}
    assert set(found.times_ms.tolist()) == set(found.event_times_ms.tolist()) == {NEVER}
    assert found.checks_to_come.tolist() == [0] * len(ended)
    assert found.whys == dict.fromkeys(found.offsets[~ended].tolist(), OUT_OF_REACH)


def test_a_maximum_of_checks_that_a_copy_refutes_leaves_only_what_age_discards() -> None:
    """With the default in place of the broker's own maximum, a page would give a deadline that is far too early."""
    store, settings, window = window_with({"checks_count": 20})
    origin = {name: how for name, how in settings.origin.items() if name != "transaction_check_max"}
    settings = dataclasses.replace(settings, origin=origin, transaction_check_max=15)
    rules, now_ms = check_rules(supposed_version(settings)[0]), known_until_ms(store)
    found = predict_window(store.root, window, rules, settings, now_ms, is_running=False)
    is_open = found.events != Event.ENDED
    assert set(found.events[is_open].tolist()) == {Event.UNKNOWN}
    assert set(found.times_ms.tolist()) == set(found.event_times_ms.tolist()) == {NEVER}
    assert {why.is_known for why in found.whys.values()} == {False}
    assert set(found.whys) == set(found.offsets[is_open].tolist())
    old = dataclasses.replace(settings, file_reserved_time_hours=0)
    expired = predict_window(store.root, window_with({"checks_count": 3})[2], rules, old, now_ms, is_running=False)
    assert (expired.times_ms[expired.events != Event.ENDED] != NEVER).all()


def test_a_page_gives_the_deadline_of_each_transaction_as_the_check_is_played() -> None:
    """The copies of a transaction have deadlines of their own; the page gives that of the copy that is discarded."""
    store, settings = opened(NAME), settings_of(NAME)
    reading = audit([store], settings)
    transactions = reading.table().to_pylist()
    windows = check_cursors(store)
    assert windows.half is not None
    assert windows.op is not None
    rules, how = check_rules(supposed_version(settings(store))[0]), check_settings(settings(store))
    window = check_window(store, rules, 0, windows.half.get(0), windows.op.get(0))
    [one] = reading.predicted.values()
    assert one.begin_ms is not None
    rows = transaction_rows(Simulated(store.root, "as is", window, rules, how, one.begin_ms)).to_pylist()
    ends = {row["commit_log_offset"]: row for row in rows}
    counts = set()
    for row in transactions:
        deadline = deadline_of(row, reading.predicted)
        if deadline is None or deadline.discard_at_ms is None:
            continue
        copies = [ends[copy["commit_log_offset"]] for copy in row["half_copies"] if copy["commit_log_offset"] in ends]
        [copy] = [copy for copy in copies if copy["end_time_ms"] == row["discard_at_ms"]]
        assert (deadline.checks_to_come, deadline.is_expired, deadline.may_be_later) == (
            copy["checks_to_come_count"], copy["end"] == "expired", copy["may_be_a_round_later"]
        )
        assert (deadline.discard_at_ms, deadline.why) == (row["discard_at_ms"], None)
        counts.add(deadline.checks_to_come)
    assert len(counts) > 1


def test_half_messages_that_op_messages_end_are_those_that_the_check_passes() -> None:
    """Else a page would give a deadline to a decided transaction, and none to an open one."""
    store, settings, window = window_with({}, of_whole_queue=True)
    rules, now_ms = check_rules(supposed_version(settings)[0]), known_until_ms(store)
    found = predict_window(store.root, window, rules, settings, now_ms, is_running=False)
    how = check_settings(settings)
    by_steps = played(Simulated(store.root, "as is", window, rules, how, now_ms + how.interval_ms), is_running=False)
    ended = set(found.offsets[found.events == Event.ENDED].tolist())
    assert ended == set(by_steps.offsets[by_steps.events == Event.ENDED].tolist())
    assert set(found.offsets[found.events == Event.ASKED].tolist()).isdisjoint(ended)
    assert 0 < len(ended) < len(found.offsets)


@pytest.mark.parametrize("version", [(4, 4, 0), (5, 3, 3)])
@pytest.mark.parametrize(("properties_bytes", "is_plain"), [(100, True), (32_639, True), (32_640, False)])
def test_many_half_messages_have_deadlines_as_long_as_nothing_hinders_the_check(
    properties_bytes: int, is_plain: bool, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store with more open transactions than are played has deadlines, unless a copy may not fit into the log."""
    monkeypatch.setattr(predicting, "PLAYED_HALVES_MAX", 3)
    store, settings, window = window_with({"fixed_properties_bytes": properties_bytes})
    found = predict_window(store.root, window, check_rules(version), settings, known_until_ms(store), is_running=False)
    assert (found.why != TOO_MANY) == is_plain
    assert (found.times_ms != NEVER).any() == is_plain


def test_a_slot_that_a_queue_leaves_out_settles_no_half_message() -> None:
    """Else the last half message of the queue would have a deadline and also be one that an op message ends."""
    store, settings, window = window_with({})
    halves = window.state.halves
    assert isinstance(halves, StoredHalves)
    rows = halves.rows.copy()
    rows[0] = -1
    state = dataclasses.replace(
        window.state, halves=dataclasses.replace(halves, rows=rows), left_out=frozenset({halves.begin})
    )
    rules = check_rules(supposed_version(settings)[0])
    one = dataclasses.replace(window, state=state)
    found = predict_window(store.root, one, rules, settings, known_until_ms(store), is_running=False)
    assert found.offsets.tolist() == sorted(set(found.offsets.tolist()))
    assert Event.ENDED not in found.events
    assert len(found.offsets) == len(rows) - 1


def test_a_running_check_has_passed_the_first_half_message_once_that_is_put_back() -> None:
    _, _, window = window_with({"checks_count": ABSENT})
    halves = window.state.halves
    assert isinstance(halves, StoredHalves)
    count = len(halves.rows)
    assert halves.rows.tolist() == list(range(count))
    ids = [f"{row}" for row in range(count - 1)] + ["0"]
    place = halves.words.schema.get_field_index("transaction_id")
    words = halves.words.set_column(place, halves.words.schema.field(place), pa.chunked_array([ids]))
    for last_checks, behind in ((ABSENT, 0), (1, 1)):
        checks = np.full(count, ABSENT, np.int64)
        checks[-1] = last_checks
        changed = dataclasses.replace(halves, words=words, numbers={**halves.numbers, "checks_count": checks})
        one = dataclasses.replace(window, state=dataclasses.replace(window.state, halves=changed))
        state = from_real_cursor(one).state
        assert isinstance(state.halves, StoredHalves)
        assert state.half_cursor == (halves.begin + 1 if behind else window.state.half_cursor)
        assert state.halves.rows.tolist() == list(range(behind, count))


def test_a_prediction_names_what_it_assumes() -> None:
    """Without the release a deadline may be another one; a reader must see that it was not given."""
    store = opened(NAME)
    known = settings_of(NAME)(store)
    assert known.version_low == known.version_high
    for given_settings, words in (
        (known, set()),
        (dataclasses.replace(known, version_low=(5, 0, 0)), {ASSUMED_VERSION}),
        (dataclasses.replace(known, version_low=None, version_high=None), {ASSUMED_VERSION}),
        (dataclasses.replace(known, given={}), {ASSUMED_SETTINGS}),
    ):
        found = predict_from_files(store, given_settings, check_cursors(store), store.taken_time_ms)
        assert set(found.assumed) == words | {UNREAD_LOG}


def test_a_transaction_in_rocksdb_without_checks_left_is_dropped_next_and_not_unknown() -> None:
    name = "rocksdb-5.5.0"
    store = opened(name)
    none_left = dataclasses.replace(settings_of(name)(store), transaction_check_max=0)
    found = predict_from_files(store, none_left, check_cursors(store), store.taken_time_ms)
    assert set(found.events.tolist()) == {Event.ASKED, Event.DROPPED}
    dropped = found.chosen(found.events == Event.DROPPED)
    assert dropped.event_times_ms.tolist() == dropped.times_ms.tolist()
    assert NEVER not in found.times_ms.tolist()


def test_the_reason_of_a_check_that_never_ends_names_the_half_message_that_ends_its_rounds() -> None:
    """Who reads another number looks for another message, and cannot make the check continue."""
    name = "poison-4.4.0"
    store = open_store(unpacked(name))
    settings = settings_of(name)(store)
    [stop] = check_stops(store, settings)
    found = predict_from_files(store, settings, check_cursors(store), store.taken_time_ms)
    reasons = {str(why.text) for why in found.whys.values()}
    assert len(found.whys) > 10
    assert reasons == {
        f"every round of the check ends at half queue offset {stop.queue_offset}, so the check never discards it"
    }


def test_releases_that_lead_to_different_futures_are_listed_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator reads what each release does from the oldest on; the list has the same order every time."""
    versions = [(4, 9, 7), (5, 3, 3), (4, 3, 0), (5, 1, 4), (4, 4, 0), (5, 5, 0), (4, 5, 2)]
    monkeypatch.setattr(predicting, "stopping_versions", lambda _: versions)
    monkeypatch.setattr(predicting, "differing_starts", lambda *_, **_more: [])
    name = "poison-4.5.0"
    store = open_store(unpacked(name))
    settings = settings_of(name)(store)
    stops = [dataclasses.replace(one, version=(4, 5, 0)) for one in check_stops(store, settings)]
    given_to: list[object] = []
    windows = CheckWindows

    def noted(one: Store, conf: Mapping[str, str]) -> CheckWindows:
        given_to.append(conf)
        return windows(one, conf)

    monkeypatch.setattr(predicting, "CheckWindows", noted)
    told = iter(range(99))
    monkeypatch.setattr(Prediction, "digest", lambda _: str(next(told)))
    found = predict_from_files(store, settings, check_cursors(store), store.taken_time_ms, stops=stops)
    assert [line.partition(":")[0] for line in found.differing] == [
        ".".join(map(str, version)) for version in sorted(versions)
    ]
    assert settings.given
    assert given_to == [settings.given] * (1 + len(versions))  # a future by other settings is not that of this broker
    assert corpus.recipe(name)["version"] == "4.5.0"
