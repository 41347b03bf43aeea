"""Values of rows on small stores: what belongs to which transaction, and what is counted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqtx.readers.log.record_layout import COMMIT
from rmqtx.readers.store.store import HALF_TOPIC, SCHEDULE_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from tests.forge.logs import Forge
from tests.forge.records import Message
from tests.verdicts.transactions.test_forged_stores import judged, settings


@pytest.fixture
def forge(tmp_path: Path) -> Forge:
    return Forge(tmp_path / "store")


def final(name: str, place: int, group: str = "shop") -> Message:
    """A COMMIT record, of a half message that the log need not have."""
    words = (("UNIQ_KEY", name), ("PGROUP", group), ("TRAN_MSG", "true"), ("REAL_TOPIC", "orders"), ("REAL_QID", "1"))
    return Message(queue_id=1, sys_flag=COMMIT, prepared_transaction_offset=place, properties=words)


def test_a_half_that_was_never_checked_waits_and_has_no_other_words(forge: Forge) -> None:
    forge.half("A")
    (row,) = audit([open_store(forge.write())], settings, at_ms=forge.now_ms).table().to_pylist()
    assert row["flags"] == []
    assert [copy["checks_count"] for copy in row["half_copies"]] == [0]
    assert row["reason"] == "half queue offset 0 is at or after the check cursor 0, no op message, no COMMIT record"


def test_a_half_without_checks_left_is_discarded_for_that_and_not_as_expired(forge: Forge) -> None:
    """The check counts before it looks at the age."""
    forge.half("SPENT", checks=15)
    forge.half("OLD")
    rows = audit([open_store(forge.write())], settings, at_ms=forge.now_ms + 80 * 3_600_000).table().to_pylist()
    assert {row["transaction_id"]: "expired" in row["flags"] for row in rows} == {"SPENT": False, "OLD": True}


def test_a_delayed_half_is_no_copy_in_the_half_topic(forge: Forge) -> None:
    place = forge.half("A")
    words = (("REAL_TOPIC", HALF_TOPIC), ("REAL_QID", "0"), ("TRAN_MSG", "true"), ("UNIQ_KEY", "B"), ("PGROUP", "shop"))
    forge.append(Message(topic=SCHEDULE_TOPIC, properties=words))
    rows = judged(forge.write())
    assert [copy["commit_log_offset"] for copy in rows["A"]["half_copies"]] == [place]
    assert rows["B"]["half_copies"] == []


def test_one_commit_in_the_stores_of_a_master_and_its_slave_is_one(forge: Forge, tmp_path: Path) -> None:
    half = forge.half("A")
    forge.commit(half)
    forge.op(half)
    root = forge.write(half_cursor=1, op_cursor=1)
    shutil.copytree(root, tmp_path / "slave")
    (row,) = audit([open_store(root), open_store(tmp_path / "slave")], settings).table().to_pylist()
    assert (row["state"], row["flags"]) == ("COMMITTED", [])


def test_a_commit_record_that_names_no_place_is_not_that_of_the_first_half_of_the_log(forge: Forge) -> None:
    """The schedule service writes the record of a delayed message again, with 0 as the place."""
    forge.half("FIRST")
    forge.append(final("DELAYED", 0))
    assert {name: row["state"] for name, row in judged(forge.write()).items()} == {
        "FIRST": "PENDING", "DELAYED": "COMMITTED"
    }


def test_a_commit_of_an_id_that_two_groups_use_is_that_of_its_group(tmp_path: Path) -> None:
    """Its half copy has expired with the first files of the log."""
    forge = Forge(tmp_path / "store", begin_offset=1 << 20)
    for group in ("shop", "bank"):
        forge.half("SAME", group=group)
    forge.half("LAST")
    forge.append(final("OTHER", 100))
    forge.append(final("SAME", 100, "bank"))
    rows = audit([open_store(forge.write())], settings).table().to_pylist()
    assert {(row["transaction_id"], row["producer_group"], row["state"]) for row in rows} == {
        ("SAME", "shop", "PENDING"), ("SAME", "bank", "COMMITTED"), ("LAST", "shop", "PENDING"),
        ("OTHER", "shop", "COMMITTED"),
    }


@pytest.mark.parametrize(("is_committed", "states"), [
    (False, {"FIRST": "UNDECIDABLE", "SECOND": "UNDECIDABLE"}), (True, {"FIRST": "COMMITTED", "SECOND": "ROLLED_BACK"}),
])
def test_of_two_op_messages_with_one_number_the_first_is_that_of_the_commit(
    forge: Forge, is_committed: bool, states: dict[str, str]
) -> None:
    """The half queue was deleted and began again; without a COMMIT record each op message may be of both halves."""
    first = forge.half("FIRST")
    del forge._slots[HALF_TOPIC, 0]
    second, other = forge.half("SECOND"), forge.half("OTHER")
    if is_committed:
        forge.commit(first)
    for half in (first, second, other):
        forge.op(half)
    rows = judged(forge.write(half_cursor=2, op_cursor=3))
    assert {name: row["state"] for name, row in rows.items()} == {**states, "OTHER": "ROLLED_BACK"}


@pytest.mark.parametrize(("waited_ms", "is_flagged"), [(103_050, False), (102_950, True)])
def test_a_kill_loses_only_decisions_that_an_immune_half_had_time_for(
    forge: Forge, waited_ms: int, is_flagged: bool
) -> None:
    """5.3.3 holds op messages for 3 s, and checks a half only after its 100 s of immunity."""
    forge.half("IMMUNE", immunity=100)
    forge.now_ms += waited_ms - 10
    forge.append(Message())
    root = forge.write()
    (root / "abort").touch()
    assert ("may_be_decided" in judged(root)["IMMUNE"]["flags"]) is is_flagged


def test_a_put_back_copy_behind_a_damaged_first_record_is_undecidable(forge: Forge) -> None:
    """The bytes at place 0 can be its original, and the op message of another: nothing before it proves an order."""
    first = forge.half("FIRST")
    forge.half("COPY", checks=1)
    root = forge.write(half_cursor=1)
    (log,) = (root / "commitlog").iterdir()
    data = log.read_bytes()
    log.write_bytes(data[:first] + b"\xff" * 80 + data[first + 80 :])
    assert judged(root)["COPY"]["state"] == "UNDECIDABLE"
