"""Queues that contradict a log, on stores of a few half messages: what is missing, what is only numbered otherwise."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from rmqtx.readers.log.record_layout import COMMIT
from rmqtx.readers.model.errors import UnreadableFile
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.queues.consume_queue import SLOT, Queue, open_queue
from rmqtx.readers.rocksdb import slots_of_ranges
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, Store, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.missing.hidden_records import bounded
from rmqtx.verdicts.missing.missing_ranges import UNFOUND_SLOTS_FEW, missing_bytes
from rmqtx.verdicts.missing.split_numbers import is_shifted_slot, split_numbers
from rmqtx.verdicts.missing.unfound_slots import UnfoundSlot, record_around, unfound_slots
from rmqtx.verdicts.model.verdict_inputs import NO_SLOT, MisdirectedDecision, MissingRange
from tests.forge import damage
from tests.forge.damage import queue_files
from tests.forge.logs import Forge
from tests.forge.records import Message
from tests.forge.stores import opened

_LENGTH = 200
_NONE = np.empty(0, np.int64)


def slotted(root: Path, places: list[int], first: int = 0) -> None:
    """The half queue has slots for these places only, from a number on."""
    (file,) = queue_files(root, HALF_TOPIC)
    data = b"".join(
        SLOT.pack(commit_log_offset=place, record_length_bytes=_LENGTH, tags_code=0) for place in places
    )
    file.write_bytes(data.ljust(file.stat().st_size, b"\0"))
    file.rename(file.with_name(f"{first * SLOT.size_bytes:020d}"))


def test_a_queue_of_another_log_is_one_finding_also_if_its_begin_was_deleted(tmp_path: Path) -> None:
    """Of its slots 1000 and after, not of all numbers, most point to no half message."""
    forge = Forge(tmp_path / "store")
    halves = [forge.half(f"H{number}") for number in range(UNFOUND_SLOTS_FEW)]
    root = forge.write(half_cursor=1000)
    slotted(root, [half + 4 for half in halves], 1000)
    reading = audit([open_store(root)], lambda store: broker_settings(store, version="5.3.3"))
    assert reading.table().num_rows == len(halves)
    (found,) = (one for one in reading.findings if one.code == "slot-mismatch")
    assert found.actual is not None
    assert f"{len(halves)} slots that point to other records: the queue belongs to another log" in found.actual


def test_each_slot_is_a_finding_if_less_than_half_of_a_queue_contradicts_the_log(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store", segment_bytes=1 << 16)
    halves = [forge.half(f"H{number}") for number in range(2 * UNFOUND_SLOTS_FEW)]
    root = forge.write()
    slots = [UnfoundSlot(HALF_TOPIC, number, halves[number] + 4, _LENGTH) for number in range(UNFOUND_SLOTS_FEW)]
    found = missing_bytes(open_store(root), [], [], slots)
    assert [(one.commit_log_offset, one.file) for one in found.findings] == [
        (slot.commit_log_offset, str(root / "commitlog" / f"{0:020d}")) for slot in slots
    ]


def test_a_slot_for_the_first_byte_of_a_range_belongs_to_that_range(tmp_path: Path) -> None:
    """Else a record at the begin of a split is missed by all splits."""
    forge = Forge(tmp_path / "store")
    halves = [forge.half(f"H{number}") for number in range(3)]
    store, none = open_store(forge.write()), np.empty(0, np.int64)
    for begin, end, numbers in ((0, halves[1], [0]), (halves[1], halves[2], [1]), (halves[2], halves[2] + 1, [2])):
        assert [one.queue_offset for one in unfound_slots(store, HALF_TOPIC, none, none, begin, end)] == numbers


@pytest.mark.parametrize("is_later", [True, False])
def test_a_record_with_the_same_number_elsewhere_is_not_the_missing_one(is_later: bool, tmp_path: Path) -> None:
    """The half queue was deleted once and began again at 0, or is a copy from before; record 1 of its time is gone."""
    forge = Forge(tmp_path / "store")
    earlier = [forge.half(f"EARLIER{number}") for number in range(3)]
    forge._slots.clear()
    later = [forge.half(f"LATER{number}") for number in range(3)]
    root, halves = forge.write(), later if is_later else earlier
    slotted(root, halves)
    slot = UnfoundSlot(HALF_TOPIC, 1, halves[1], halves[2] - halves[1])
    file = root / "commitlog" / f"{0:020d}"
    data = file.read_bytes()
    file.write_bytes(data[: halves[1]] + bytes(halves[2] - halves[1]) + data[halves[2] :])
    found = missing_bytes(open_store(root), [], [], [slot])
    assert [(one.begin_offset, one.end_offset) for one in found.ranges] == [(halves[1], halves[2])]


def test_no_bytes_are_missing_if_the_record_of_a_damaged_slot_is_between_its_neighbours(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    halves = [forge.half(f"H{number}") for number in range(3)]
    slot = UnfoundSlot(HALF_TOPIC, 1, halves[2] + _LENGTH * 4, _LENGTH)
    found = missing_bytes(open_store(forge.write()), [], [], [slot])
    assert found.ranges == []
    assert [one.expected for one in found.findings] == [f"slot 1 of {HALF_TOPIC}"]


def test_one_slot_of_an_older_log_does_not_refute_the_next_one(tmp_path: Path) -> None:
    """Two in a row do: one alone may be a damaged slot, and the record of the next one be missing."""
    forge = Forge(tmp_path / "store")
    halves = [forge.half(f"H{number}") for number in range(5)]
    root = forge.write()
    behind = halves[-1] + 4 * _LENGTH
    stale = [UnfoundSlot(HALF_TOPIC, number, halves[0] + 4, _LENGTH) for number in (5, 6)]
    next_one = UnfoundSlot(HALF_TOPIC, 7, behind, _LENGTH)
    for slots, ranges in (([*stale[1:], next_one], [(behind, behind + _LENGTH)]), ([*stale, next_one], [])):
        found = missing_bytes(open_store(root), [], [], slots)
        assert [(one.begin_offset, one.end_offset) for one in found.ranges] == ranges


def test_the_first_of_some_shifted_half_messages_is_not_damaged(tmp_path: Path) -> None:
    """A queue that lost slot 2: number 3 is in slot 2 and number 4 in slot 3, while slot 1 is as it was."""
    forge = Forge(tmp_path / "store")
    halves = [forge.half(f"H{number}") for number in range(5)]
    root = forge.write()
    slotted(root, [*halves[:2], *halves[3:]])
    store = open_store(root)
    one = split_numbers(store, np.array([halves[3]]), np.array([3]), halves[3], halves[4])
    assert (one.numbers.tolist(), one.slots.tolist(), one.contradicting.tolist()) == ([3], [2], [])
    every = split_numbers(store, np.array(halves), np.arange(5), 0, halves[4] + 1)
    assert every.numbers.tolist() == [2, 3, 4]
    assert every.slots.tolist() == [NO_SLOT, 2, 3]


def test_two_half_messages_with_one_number_are_of_two_runs(tmp_path: Path) -> None:
    """A failover before 5.2.0 gave it twice; in one run no op message would be in doubt."""
    forge = Forge(tmp_path / "store")
    halves = [forge.half("A"), forge.half("B")]
    forge._slots[HALF_TOPIC, 0].pop()
    halves += [forge.half("B-AGAIN"), forge.half("C")]
    found = split_numbers(open_store(forge.write()), np.array(halves), np.array([0, 1, 1, 2]), 0, halves[3] + 1)
    assert found.runs == [(0, 1, halves[0]), (1, 2, halves[2])]


def test_a_half_message_in_another_slot_alone_has_a_damaged_number(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    halves = [forge.half(f"H{number}") for number in range(3)]
    store = open_store(forge.write())
    one = split_numbers(store, np.array([halves[1]]), np.array([9]), halves[1], halves[2])
    assert (one.numbers.tolist(), one.contradicting.tolist(), one.runs) == ([], [halves[1]], [])


def test_half_messages_after_the_last_slot_are_not_missing_from_the_queue(tmp_path: Path) -> None:
    """The broker has not dispatched them yet; what is before the last slot gets no slot later."""
    forge = Forge(tmp_path / "store")
    halves = [forge.half(f"H{number}") for number in range(4)]
    root = forge.write()
    slotted(root, [halves[0], halves[2]])
    one = split_numbers(open_store(root), np.array(halves), np.arange(4), 0, halves[3] + 1)
    assert (one.numbers.tolist(), one.slots.tolist()) == ([1], [NO_SLOT])


@pytest.mark.parametrize(("expected", "is_unknown"), [
    ("queue_id of at least 0", True), ("0, because the record is not a final", False), ("known bits only", False),
])
def test_a_damaged_header_leaves_bytes_unknown_only_if_a_state_depends_on_the_field(
    tmp_path: Path, expected: str, is_unknown: bool
) -> None:
    """Of a queue number it does; else a bit of another field makes a transaction UNDECIDABLE."""
    forge = Forge(tmp_path / "store")
    first, second = forge.half("A"), forge.half("B")
    store = open_store(forge.write())
    finding = Finding(
        store.root, "record-header", commit_log_offset=first, length_bytes=second - first, expected=expected
    )
    found = missing_bytes(store, [], [finding], [])
    assert [one.transaction_ids for one in found.ranges] == [("A",)] * is_unknown


@pytest.mark.parametrize("number", [0, 1])
def test_a_record_that_contradicts_its_property_crc_is_unknown_and_no_byte_of_the_next_one(
    tmp_path: Path, number: int
) -> None:
    """Also the first record of the log; what its properties say now identifies nothing."""
    forge = Forge(tmp_path / "store")
    places = [forge.half(f"H{one}") for one in range(3)]
    store = open_store(forge.write())
    begin, end = places[number : number + 2]
    finding = Finding(store.root, "record-property-crc", commit_log_offset=begin, length_bytes=end - begin)
    found = missing_bytes(store, [], [finding], [])
    assert [(one.begin_offset, one.end_offset, one.is_identified) for one in found.ranges] == [(begin, end, False)]


def test_a_half_slot_with_a_record_of_another_topic_concerns_what_its_number_and_its_place_identify(
    tmp_path: Path,
) -> None:
    """Not each transaction before it, also if the record names no transaction."""
    forge = Forge(tmp_path / "store")
    forge.half("A")
    place = forge.append(Message(topic="other"))
    end = forge.half("B")
    slot = UnfoundSlot(HALF_TOPIC, 5, place, end - place)
    (found,) = missing_bytes(open_store(forge.write()), [], [], [slot]).ranges
    assert (found.begin_offset, found.end_offset, found.transaction_ids) == (place, end, ())
    assert (found.is_identified, found.half_queue_offsets, found.prepared_offsets) == (True, (5,), (place,))


def test_a_place_in_a_record_leads_to_its_begin_from_the_first_byte_to_the_last(tmp_path: Path) -> None:
    """Else a damaged slot that points just behind the begin of a record counts as a lost record."""
    forge = Forge(tmp_path / "store")
    first, second = forge.half("FIRST"), forge.half("SECOND")
    (segment,) = open_store(forge.write()).commit_log
    assert {record_around(segment, place) for place in range(first + 1, second)} == {first}
    assert record_around(segment, second) is None
    assert record_around(segment, second + 1) == second


def test_the_last_slot_of_a_shifted_queue_is_shifted_as_the_one_before_it(tmp_path: Path) -> None:
    """Else its half message counts as one that the check never reads."""
    forge = Forge(tmp_path / "store")
    halves = [forge.half(f"H{number}") for number in range(3)]
    root = forge.write(half_cursor=0)
    slotted(root, halves[1:])
    store = open_store(root)
    with store.log() as log:
        assert [is_shifted_slot(store, log, number, half) for number, half in enumerate(halves[1:])] == [True, True]
    slotted(root, [halves[0], halves[2]])
    store = open_store(root)
    with store.log() as log:
        assert not is_shifted_slot(store, log, 0, halves[0])
        assert not is_shifted_slot(store, log, 1, halves[2])


def test_a_decision_on_a_hidden_message_has_the_number_of_its_slot(tmp_path: Path) -> None:
    """Its op message has that number, which is also that of a half."""
    forge = Forge(tmp_path / "store")
    forge.half("A")
    forge.append(Message(topic="other"))
    hidden = forge.append(Message(topic="other"))
    final = forge.append(Message(topic="orders", queue_id=1, sys_flag=COMMIT, prepared_transaction_offset=hidden))
    decided_ms = forge.now_ms
    store = open_store(forge.write())
    hole = MissingRange(store.root, hidden, final, "")
    (found,), decisions = bounded(store, [hole], np.array([final, final]), np.array([hidden, hidden + 1]))
    assert decisions == [MisdirectedDecision(store.root, 0, 1, final, decided_ms)]
    assert found.named_from_offset == final, "of the decision on a place without a slot nothing is known"


@pytest.mark.parametrize(("is_last", "may_have_op"), [(False, True), (True, False)])
def test_bytes_had_no_record_of_a_topic_without_a_queue_and_none_of_a_queue_that_goes_on(
    tmp_path: Path, is_last: bool, may_have_op: bool
) -> None:
    """A broker never deletes its own topics. A queue that ends before the bytes may lack its last record, but not where
    nothing was dispatched after them, and the broker stopped.
    """
    forge = Forge(tmp_path / "store")
    halves = [forge.half("A")]
    forge.op(halves[0])
    hidden = forge.append(Message(topic="other"))
    halves.append(forge.half("B"))
    root = forge.write()
    shutil.rmtree(root / "consumequeue" / "other")
    slotted(root, halves[:1] if is_last else halves)
    (found,), _ = bounded(open_store(root), [MissingRange(str(root), hidden, halves[1], "")], _NONE, _NONE)
    assert found.hidden is not None
    (gap,) = found.hidden.gaps
    assert gap.begin_offset == hidden
    assert {HALF_TOPIC, DISCARD_TOPIC} < set(gap.clear_topics)
    assert (OP_TOPIC not in gap.clear_topics) == may_have_op


def test_a_queue_that_cannot_be_read_is_no_queue_that_never_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The damaged bytes may be a discard copy: its half is not LOST."""
    forge = Forge(tmp_path / "store")
    first, second = forge.half("FIRST"), forge.half("SECOND")
    forge.commit(first)
    forge.op(first)
    place = forge.discard(forge.half("SPENT", checks=15))
    forge.commit(second)
    forge.op(second)
    forge.half("LAST")
    root = forge.write(half_cursor=3, op_cursor=2)
    damage.write_bytes(damage.log_files(root)[0], place, b"\xff" * 80)

    def opened_queue(store: Store, topic: str, queue_id: int) -> Queue:
        if topic == DISCARD_TOPIC:
            raise UnreadableFile("cannot read the queue: Input/output error")
        return open_queue(store, topic, queue_id)

    for reader in (open_queue, opened_queue):
        monkeypatch.setattr(slots_of_ranges, "open_queue", reader)
        rows = audit([open_store(root)], lambda store: broker_settings(store, version="5.3.3")).table().to_pylist()
        assert {row["state"] for row in rows if row["transaction_id"] == "SPENT"} == {"UNDECIDABLE"}


def test_a_database_of_queues_that_cannot_be_read_may_have_a_queue_of_each_topic(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened_database(store: Store, directory: Path) -> NoReturn:
        raise UnreadableFile(f"cannot read {directory}: Input/output error")

    store = opened("rocksdb-queues-5.5.0")
    hole = MissingRange(store.root, store.log_begin_offset, store.log_begin_offset + 1000, "")
    monkeypatch.setattr(slots_of_ranges, "open_database", opened_database)
    (found,), _ = bounded(store, [hole], _NONE, _NONE)
    assert found.hidden is not None
    assert [gap.clear_topics for gap in found.hidden.gaps] == [()]


@pytest.mark.parametrize(("slots_max", "is_known"), [(100, True), (5, False)])
def test_with_too_many_slots_behind_lost_bytes_nothing_is_known_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slots_max: int, is_known: bool
) -> None:
    """No record is left behind them, so the slots behind them count, which are more than those of the bytes."""
    forge = Forge(tmp_path / "store", segment_bytes=1 << 16)
    halves = [forge.half(f"H{number}") for number in range(10)]
    root = forge.write()
    (log,) = damage.log_files(root)
    damage.write_bytes(log, halves[1], bytes(log.stat().st_size - halves[1]))
    monkeypatch.setattr(slots_of_ranges, "_SLOTS_MAX", slots_max)
    (found,), _ = bounded(open_store(root), [MissingRange(str(root), halves[1], halves[2], "")], _NONE, _NONE)
    assert (found.hidden is not None) == is_known
