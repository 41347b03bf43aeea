"""One round of the check, case by case: what differs between versions, and what goes wrong in brokers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import islice

import pytest

from rmqtx.readers.model.releases import Version
from rmqtx.verdicts.check.check_rules import Action, CheckSettings, CheckStep, Round, Stop, check_rules
from rmqtx.verdicts.check.half_queue_check import play_round, play_rounds
from rmqtx.verdicts.check.read_again import RoundEnd, copies_read_again
from rmqtx.verdicts.check.state import CheckState, FirstFile, HalfCopy, Op
from rmqtx.verdicts.model.predicted import Event
from rmqtx.verdicts.simulation.simulation import Outcome

NOW_MS = 1_800_000_000_000
SETTINGS = CheckSettings(time_out_ms=6_000, check_max=3, interval_ms=30_000, reserved_ms=72 * 3_600_000)
NEW: Version = (5, 3, 3)
OLD: Version = (4, 9, 7)


@dataclass
class Queue:
    """Half copies or ops by slot."""

    halves: dict[int, HalfCopy | None] = field(default_factory=dict)
    ops: dict[int, Op | None] = field(default_factory=dict)

    def copy_at(self, queue_offset: int) -> HalfCopy | None:
        return self.halves[queue_offset]

    def op_at(self, queue_offset: int) -> Op | None:
        return self.ops[queue_offset]


def half(
    number: int, age_ms: int = 60_000, checks: int | None = None, immunity: int | None = None,
    prepared: int | None = None, properties_bytes: int = 100,
) -> HalfCopy:
    born_ms = NOW_MS - age_ms
    return HalfCopy(
        number, number, born_ms, born_ms, checks, immunity, prepared, 300 + properties_bytes, properties_bytes, 1
    )


def op(place: int, *numbers: int, tagged: bool = True, has_body: bool = True) -> Op:
    return Op(place, numbers, tagged, has_body, NOW_MS - 30_000, 200)


def state(
    halves: list[HalfCopy | None], ops: list[Op | None] | None = None, half_cursor: int = 0, op_cursor: int = 0
) -> CheckState:
    queue = Queue(dict(enumerate(halves)), dict(enumerate(ops or [])))
    return CheckState(0, half_cursor, 0, len(halves), op_cursor, 0, len(ops or []), queue, queue)


def did(played: Round) -> list[tuple[str, int]]:
    return [(str(step.action), step.queue_offset) for step in played.steps]


def cursors(played: Round) -> tuple[int, int]:
    return played.state.half_cursor, played.state.op_cursor


def test_what_is_old_enough_is_put_back_and_asked() -> None:
    played = play_round(state([half(0), half(1, age_ms=2_000), half(2)]), check_rules(NEW), SETTINGS, NOW_MS)
    assert did(played) == [("checked", 0)]
    assert (played.stop, cursors(played)) == (Stop.YOUNG, (1, 0))  # what is behind a young half waits with it
    copy = played.state.appended[3]
    assert (copy.checks_count, copy.store_time_ms) == (1, NOW_MS)
    assert played.steps[0].written_bytes == 400 + len("TRANSACTION_CHECK_TIMES.1.")


def test_given_up_on_when_its_checks_are_spent_even_in_the_same_round() -> None:
    rounds = list(islice(play_rounds(state([half(0)]), check_rules(NEW), SETTINGS, NOW_MS), 3))
    assert [did(played) for played in rounds] == [
        [("checked", 0)], [("checked", 1)], [("checked", 2), ("discarded", 3)],
    ]
    last = rounds[-1].steps[-1]
    assert last.is_own_copy
    assert last.written_bytes == 400 + len("TRANSACTION_CHECK_TIMES.3.") + 2  # the discard topic's name is longer
    assert [played.begin_ms for played in rounds] == [NOW_MS, NOW_MS + 30_000, NOW_MS + 60_000]


@pytest.mark.parametrize(("version", "has_copy"), [((4, 3, 0), False), ((4, 5, 2), True)])
def test_giving_up_leaves_a_copy_from_4_5_2_on(version: Version, has_copy: bool) -> None:
    played = play_round(state([half(0, checks=3)]), check_rules(version), SETTINGS, NOW_MS)
    assert did(played) == [("discarded", 0)]
    assert (played.steps[0].written_bytes > 0) == has_copy


@pytest.mark.parametrize(("version", "acts"), [((5, 3, 3), [("checked", 0)]), ((5, 3, 4), []), ((5, 4, 0), [])])
def test_exactly_as_old_as_its_time_is_too_young_from_5_3_4_on(version: Version, acts: list[tuple[str, int]]) -> None:
    before = state([half(0, age_ms=SETTINGS.time_out_ms)])
    assert did(play_round(before, check_rules(version), SETTINGS, NOW_MS)) == acts


def test_older_than_the_reserved_time() -> None:
    played = play_round(state([half(0, age_ms=SETTINGS.reserved_ms + 1)]), check_rules(NEW), SETTINGS, NOW_MS)
    assert did(played) == [("expired", 0)]


def test_an_immune_half_is_put_back_without_asking_and_counts_it_as_a_check() -> None:
    before = state([half(0, immunity=3_600), half(1)])
    first, second = islice(play_rounds(before, check_rules(NEW), SETTINGS, NOW_MS), 2)
    assert did(first) == [("put back immune", 0), ("checked", 1)]
    copy = first.state.appended[2]
    assert (copy.prepared_queue_offset, copy.checks_count) == (0, 1)
    assert first.steps[0].written_bytes == 400 + 1 + len("TRANSACTION_CHECK_TIMES.1.TRAN_PREPARED_QUEUE_OFFSET.0.")
    assert did(second) == [("put back immune", 2), ("checked", 3)]
    assert second.state.appended[4].prepared_queue_offset == 0
    third = play_round(second.state, check_rules(NEW), SETTINGS, NOW_MS + 60_000)
    assert ("discarded", 6) in did(third)  # never asked once


@pytest.mark.parametrize(("version", "stop"), [((5, 3, 3), Stop.OWN_COPY), ((5, 4, 0), Stop.YOUNG)])
def test_a_half_exactly_as_old_as_the_time(version: Version, stop: Stop) -> None:
    played = play_round(state([half(0, age_ms=6_000)]), check_rules(version), SETTINGS, NOW_MS)
    assert played.stop == stop


def test_ops_end_halves_and_a_second_is_waited_for_more_of_them() -> None:
    before = state([half(0), half(1), half(2)], [op(0, 0, 2)])
    played = play_round(before, check_rules(NEW), SETTINGS, NOW_MS)
    assert did(played) == [("ended", 0), ("checked", 1), ("ended", 2)]
    assert cursors(played) == (3, 1)
    assert played.steps[1].time_ms == NOW_MS + 1_000
    old = play_round(state([half(0), half(1)], [op(0, 0)]), check_rules(OLD), SETTINGS, NOW_MS)
    assert old.steps[1].time_ms - NOW_MS <= 1


def test_an_op_stays_until_all_its_numbers_were_met() -> None:
    before = state([half(0), half(1, age_ms=1_000)], [op(0, 0, 1)])
    assert cursors(play_round(before, check_rules(NEW), SETTINGS, NOW_MS)) == (2, 1)
    before = state([half(0), half(1, age_ms=1_000), half(2)], [op(0, 0, 2)])
    first = play_round(before, check_rules(NEW), SETTINGS, NOW_MS)
    assert cursors(first) == (1, 0)  # the young half in between keeps it


def test_a_lagging_op_cursor_catches_up_over_what_lies_before_the_half_cursor() -> None:
    before = state([half(number) for number in range(4)], [op(0, 0), op(1, 1), op(2, 3)], half_cursor=3)
    assert cursors(play_round(before, check_rules(NEW), SETTINGS, NOW_MS)) == (4, 3)


def test_an_immune_copy_whose_first_place_is_named_ends_the_whole_op() -> None:
    before = state([half(0, immunity=60, prepared=9, age_ms=7_000)], [op(0, 9, 5)])
    played = play_round(before, check_rules(NEW), SETTINGS, NOW_MS)
    assert did(played) == [("ended", 0)]
    assert cursors(played) == (1, 1)  # half 5, when it comes, is no longer ended by that op


@pytest.mark.parametrize(("version", "op_cursor"), [((5, 0, 0), 0), ((5, 1, 0), 1)])
def test_an_op_without_its_tag_is_stuck_on_old_brokers(version: Version, op_cursor: int) -> None:
    played = play_round(state([half(0)], [op(0, 0, tagged=False)]), check_rules(version), SETTINGS, NOW_MS)
    assert did(played) == [("checked", 0)]
    assert played.state.op_cursor == op_cursor


@pytest.mark.parametrize(("version", "stop"), [((5, 0, 0), Stop.ABORTED), ((5, 1, 0), Stop.OWN_COPY)])
def test_an_op_without_a_body(version: Version, stop: Stop) -> None:
    played = play_round(state([half(0)], [op(0, has_body=False)]), check_rules(version), SETTINGS, NOW_MS)
    assert played.stop == stop


@pytest.mark.parametrize("version", [(4, 3, 0), (4, 9, 4), (5, 0, 0)])
def test_an_unreadable_half_ends_each_round_and_no_cursor_moves(version: Version) -> None:
    first, second = islice(play_rounds(state([half(0), None, half(2)]), check_rules(version), SETTINGS, NOW_MS), 2)
    assert did(first) == [("checked", 0), ("unreadable", 1)]
    assert (first.stop, cursors(first)) == (Stop.ABORTED, (0, 0))
    assert did(second) == did(first)  # the same half is put back again and again
    assert second.state.half_end == 5


def test_one_unreadable_half_of_a_round_is_passed_over_from_4_9_5_on() -> None:
    before = state([half(0), None, half(2), None, half(4)])
    first, second = islice(play_rounds(before, check_rules((4, 9, 5)), SETTINGS, NOW_MS), 2)
    assert did(first) == [("checked", 0), ("unreadable", 1), ("checked", 2)]
    assert (first.stop, cursors(first)) == (Stop.UNREADABLE, (3, 0))
    assert did(second)[:2] == [("unreadable", 3), ("checked", 4)]


def test_before_4_6_0_reading_on_at_the_end_moves_the_op_cursor_at_once() -> None:
    before = state([half(0), half(1), half(2, age_ms=1_000)], [op(0, 0), op(1, 5)])
    old = play_round(before, check_rules((4, 5, 2)), SETTINGS, NOW_MS)
    assert did(old) == [("ended", 0), ("checked", 1)]
    assert cursors(old) == (2, 2)  # nothing done is known, so the jump stays, though the op of 5 was not met
    new = play_round(before, check_rules(OLD), SETTINGS, NOW_MS)
    assert cursors(new) == (2, 1)


@pytest.mark.parametrize(("version", "place"), [((4, 9, 3), 0), ((4, 9, 4), 2)])
def test_a_half_cursor_behind_the_end(version: Version, place: int) -> None:
    before = state([half(0), half(1)], half_cursor=7)
    played = play_round(before, check_rules(version), SETTINGS, NOW_MS)
    assert did(played)[:1] == ([("checked", 0)] if place == 0 else [])
    assert played.state.half_cursor == 2


def test_a_copy_that_the_store_refuses_takes_the_whole_minute() -> None:
    before = state([half(0, properties_bytes=32_760), half(1)])
    played = play_round(before, check_rules(NEW), SETTINGS, NOW_MS)
    assert (played.stop, did(played), cursors(played)) == (Stop.REFUSED, [], (0, 0))
    assert played.end_ms - played.begin_ms > 60_000


def test_born_in_the_future_is_asked_at_once() -> None:
    before = state([half(0, age_ms=-5_000)._replace(store_time_ms=NOW_MS - 1)])
    assert did(play_round(before, check_rules(NEW), SETTINGS, NOW_MS)) == [("checked", 0)]


@pytest.mark.parametrize(("half_age_ms", "op_born_ms", "waited_ms"), [
    (60_000, 6_000, 1_000), (60_000, 6_001, 0), (-1, 6_000, 0),
])
def test_a_half_is_asked_about_without_more_op_messages_if_the_last_one_is_newer_than_the_time_out(
    half_age_ms: int, op_born_ms: int, waited_ms: int
) -> None:
    """Or if the half was born in the future; else the check reads on, and waits a second for more."""
    newest = op(0, 7)._replace(born_time_ms=NOW_MS + op_born_ms)
    before = state([half(0, age_ms=half_age_ms)._replace(store_time_ms=NOW_MS - 1)], [newest])
    (step,) = play_round(before, check_rules(NEW), SETTINGS, NOW_MS).steps
    assert (step.action, step.time_ms - NOW_MS) == (Action.CHECKED, waited_ms)


def test_only_32_ops_are_read_until_a_half_asks_for_more() -> None:
    ops: list[Op | None] = [op(number, number) for number in range(40)]
    halves: list[HalfCopy | None] = [half(number) for number in range(40)]
    before = state(halves[:32], ops)
    assert cursors(play_round(before, check_rules(NEW), SETTINGS, NOW_MS)) == (32, 32)
    played = play_round(state(halves, ops), check_rules(NEW), SETTINGS, NOW_MS)
    assert did(played) == [(str(Action.ENDED), number) for number in range(40)]
    assert cursors(played) == (40, 40)


@pytest.mark.parametrize(("kept_ms", "begin"), [(30_001, 0), (30_000, 1)])
def test_between_two_rounds_the_time_of_the_first_file_of_a_half_queue_passes(kept_ms: int, begin: int) -> None:
    """The interval is 30 s; then the file is deleted, and the queue begins behind it."""
    begun = replace(state([half(0, age_ms=1_000), half(1, age_ms=1_000)]), first_file=FirstFile(kept_ms, 1))
    assert play_round(begun, check_rules(NEW), SETTINGS, NOW_MS).state.half_begin == begin


def test_nothing_to_do_and_no_queue_at_all() -> None:
    played = play_round(state([]), check_rules(NEW), SETTINGS, NOW_MS)
    assert (did(played), played.stop, cursors(played)) == ([], Stop.END, (0, 0))


BEFORE_4_6: Version = (4, 4, 0)


@pytest.mark.parametrize(("version", "found"), [(BEFORE_4_6, {0: RoundEnd(2, 1)}), (OLD, {}), (NEW, {})])
def test_a_settled_copy_is_read_again_where_a_compressed_one_stops_each_round(
    version: Version, found: dict[int, RoundEnd]
) -> None:
    """The machine's 4.3.0 to 4.5.2 asked about a committed half message again (1000300)."""
    rules = check_rules(version)
    compressed = half(1)._replace(spoils=int(rules.inflates))
    assert copies_read_again(state([half(0), compressed], [op(0, 0)]), rules, SETTINGS, NOW_MS) == found
    open_ones = state([half(0), compressed])
    assert copies_read_again(open_ones, rules, SETTINGS, NOW_MS) == {}
    assert copies_read_again(open_ones, rules, SETTINGS, NOW_MS, [op(0, 0)]) == found
    assert copies_read_again(open_ones, rules, SETTINGS, NOW_MS, [op(0, 0), op(1, 1)]) == {}
    unseen = copies_read_again(open_ones, check_rules(NEW), SETTINGS, NOW_MS, [op(0, 0)], are_seen=False)
    assert list(unseen) == [0]


@pytest.mark.parametrize(("version", "found"), [(BEFORE_4_6, {2: RoundEnd(1, 1)}), (OLD, {}), (NEW, {})])
def test_a_settled_copy_is_read_again_behind_a_young_half(version: Version, found: dict[int, RoundEnd]) -> None:
    before = state([half(0), half(1, age_ms=2_000), half(2)], [op(0, 2)])
    assert copies_read_again(before, check_rules(version), SETTINGS, NOW_MS) == found
    rounds = islice(play_rounds(before, check_rules(version), SETTINGS, NOW_MS), 3)
    assert any(("checked", 2) in did(played) for played in rounds) == bool(found)


@pytest.mark.parametrize(("version", "found"), [(BEFORE_4_6, {1: RoundEnd(0, 0)}), (OLD, {}), (NEW, {})])
def test_a_settled_copy_is_read_again_behind_a_half_that_the_store_refuses(
    version: Version, found: dict[int, RoundEnd]
) -> None:
    before = state([half(0, properties_bytes=32_760), half(1)], [op(0, 1)])
    assert copies_read_again(before, check_rules(version), SETTINGS, NOW_MS) == found


def test_a_copy_that_an_op_ends_in_one_round_only_is_not_ended() -> None:
    """`next_event` was `none` for a rolled back transaction about which a producer was asked again (1100007)."""
    found = Outcome(0, None)
    found.take(1, CheckStep(Action.ENDED, 0, half(0), NOW_MS))
    assert (found.event, found.is_open) == (Event.ENDED, False)
    found.take(2, CheckStep(Action.CHECKED, 0, half(0), NOW_MS + 30_000))
    assert (found.event, found.event_ms, found.is_open) == (Event.ASKED, NOW_MS + 30_000, True)
