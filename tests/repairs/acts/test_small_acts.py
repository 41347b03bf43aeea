"""Rules of acts on records and media made by hand: what is refused, what is waited for, what is asked how often."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from rmqtx.readers.model.findings import Finding
from rmqtx.readers.queues.consume_queue import SLOT
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import HALF_TOPIC, SCHEDULE_TOPIC, open_store
from rmqtx.remoting.connections.client import Client
from rmqtx.repairs.acts import carry_out as carry_out_module
from rmqtx.repairs.acts import claims, wait_for_effect
from rmqtx.repairs.acts.carry_out import _Pace, carry_out, checked_acts, late_until_ms
from rmqtx.repairs.acts.check_ahead import CheckAhead
from rmqtx.repairs.acts.claims import GroupWatch, Others
from rmqtx.repairs.acts.file_preconditions import unwritable
from rmqtx.repairs.acts.file_situations import _concerns
from rmqtx.repairs.acts.guard_rules import producer_connected
from rmqtx.repairs.acts.log_tail import LogTail, log_end
from rmqtx.repairs.acts.medium import Tail
from rmqtx.repairs.acts.old_table_entries import _Files
from rmqtx.repairs.acts.orders import ActOrder, CheckedAct, Conduct, Course
from rmqtx.repairs.acts.situation import ActRequest, ReadAgain
from rmqtx.repairs.changes.change_sets import WriteAt
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.receipts import Receipt
from rmqtx.repairs.records.record_writer import writing_rules
from rmqtx.verdicts.check.check_rules import CheckSettings, check_rules
from rmqtx.verdicts.check.window import check_window
from tests.forge import damage
from tests.forge.logs import Forge
from tests.forge.records import FIRST_MS, Message
from tests.repairs.forge import FakeMedium, around, record, row, situation, transaction


@pytest.fixture
def forge(tmp_path: Path) -> Forge:
    return Forge(tmp_path / "store")


@pytest.mark.parametrize("is_contradicted", [False, True])
def test_no_record_is_appended_to_a_queue_whose_last_slot_leads_to_another_record(
    forge: Forge, is_contradicted: bool
) -> None:
    """The record is not in the last file of the log, where the end of the log is searched for."""
    for name in ("A", "B", "C"):
        forge.half(name)
    for _ in range(12):
        forge.append(Message(body=bytes(1_000)))
    forge.now_ms += 10_000  # of the checkpoint: a recovery begins at the last file
    root = forge.write()
    (file,) = damage.queue_files(root, HALF_TOPIC)
    slots = file.read_bytes()
    if is_contradicted:
        damage.write_bytes(file, 2 * damage.SLOT_BYTES, slots[: damage.SLOT_BYTES])
    store = open_store(root)
    rules = writing_rules(broker_settings(store, version="5.3.3"), has_property_crc=False)
    tail = LogTail(store, log_end(store), rules, now_ms=1, abort=None, is_copied=False)
    assert tail.next_offset(HALF_TOPIC) == (None if is_contradicted else 3)


def test_a_settled_half_that_the_check_of_4_4_reads_again_is_found(forge: Forge) -> None:
    """The round ends at the young half, and leaves the op message of the third one behind."""
    begin_ms = FIRST_MS + 60_000
    for name, born_ms in (("FIRST", FIRST_MS), ("YOUNG", begin_ms - 2_000), ("THIRD", FIRST_MS)):
        words = {"REAL_TOPIC": "orders", "REAL_QID": "1", "TRAN_MSG": "true", "UNIQ_KEY": name, "PGROUP": "shop"}
        forge.append(Message(topic=HALF_TOPIC, born_time_ms=born_ms, properties=tuple(words.items())))
    rules = check_rules((4, 4, 0))
    window = check_window(open_store(forge.write()), rules, 0, 0, 0)
    ahead = CheckAhead(window, rules, CheckSettings(6_000, 15, 30_000, 1 << 40), [begin_ms])
    assert ahead.read_again({"THIRD": [2]}, []) == {"THIRD": ReadAgain(2, 1, "YOUNG")}


def test_a_request_without_an_answer_may_arrive_for_a_minute(journal: Journal) -> None:
    receipt = Receipt(ActKind.COMMIT, "T1", "broker-a@h:1")
    journal.begin(receipt)
    (kept,) = journal.read().receipts
    assert late_until_ms(journal) == {"T1": (kept.unanswered_time_ms or 0) + 60_000}


def test_a_broker_is_asked_for_new_copies_twenty_times_a_second_at_most(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counting(FakeMedium):
        asked = 0

        def tail(self, transaction_ids: Collection[str]) -> Tail:
            self.asked += 1
            return super().tail(transaction_ids)

    monkeypatch.setattr(wait_for_effect, "_PAUSES_SECONDS", (0.2,))
    medium = Counting({"T1": row()})
    acts = checked_acts([ActOrder("T1", ActRequest(ActKind.COMMIT))], medium, Conduct())
    carry_out(acts, medium, journal, Conduct(prove_ms=300), lambda _: None)
    assert 1 <= medium.asked <= 12


@pytest.mark.parametrize(("action", "words"), [
    (ActKind.REDELIVER, "if its local transaction still runs"), (ActKind.COMMIT, "its own decision may follow this"),
])
def test_a_connected_producer_is_a_reason_of_its_own_for_a_second_delivery(action: ActKind, words: str) -> None:
    found = producer_connected(situation(surroundings=around(producers=("p at 10.0.0.1:4",))), ActRequest(action))
    assert found is not None
    assert words in found[0]


def test_damage_directly_before_a_record_is_not_damage_of_that_record() -> None:
    one = Finding("store", "record-damaged", "file", 0, 100, commit_log_offset=600)
    assert not _concerns(one, transaction(), {700}, is_prepared=False)
    assert _concerns(one, transaction(), {699}, is_prepared=False)


def test_a_half_that_waits_for_its_delay_is_refused_with_the_topic_in_which_it_waits(forge: Forge) -> None:
    words = (("REAL_TOPIC", HALF_TOPIC), ("REAL_QID", "0"), ("TRAN_MSG", "true"), ("UNIQ_KEY", "T1"))
    raw = Message(topic=SCHEDULE_TOPIC, properties=words).record(0)
    store = open_store(forge.write())
    rules = writing_rules(broker_settings(store, version="5.3.3"), has_property_crc=False)
    found = unwritable(situation(half_copy=None, named=replace(record(), raw=raw)), rules, {}, {})
    assert set(found.values()) == {f"its half message is delayed: the remaining copy is in {SCHEDULE_TOPIC}"}
    assert ActKind.COMMIT in found


def test_a_half_with_a_damaged_body_is_refused_with_the_place_of_the_damage(forge: Forge) -> None:
    raw = Message(topic=HALF_TOPIC, crc=7).record(700)
    store = open_store(forge.write())
    rules = writing_rules(broker_settings(store, version="5.3.3"), has_property_crc=False)
    found = unwritable(situation(named=replace(record(), raw=raw)), rules, {}, {})
    words = "the CRC of the body at commit-log offset 700 is wrong"
    assert found == dict.fromkeys((ActKind.COMMIT, ActKind.DISCARD, ActKind.RESUME), words)


def test_a_receipt_names_the_copy_that_was_acted_on_or_else_that_of_the_situation() -> None:
    """Without it `receipts --recheck` cannot compare the store with what was done."""
    first, newest = replace(record(), queue_offset=4), replace(record(), queue_offset=9)
    act = CheckedAct(ActOrder("T1", ActRequest(ActKind.COMMIT)), situation(named=first))
    assert act.begin(Conduct()).named_copy == first.place()
    act.named = newest
    assert act.begin(Conduct()).named_copy == newest.place()


def test_a_unit_goes_to_the_begin_of_a_file_of_another_size() -> None:
    """The configured size of new files was changed after the last file was made."""
    files = _Files("transaction/redolog", SLOT, {0: 100, 100: 300}, 200, place=100)
    files.append(b"unit")
    assert list(files.steps()) == [WriteAt(f"transaction/redolog/{100:020}", 0, b"unit")]


def test_a_half_of_the_future_is_read_again_before_its_op_message_is(forge: Forge) -> None:
    """The clock of its producer is ahead: the check asks about it at once, and pulls 32 op messages before that."""
    begin_ms = FIRST_MS + 60_000
    words = {"REAL_TOPIC": "orders", "REAL_QID": "1", "TRAN_MSG": "true", "UNIQ_KEY": "FUTURE", "PGROUP": "shop"}
    forge.append(Message(topic=HALF_TOPIC, born_time_ms=begin_ms + 90_000, properties=tuple(words.items())))
    rules = check_rules((5, 3, 3))
    window = check_window(open_store(forge.write()), rules, 0, 0, 0)
    ahead = CheckAhead(window, rules, CheckSettings(6_000, 15, 30_000, 1 << 40), [begin_ms])
    assert ahead.read_again({"FUTURE": [0]}, [1_000] * 31) == {}
    assert ahead.read_again({"FUTURE": [0]}, [1_000] * 32) == {"FUTURE": ReadAgain(0, 1, "FUTURE")}


class Clock:
    """In place of the module `time`: sleeping moves it."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_acts_begin_at_the_pace_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else --max-per-second 2 sends all decisions at once to a broker that is busy."""
    for per_second, gap_seconds in ((2.0, 0.5), (0.5, 2.0), (None, 0.0)):
        clock = Clock()
        monkeypatch.setattr(carry_out_module, "time", clock)
        pace, begun = _Pace(per_second, Course()), []
        for _ in range(3):
            pace.wait()
            begun.append(clock.now - 100)
        assert begun == pytest.approx([0, gap_seconds, 2 * gap_seconds])


def test_a_group_is_alone_since_its_last_other_member_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """`answer` waits for it: else it answers in place of a producer that connects again, or never."""
    clock, seen = Clock(), Others()
    monkeypatch.setattr(claims, "time", clock)
    watch = GroupWatch(Client(), [], "shop")
    monkeypatch.setattr(watch, "_look", lambda: seen)
    assert not watch.seen.has_none
    for others, alone_ms in (
        (Others(), 5_000), (Others(members=("p at 10.0.0.1:4",)), 0), (Others(), 5_000), (Others(rivals=("r",)), 0),
        (Others(unknown="no answer"), 0), (Others(), 5_000), (Others(), 10_000),
    ):
        clock.now, seen = clock.now + 5, others
        assert watch.look() == others
        assert watch.alone_ms == alone_ms
