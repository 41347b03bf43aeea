"""Single rules on stores small enough to be read by eye."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import HALF_TOPIC, Store, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending
from rmqtx.verdicts.audit.timeline import StoreTimelineSource
from rmqtx.verdicts.transactions.flags import FLAGS
from tests.forge import damage
from tests.forge.logs import Forge
from tests.forge.records import FIRST_MS, Message

Row = dict[str, Any]


def settings(store: Store) -> BrokerSettings:
    """Those of a 5.3.3 broker that looked at everything fifteen times."""
    conf = {"transactionCheckMax": "15", "transactionTimeOut": "6000", "transactionCheckInterval": "30000"}
    return broker_settings(store, conf=conf, version="5.3.3")


def judged(root: Path) -> dict[str, Row]:
    return {row["transaction_id"]: row for row in audit([open_store(root)], settings).table().to_pylist()}


@pytest.fixture
def forge(tmp_path: Path) -> Forge:
    return Forge(tmp_path / "store")


@pytest.mark.parametrize(("version", "is_closed"), [(1, True), (1, False), (2, True), (2, False)])
def test_each_way_to_end(tmp_path: Path, version: int, is_closed: bool) -> None:
    forge = Forge(tmp_path / "store", version=version, is_closed=is_closed)
    committed = forge.half("COMMITTED")
    rolled_back = forge.half("ROLLED_BACK")
    pending_first = forge.half("PENDING")
    discarded = forge.half("DISCARDED", checks=14)
    forge.half("LOST")
    final = forge.commit(committed)
    op = forge.op(committed, rolled_back)
    copy = forge.discard(discarded)
    pending_next = forge.half("PENDING", checks=1)
    rows = judged(forge.write(half_cursor=forge.queue_offset(pending_next), op_cursor=1))
    assert {name: row["state"] for name, row in rows.items()} == {name: name for name in rows}
    assert [entry["commit_log_offset"] for entry in rows["COMMITTED"]["final_records"]] == [final]
    assert [entry["commit_log_offset"] for entry in rows["ROLLED_BACK"]["op_marks"]] == [op]
    assert [entry["commit_log_offset"] for entry in rows["DISCARDED"]["discard_copies"]] == [copy]
    places = [entry["commit_log_offset"] for entry in rows["PENDING"]["half_copies"]]
    assert places == [pending_first, pending_next]
    assert all(flag in FLAGS for row in rows.values() for flag in row["flags"])


def test_a_decision_on_an_old_copy_and_a_second_commit(forge: Forge) -> None:
    first = forge.half("TWICE")
    forge.half("OLD")
    later = forge.half("OLD", checks=1)
    forge.commit(first)
    forge.op(first)
    forge.commit(first)
    forge.commit(later)
    rows = judged(forge.write(half_cursor=0))
    assert "duplicate_commit" in rows["TWICE"]["flags"]
    assert "commit_without_op" in rows["OLD"]["flags"]
    assert rows["OLD"]["advice"] == "close"


def test_checks_within_the_immunity_time(forge: Forge) -> None:
    """Discarded without any question: each check was counted while the half message was immune."""
    last = {}
    for name, immunity, pause_ms in (("UNASKED", 3600, 0), ("ASKED", 1, 2000), ("PLAIN", None, 0), ("CUT", 3600, 0)):
        forge.half(name, immunity=immunity)
        forge.half(name, immunity=immunity, checks=1)
        forge.now_ms += pause_ms
        last[name] = forge.half(name, immunity=immunity, checks=2)
    forge.half("OPEN", immunity=3600)
    forge.half("OPEN", immunity=3600, checks=1)
    for half in last.values():
        forge.discard(half)
    cursor = forge.half("BEHIND")
    root = forge.write(half_cursor=forge.queue_offset(cursor))
    damage.flip_byte(damage.log_files(root)[last["CUT"] // 4096], last["CUT"] % 4096 + 84)
    rows = judged(root)
    assert {name for name, row in rows.items() if "discarded_unasked" in row["flags"]} == {"UNASKED"}
    assert rows["UNASKED"]["reason"].endswith("its immunity time, in which the broker does not ask")


@pytest.mark.parametrize(("version", "is_immune"), [("5.3.3", False), ("5.3.4", True)])
def test_a_half_as_old_as_its_immunity_time_is_immune_from_5_3_4_on(
    forge: Forge, version: str, is_immune: bool
) -> None:
    forge.half("DISCARDED", immunity=1)
    at_ms = FIRST_MS + 1_000  # a second after the birth of both
    forge.now_ms = at_ms - 10
    checked = forge.half("DISCARDED", immunity=1, checks=1)
    forge.now_ms = at_ms - 10
    half = forge.half("OPEN", immunity=1)
    forge.discard(checked)
    store = open_store(forge.write(half_cursor=forge.queue_offset(half)))
    settings = broker_settings(store, conf={"transactionCheckMax": "1"}, version=version)
    now, then = (audit([store], lambda _: settings, at_ms=time_ms).table().to_pylist() for time_ms in (None, at_ms))
    assert ["discarded_unasked" in row["flags"] for row in now if row["transaction_id"] == "DISCARDED"] == [is_immune]
    assert ["immune" in row["flags"] for row in then if row["transaction_id"] == "OPEN"] == [is_immune]
    name = StoreTimelineSource(store, settings).records([checked])[checked]
    assert name.is_immune == is_immune


def test_copies_in_many_files_are_one_transaction(forge: Forge) -> None:
    places = []
    for number in range(40):
        places.append(forge.half("A", checks=number or None))
        forge.half(f"OTHER{number}")
    store = open_store(forge.write(half_cursor=79))
    assert len(store.commit_log) > 3
    row = judged(forge.root)["A"]
    assert [entry["commit_log_offset"] for entry in row["half_copies"]] == places
    assert row["checks_count"] == 39


def test_one_id_used_by_two_groups_is_two_transactions(forge: Forge) -> None:
    one = forge.half("SAME", group="shop")
    forge.half("SAME", group="bank")
    forge.commit(one)
    forge.op(one)
    rows = audit([open_store(forge.write())], settings).table().to_pylist()
    assert {(row["producer_group"], row["state"]) for row in rows} == {("shop", "COMMITTED"), ("bank", "PENDING")}


def test_no_cursor_entry_means_that_the_check_begins_at_the_first_half(forge: Forge) -> None:
    forge.half("A")
    assert judged(forge.write(half_cursor=None, op_cursor=None))["A"]["state"] in ("PENDING", "UNDECIDABLE")


def test_a_log_that_begins_later(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store", begin_offset=1 << 20)
    forge.half("COPY", checks=3)
    fresh = forge.half("FRESH")
    forge.op(fresh)
    rows = judged(forge.write(half_cursor=2))
    assert rows["FRESH"]["state"] == "ROLLED_BACK"
    assert rows["COPY"]["state"] == "UNDECIDABLE"
    assert "begins later" in rows["COPY"]["reason"]


def test_an_op_with_a_wrong_crc_is_mended_or_undecidable(forge: Forge) -> None:
    one, other = forge.half("ONE"), forge.half("OTHER")
    op = forge.op(one, other)
    forge.half("LATER")
    root = forge.write(half_cursor=2)
    (file,) = damage.log_files(root)
    damage.flip_byte(file, op + 88, 0x01)  # "0,1," becomes "1,1,"
    rows = judged(root)
    assert rows["ONE"]["state"] == rows["OTHER"]["state"] == "UNDECIDABLE"
    assert str(op) in rows["ONE"]["reason"]
    assert rows["LATER"]["state"] == "PENDING"


@pytest.mark.parametrize(
    ("part", "place"),
    [("body length", 87), ("topic length", 88 + 7), ("magic", 6), ("offset", 35), ("length", 3), ("host flag", 39)],
)
def test_damage_concerns_only_its_own_transaction(forge: Forge, part: str, place: int) -> None:
    """Whatever header byte of a final is wrong, the bytes still say whose they are."""
    one = forge.half("ONE")
    forge.half("OTHER")
    body = forge.commit(one)
    forge.half("FURTHER")
    forge.op(one)
    root = forge.write(half_cursor=1)
    (file,) = damage.log_files(root)
    where = body + (88 + len("ONE") if part == "topic length" else place)
    damage.flip_byte(file, where, 0x10)
    rows = judged(root)
    # No release compares the own offset of a record that it reads: only that is damaged.
    state = "COMMITTED" if part == "offset" else "UNDECIDABLE"
    assert {name: row["state"] for name, row in rows.items()} == {
        "ONE": state, "OTHER": "PENDING", "FURTHER": "PENDING"
    }
    assert str(body) in rows["ONE"]["reason"]


@pytest.mark.parametrize("place", [3, 6, 15, 27, 35, 39, 87, 88 + 4, 88 + 5 + 20])
def test_a_damaged_op_still_says_whom_it_concerns(forge: Forge, place: int) -> None:
    """Length, magic, queue, number, offset, host flag, body length, topic length, topic of the only op."""
    one, other = forge.half("ONE"), forge.half("OTHER")
    forge.half("FURTHER")
    op = forge.op(one, other)
    root = forge.write(half_cursor=2)
    damage.flip_byte(damage.log_files(root)[0], op + place, 0x10)
    states = {name: row["state"] for name, row in judged(root).items()}
    state = "ROLLED_BACK" if place == 35 else "UNDECIDABLE"  # no release compares the own offset
    assert states == {"ONE": state, "OTHER": state, "FURTHER": "PENDING"}


def test_an_op_of_a_half_that_cannot_be_read_is_told(forge: Forge) -> None:
    one, other = forge.half("ONE"), forge.half("OTHER")
    forge.half("FURTHER")
    forge.op(one, other)
    root = forge.write(half_cursor=2)
    damage.flip_byte(damage.log_files(root)[0], one + 3, 0x10)
    assert {name: row["flags"] for name, row in judged(root).items() if "orphan_op" in row["flags"]} == {
        "ONE": ["orphan_op"]
    }


def test_an_ordinary_message_with_a_commit_flag_is_no_final(forge: Forge) -> None:
    forge.append(Message(sys_flag=0x8, properties=(("UNIQ_KEY", "X"),)))
    assert judged(forge.write()) == {}


def test_a_message_that_a_consumer_sent_back_is_no_final(forge: Forge) -> None:
    words = (("UNIQ_KEY", "A"), ("PGROUP", "shop"), ("TRAN_MSG", "true"), ("REAL_TOPIC", "orders"), ("REAL_QID", "1"))
    half = forge.half("A")
    forge.commit(half)
    forge.op(half)
    forge.append(Message(topic="%RETRY%warehouse", sys_flag=0x8, reconsume_times=1, properties=words))
    row = judged(forge.write(half_cursor=1))["A"]
    assert len(row["final_records"]) == 1
    assert row["flags"] == []


def test_a_half_queue_that_is_behind_its_log_is_no_damage(forge: Forge) -> None:
    """A killed broker dispatches what is not in its queues when it starts again."""
    for number in range(5):
        forge.half(f"ID{number}")
    root = forge.write(half_cursor=0)
    (file,) = damage.queue_files(root, HALF_TOPIC)
    damage.zero_bytes(file, 60, 40)
    (root / "abort").touch()
    assert {row["state"] for row in judged(root).values()} == {"PENDING"}
    assert {row["transaction_id"] for row in pending([open_store(root)], settings).table().to_pylist()} == {
        f"ID{number}" for number in range(5)
    }
