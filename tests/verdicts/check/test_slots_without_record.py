"""Slots that lead to no record of their own: what the store returns for them, and what a check does there."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rmqtx.readers.log.record_layout import FILLER
from rmqtx.readers.model.releases import Version
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, open_store
from rmqtx.verdicts.check.check_rules import CheckSettings, check_rules
from rmqtx.verdicts.check.check_stops import check_stops
from rmqtx.verdicts.check.slots import LogPlaces, SlotRead, checked_slots, passed_slots, slot_reads
from rmqtx.verdicts.check.window import check_window
from rmqtx.verdicts.simulation.simulation import Simulated, outcomes
from rmqtx.verdicts.startup.started_queues import StartedQueue
from tests.forge.damage import SLOT_BYTES, queue_files, write_bytes
from tests.forge.logs import Forge
from tests.forge.records import Message

#: A log of two files of 1000 bytes, of which the first has expired.
LOG = LogPlaces(1_000, 1_000, 2_500)


def read_of(offsets: list[int], file_ends: list[int]) -> dict[int, SlotRead]:
    """Slots of 50 bytes from number 10 on."""
    places, lengths = np.array(offsets, np.int64), np.full(len(offsets), 50, np.int64)
    return slot_reads(LOG, 10, places, lengths, np.array(file_ends, np.int64), np.ones(len(offsets), np.bool_))


def test_a_read_ends_with_the_file_of_the_queue() -> None:
    expired, sound = 100, 1_200
    assert read_of([expired, expired, sound], [20])[10].returned == 12
    one = read_of([expired, expired, sound], [12])[10]
    assert (one.returned, one.end, one.limit) == (None, 12, 12)


def test_a_slot_of_no_bytes_gets_the_record_of_the_next_slot_and_one_of_few_bytes_its_own() -> None:
    places, known = np.full(3, 1_200, np.int64), np.ones(3, np.bool_)
    found = slot_reads(LOG, 10, places, np.array([0, 1, 50]), np.array([20]), known)
    assert {number: (one.returned, one.is_found) for number, one in found.items()} == {10: (11, True)}


def test_only_a_slot_behind_the_end_of_the_log_can_get_its_record_later() -> None:
    behind, before = read_of([2_500], [20])[10], read_of([900], [20])[10]
    assert (behind.own_place, behind.readable_from) == (2_500, 2_550)
    assert before.own_place == -1


def test_the_slots_behind_one_without_a_record_are_passed_unread() -> None:
    assert passed_slots({3: SlotRead(None, 6, 6, False)}, 2, 8).tolist() == [4, 5]


@pytest.mark.parametrize("cursor", [0, 1, 2, 3, 5])
def test_a_check_reads_stored_slots_then_those_that_a_start_adds_then_those_that_it_leaves_behind(
    tmp_path: Path, cursor: int
) -> None:
    forge = Forge(tmp_path / "store")
    halves = [forge.half(f"HALF-{number}") for number in range(5)]
    with open_queue(open_store(forge.write()), HALF_TOPIC, 0) as queue:
        found = checked_slots(queue, cursor, 0, StartedQueue(2, added=((halves[4], 77),), end=5))
    places = [*halves[:2], halves[4], *halves[3:]]
    assert found.numbers.tolist() == list(range(5))[cursor:]
    assert (found.offsets.tolist(), found.lengths[found.numbers == 2].tolist()) == (places[cursor:], [77][: cursor < 3])


def test_a_shorter_record_at_the_place_of_a_slot_stops_no_check(tmp_path: Path) -> None:
    """A power loss took the end of the log and left the slot; the broker wrote another message there."""
    forge = Forge(tmp_path / "store")
    forge.half("FIRST")
    place = forge.half("A-LONG-ID-IN-A-LONGER-RECORD")
    root = forge.write()
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(place)
        file.write(Message(properties=(("UNIQ_KEY", "LATER"),)).record(place).ljust(500, b"\0"))
    store = open_store(root)
    assert check_stops(store, broker_settings(store, version="4.4.0")) == []
    rules, settings = check_rules((4, 4, 0)), CheckSettings(6_000, 15, 30_000, 1 << 40)
    window = check_window(store, rules, 0, 0, 0)
    found = outcomes(Simulated(str(root), "", window, rules, settings, forge.now_ms + 3_600_000), 3)
    assert {number: one.checks_to_come_count for number, one in found.items()} == {0: 3, 1: 0}, "it is read and passed"


def test_a_check_that_begins_again_passes_the_first_half_if_a_later_op_settles_it(tmp_path: Path) -> None:
    """Its first round begins behind the end of the half queue, loses the 32 op messages that it reads, and ends at the
    young half.
    """
    forge = Forge(tmp_path / "store")
    settled, still_open = forge.half("SETTLED"), forge.half("OPEN")
    for half in (*[still_open] * 32, settled):
        forge.op(half)
    store = open_store(forge.write(half_cursor=5))
    window = check_window(store, check_rules((4, 9, 3)), 0, 5, 0)
    settings = CheckSettings(6_000, 15, 30_000, 1 << 40)
    found = outcomes(Simulated(store.root, "", window, check_rules((4, 9, 3)), settings, forge.now_ms + 1_000), 3)
    assert [one.is_ended for one in found.values()] == [True, False]


@pytest.mark.parametrize(("version", "asked"), [((4, 9, 3), {0: 1, 1: 1}), ((4, 9, 4), {})])
def test_an_op_message_behind_the_end_of_the_half_queue_sends_an_old_check_back_to_its_begin(
    tmp_path: Path, version: Version, asked: dict[int, int]
) -> None:
    """A power loss took the last half message and left its op message. The check asks again, also for what the op
    messages that it read before had settled.
    """
    forge = Forge(tmp_path / "store")
    settled, _ = forge.half("SETTLED"), forge.half("DISCARDED")
    forge.op(settled)
    forge.append(Message(topic=OP_TOPIC, body=b"2", properties=(("TAGS", "d"),)))
    store, rules = open_store(forge.write(half_cursor=2)), check_rules(version)
    window = check_window(store, rules, 0, 2, 0)
    settings = CheckSettings(6_000, 15, 30_000, 1 << 40)
    found = outcomes(Simulated(store.root, "", window, rules, settings, forge.now_ms + 3_600_000), 1)
    assert {number: one.checks_to_come_count for number, one in found.items()} == asked


def test_a_running_check_stands_still_since_the_immunity_time_of_its_half_was_over(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    place = forge.half("IMMUNE", immunity=100)
    stored_ms = forge.now_ms
    store = open_store(forge.write())
    lock = Path(store.root, "lock")
    lock.touch()
    os.utime(lock, (stored_ms / 1_000, stored_ms / 1_000))
    running = replace(store, used_by_process=1, taken_time_ms=stored_ms + 3_600_000)
    (stop,) = check_stops(running, broker_settings(store, version="5.3.3"))
    assert (stop.since_ms, stop.transaction_id, stop.commit_log_offset) == (stored_ms + 100_000, "IMMUNE", place)


def test_slots_that_a_running_broker_wrote_since_its_store_was_opened_are_no_damage(tmp_path: Path) -> None:
    """The broker went on in a file of the log that it has made since; `simulate` then ended with status 3."""
    forge = Forge(tmp_path / "store")
    places = [forge.half(f"HALF-{number}") for number in range(40)]
    root = forge.write(half_cursor=3)
    *_, newest = sorted((root / "commitlog").iterdir())
    newest.rename(tmp_path / "newest")
    running = replace(open_store(root), used_by_process=1)
    (tmp_path / "newest").rename(newest)
    known = [place for place in places if place < int(newest.name)]
    assert 3 < len(known) < 38
    window = check_window(running, check_rules((5, 3, 3)), 0, 3, 0)
    assert (window.findings, window.state.half_end) == ([], len(known))
    assert window.words["commit_log_offset"].to_pylist() == known[3:]
    passed = check_window(running, check_rules((5, 3, 3)), 0, 39, 0)  # the cursor is newer than the list of files too
    assert (passed.findings, passed.state.half_end, passed.words.num_rows) == ([], 39, 0)
    (queue,) = queue_files(root, HALF_TOPIC)
    write_bytes(queue, 10 * SLOT_BYTES, (1 << 40).to_bytes(8, "big"))  # a slot before known ones is damaged
    damaged = check_window(running, check_rules((5, 3, 3)), 0, 3, 0)
    assert ([one.code for one in damaged.findings], damaged.state.half_end) == (["undecidable"], len(known))


def test_a_half_that_a_salvage_filled_gets_its_slot_from_a_running_broker_too(tmp_path: Path) -> None:
    """For a broker it is a record, and the next half has the number after it."""
    forge = Forge(tmp_path / "store")
    forge.half("A")
    filler = forge.append(Message(topic=HALF_TOPIC, properties=((FILLER, "1"),)))
    forge._slots[HALF_TOPIC, 0].pop()
    running = replace(open_store(forge.write()), used_by_process=1)
    window = check_window(running, check_rules((5, 3, 3)), 0, 0, 0)
    assert (window.state.half_end, window.slot_offsets.tolist()) == (2, [0, filler])
