"""Half queue offsets that several half messages have, or that are not the number of their slot."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.log.record_layout import AT
from rmqtx.readers.log.splits import WorkDivision
from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import HALF_TOPIC, Store, open_store
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.live import lookups as live
from rmqtx.repairs.acts import carry_out
from rmqtx.repairs.acts.wait_for_effect import prove
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending, show
from rmqtx.verdicts.ends.taken_numbers import shared_ranges
from rmqtx.verdicts.model.predicted import open_rows
from tests.cli.conftest import Run
from tests.cli.conftest import journal_directory as journal_directory
from tests.cli.conftest import rmqtx as rmqtx
from tests.field import field_stores, right
from tests.forge.damage import flip_byte, log_files, queue_files, write_bytes
from tests.forge.logs import Forge
from tests.forge.stores import copy_of, settings_of
from tests.remoting.fake import FakeServer
from tests.remoting.store_broker import StoreBroker
from tests.verdicts import truth
from tests.verdicts.following import Followed
from tests.verdicts.verifying import findings

Row = dict[str, Any]
OLD_HALF, NEW_HALF = "C916838598CB4102D9288DA920570ECC", "F9BC389DEA896255C3F460E233E7950A"


def settings(store: Store) -> BrokerSettings:
    return broker_settings(store, version="5.3.3")


def by_offset(rows: list[Row]) -> dict[int, Row]:
    return {row["half_copies"][0]["commit_log_offset"]: row for row in rows}


def audited(root: Path, **how: Any) -> dict[int, Row]:
    return by_offset(audit([open_store(root)], settings, **how).table().to_pylist())


def states(rows: dict[int, Row]) -> dict[int, str]:
    return {offset: row["state"] for offset, row in rows.items()}


def wanted(name: str) -> dict[int, str]:
    """The states by offset; "as 4570" refers to another one."""
    texts = right(name)["by_log_offset"]
    whole = {place: texts[text.split()[-1]] if text.startswith("as ") else text for place, text in texts.items()}
    return {int(place): text.split(",")[0].split(":")[0] for place, text in whole.items()}


def two_halves_one_number(tmp_path: Path) -> Path:
    """The last half (3103) has the queue offset 8 of the one before it (2759), and its slot."""
    root = field_stores("foreign-message-id", tmp_path) / "store"
    [log] = (root / "commitlog").iterdir()
    data = bytearray(log.read_bytes())
    data[3103 + 20 : 3103 + 28] = (8).to_bytes(8, "big")
    log.write_bytes(data)
    [file] = queue_files(root, HALF_TOPIC)
    slots = file.read_bytes()
    file.write_bytes(slots[:160] + slots[180:200] + bytes(len(slots) - 180))
    return root


def shifted(tmp_path: Path) -> Path:
    """The half queue begins with the third half message: each is two slots before its number."""
    root = field_stores("foreign-message-id", tmp_path) / "store"
    [file] = queue_files(root, HALF_TOPIC)
    slots = file.read_bytes()
    file.write_bytes(slots[40:200] + bytes(len(slots) - 160))
    return root


# --- a half queue that was deleted ----


@pytest.fixture
def restarted(tmp_path: Path) -> Path:
    return field_stores("queue-restarted", tmp_path) / "store"


def test_each_half_of_a_restarted_queue_has_the_state_that_its_broker_gave_it(restarted: Path) -> None:
    rows = audited(restarted)
    assert states(rows) == wanted("queue-restarted")
    assert "ROLLED_BACK" not in states(rows).values()
    assert "the op message at 4429" in rows[4570]["reason"]
    assert [rows[place]["reason_code"] for place in (1035, 3103, 4570)] == [
        "without_slot", "without_slot", "hidden_by_number"
    ]
    assert {place for place, row in rows.items() if "number_shared" in row["flags"]} == {
        0, 345, 690, 1035, 4570, 4916, 5262, 5608
    }
    assert {place for place, row in rows.items() if "number_taken" in row["flags"]} == {
        place for place in rows if place < 4000
    }


@pytest.mark.parametrize("make", ["restarted", "two", "shifted"])
def test_every_way_to_read_gives_the_same(make: str, tmp_path: Path) -> None:
    root = {
        "restarted": lambda: field_stores("queue-restarted", tmp_path) / "store",
        "two": lambda: two_halves_one_number(tmp_path), "shifted": lambda: shifted(tmp_path),
    }[make]()
    whole = audit([open_store(root)], settings)
    rows = whole.table()
    listed = pending([open_store(root)], settings)
    assert listed.table().to_pylist() == open_rows(rows).to_pylist()
    for reading in (whole, listed):
        assert "half-number-taken" in {finding.code for finding in reading.findings}
    for row in rows.to_pylist():
        assert show([open_store(root)], settings, row["transaction_id"]).table().to_pylist() == [row]
    assert audit([open_store(root)], settings, work=WorkDivision(1500)).table().to_pylist() == rows.to_pylist()
    assert list(audit([open_store(root)], settings, processes=2).table().to_pylist()) == rows.to_pylist()


@pytest.mark.parametrize("name", ["queue-restarted", "two"])
def test_verify_finds_it(name: str, tmp_path: Path) -> None:
    root = two_halves_one_number(tmp_path) if name == "two" else field_stores(name, tmp_path) / "store"
    assert "half-number-taken" in {row["code"] for row in findings(root)}


def test_a_live_broker_shows_what_its_slots_show(restarted: Path) -> None:
    store = open_store(restarted)
    with FakeServer(StoreBroker(store, settings(store), "5.3.3")) as server, Client() as client:
        broker = Broker(client, server.address, "b", "c")
        every = live.audit([broker])
        assert states(by_offset(every.table().to_pylist())) == {
            place: state for place, state in wanted("queue-restarted").items() if place > 4429
        }
        assert [finding.code for finding in every.findings] == ["half-number-taken"]
        listed = live.pending([broker]).table().to_pylist()
        assert list(by_offset(listed)) == [5608]
        old = by_offset(live.lookup([broker], [OLD_HALF, "9F9E2BA5D3EE47FB64883E5DDBF33ED6"]).table().to_pylist())
        assert states(old) == {1035: "LOST", 1380: "LOST"}
        assert all("number_taken" in row["flags"] for row in old.values())


def test_without_a_half_queue_it_is_unknown_which_one_is_read(restarted: Path) -> None:
    shutil.rmtree(restarted / "consumequeue" / HALF_TOPIC)
    rows = audited(restarted)
    assert {rows[place]["reason_code"] for place in (1035, 5608)} == {"slot_unknown"}
    assert states(rows)[0] == "COMMITTED"


def test_the_follower_sees_the_same(restarted: Path, tmp_path: Path) -> None:
    followed = Followed([restarted], tmp_path / "checkpoint", settings)
    for _ in range(2):
        followed.assert_current()
        followed.restart()


# --- two half messages with one number, and shifted slots ----


def test_of_two_halves_with_one_number_only_that_in_the_slot_is_pending(tmp_path: Path) -> None:
    rows = audited(two_halves_one_number(tmp_path))
    assert states(rows) | {2759: "LOST", 3103: "PENDING"} == states(rows)
    assert list(states(rows).values()).count("PENDING") == 6


def test_the_check_skips_shifted_slots_for_the_op_messages_of_others(tmp_path: Path) -> None:
    """An op message names 0, 1 and 2, which were committed; slots 1 and 2 have halves 3 and 4."""
    rows = audited(shifted(tmp_path))
    names = ["COMMITTED"] * 3 + ["LOST"] * 2 + ["PENDING"] * 5
    assert list(states(rows).values()) == names
    assert all("masked" in rows[place]["flags"] for place in (1035, 1380))
    assert all(row["flags"] == ["number_taken"] for row in rows.values() if row["state"] == "PENDING")


# --- which half an op message decides ----


def duplicate(forge: Forge, name: str) -> int:
    """A half message with the queue offset of the last one: a failover before 5.2.0."""
    forge._slots[HALF_TOPIC, 0].pop()
    return forge.half(name)


def judged(forge: Forge) -> dict[str, Row]:
    rows = audit([open_store(forge.write())], settings).table().to_pylist()
    return {row["transaction_id"]: row for row in rows}


def test_the_op_message_of_a_commit_decides_no_other_half(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    first = forge.half("A")
    duplicate(forge, "B")
    forge.commit(first)
    forge.op(first)
    rows = judged(forge)
    assert rows["A"]["state"] == "COMMITTED"
    assert (rows["B"]["state"], rows["B"]["reason_code"]) == ("LOST", "hidden_by_number")


@pytest.mark.parametrize(("after_ms", "state"), [(63_000, "LOST"), (63_001, "UNDECIDABLE")])
def test_an_op_message_long_after_a_commit_may_decide_another_half(tmp_path: Path, after_ms: int, state: str) -> None:
    """A minute more than the time for which a broker collects op messages is long."""
    forge = Forge(tmp_path / "store")
    first = forge.half("A")
    duplicate(forge, "B")
    forge.commit(first)
    forge.now_ms += after_ms - 10
    forge.op(first)
    rows = judged(forge)
    assert (rows["A"]["state"], rows["B"]["state"]) == ("COMMITTED", state)


def test_an_op_message_that_may_mean_two_halves_decides_none(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    first = forge.half("A")
    duplicate(forge, "B")
    forge.op(first)
    rows = judged(forge)
    for name in "AB":
        assert (rows[name]["state"], rows[name]["reason_code"]) == ("UNDECIDABLE", "op_of_several")
        assert "half queue offset 0" in rows[name]["reason"]


def test_an_op_message_that_only_one_half_can_mean_decides_it(tmp_path: Path) -> None:
    """The first is older than the second half; the second one is left for that half."""
    forge = Forge(tmp_path / "store")
    first = forge.half("A")
    forge.op(first)
    second = duplicate(forge, "B")
    rows = judged(forge)
    assert (rows["A"]["state"], rows["B"]["state"]) == ("ROLLED_BACK", "LOST")
    assert "masked" in rows["B"]["flags"]
    forge.op(second)
    rows = judged(forge)
    assert (rows["A"]["state"], rows["B"]["state"]) == ("ROLLED_BACK", "ROLLED_BACK")


def test_an_op_message_before_the_op_cursor_hides_nothing(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    first = forge.half("A")
    forge.op(first)
    duplicate(forge, "B")
    root = forge.write(op_cursor=1)
    rows = {row["transaction_id"]: row for row in audit([open_store(root)], settings).table().to_pylist()}
    assert (rows["A"]["state"], rows["B"]["state"]) == ("ROLLED_BACK", "PENDING")
    assert "masked" not in rows["B"]["flags"]


def refused(tmp_path: Path, count: int) -> Path:
    """5.0.0 and 5.1.0 give a refused half message a number but no slot; the next start numbers by slots again.

    So the half messages between them are in the slot before their number, and the last of them and D have the same.
    """
    forge = Forge(tmp_path / "store", segment_bytes=8192)
    slots = forge._slots[HALF_TOPIC, 0]
    forge.half("A")
    slots.append(b"")
    for number in range(count):
        forge.half(f"B{number}")
    slots.remove(b"")
    forge.half("D")
    return forge.write()


@pytest.mark.parametrize("count", [2, 5])
def test_two_slots_with_half_messages_of_one_number_are_seen_live_too(count: int, tmp_path: Path) -> None:
    """The flag was missing live, so an act did not know that its op message would end the check of both."""
    store = open_store(refused(tmp_path, count))
    columns = ["transaction_id", "state", "reason_code"]
    files = audit([store], settings).table()
    with FakeServer(StoreBroker(store, settings(store), "5.1.0")) as server, Client() as client:
        broker = Broker(client, server.address, "b", "c")
        every, listed = live.audit([broker]), live.pending([broker])
        assert every.table().select(columns).to_pylist() == files.select(columns).to_pylist()
        rows = every.table().to_pylist()
        shown = [live.show([broker], row["transaction_id"]).table().to_pylist() for row in rows]
    shared = {row["transaction_id"] for row in files.to_pylist() if "number_shared" in row["flags"]}
    assert shared == {f"B{count - 1}", "D"}
    for reading in (rows, listed.table().to_pylist(), [row for each in shown for row in each]):
        assert {row["transaction_id"] for row in reading if "number_shared" in row["flags"]} == shared
    assert "half-number-taken" in {finding.code for finding in every.findings}


def passed(tmp_path: Path, *, is_commit: bool) -> Path:
    """The same, and B is decided: the check puts it back, and passes C, whose slot has the number of B."""
    forge = Forge(tmp_path / "store", segment_bytes=8192)
    slots = forge._slots[HALF_TOPIC, 0]
    forge.half("A")
    slots.append(b"")
    decided = forge.half("B")
    forge.half("C")
    forge.half("D")
    if is_commit:
        forge.commit(decided)
    forge.op(decided)
    for name in "ABD":
        forge.half(name, checks=1)
    slots.remove(b"")
    return forge.write(half_cursor=4, op_cursor=1)


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_reason_and_the_causes_behind_a_refused_half_message(is_commit: bool, tmp_path: Path) -> None:
    """Of C the reason was check_passed and the cause acting-slave-gave-up?, of B the cause was cursor-went-back?."""
    store = open_store(passed(tmp_path, is_commit=is_commit))
    with FakeServer(StoreBroker(store, settings(store), "5.1.0")) as server, Client() as client:
        readings = [audit([store], settings), live.audit([Broker(client, server.address, "b", "c")])]
        tables = [reading.table().to_pylist() for reading in readings]
    for rows in tables:
        found = {row["transaction_id"]: (row["state"], row["reason_code"], row["causes"]) for row in rows}
        state = ("COMMITTED", "commit_record") if is_commit else ("ROLLED_BACK", "op_message")
        assert found["B"] == (*state, ["op-names-another-slot"])
        assert found["C"] == ("LOST", "hidden_by_number", ["hidden-by-another-decision"])
        assert [found[name][0] for name in "AD"] == ["PENDING", "PENDING"]
    masked = {row["transaction_id"] for row in tables[0] if "masked" in row["flags"]}
    assert masked == {"C"}
    reason = next(row["reason"] for row in tables[0] if row["transaction_id"] == "C")
    assert "names slot 2" in reason


@pytest.mark.parametrize(("count", "version"), [(2, "5.1.0"), (5, "5.1.0"), (2, "5.3.3")])
def test_behind_the_check_cursor_an_op_message_of_two_half_messages_decides_none_live_too(
    count: int, version: str, tmp_path: Path
) -> None:
    """`pending` and `show` gave the one that is open, or looked up, the state ROLLED_BACK; it may be the other's.

    A broker of a later release may have a log that 5.1.0 wrote.
    """
    forge = Forge(tmp_path / "store", segment_bytes=8192)
    slots = forge._slots[HALF_TOPIC, 0]
    forge.half("A")
    slots.append(b"")
    for number in range(count):
        last = forge.half(f"B{number}")
    slots.remove(b"")
    forge.half("D")
    forge.op(last)
    forge.half(f"B{count - 1}", checks=1)
    store = open_store(forge.write(half_cursor=count + 2, op_cursor=1))
    files = {row["transaction_id"]: row for row in audit([store], settings).table().to_pylist()}
    both = {f"B{count - 1}", "D"}
    assert {name for name, row in files.items() if row["reason_code"] == "op_of_several"} == both
    with FakeServer(StoreBroker(store, settings(store), version, booted_ms=1 << 42)) as server, Client() as client:
        broker = Broker(client, server.address, "b", "c")
        readings = [live.pending([broker]), *(live.show([broker], name) for name in both)]
        rows = [row for reading in readings for row in reading.table().to_pylist()]
    assert [row["transaction_id"] for row in rows[:1]] == [f"B{count - 1}"]
    assert {row["transaction_id"] for row in rows} == both
    for row in rows:
        assert (row["state"], row["reason_code"]) == ("UNDECIDABLE", "op_of_several")
        assert "number_shared" in row["flags"]


def settings_of_refusing(store: Store) -> BrokerSettings:
    return broker_settings(store, version="5.1.0")


def one_between(tmp_path: Path, *, decided: str = "", damaged_number: int | None = None) -> Store:
    """One half message between a refused one and a start: A is in slot 0, B (number 2) in slot 1, C (number 2) in 2.

    `decided`: the names of those that an op message decides, in its order, after C. `damaged_number`: B has this one
    instead, and no half message was refused.
    """
    forge = Forge(tmp_path / "store", segment_bytes=8192)
    slots = forge._slots[HALF_TOPIC, 0]
    places = {"A": forge.half("A")}
    if damaged_number is None:
        slots.append(b"")
    places["B"] = forge.half("B")
    if damaged_number is None:
        slots.remove(b"")
    places["C"] = forge.half("C")
    for name in decided:
        forge.op(places[name])
    root = forge.write()
    if damaged_number is not None:
        write_bytes(root / "commitlog" / f"{0:020d}", places["B"] + 20, damaged_number.to_bytes(8, "big"))
    return open_store(root)


def codes(report: Any) -> set[str]:
    return {finding.code for finding in report.findings}


def states_of(store: Store, settings_of: Any = settings_of_refusing) -> dict[str, tuple[str, str]]:
    rows = audit([store], settings_of).table().to_pylist()
    return {row["transaction_id"]: (row["state"], row["reason_code"]) for row in rows}


def test_one_half_message_behind_a_refused_one_is_in_another_slot_and_not_damaged(tmp_path: Path) -> None:
    """Its number was taken for a damaged one: UNDECIDABLE, where a live broker shows a state."""
    store = one_between(tmp_path)
    assert states_of(store) == dict.fromkeys("ABC", ("PENDING", "check_to_come"))
    report = audit([store], settings_of_refusing)
    rows = report.table()
    assert {row["transaction_id"] for row in rows.to_pylist() if "number_shared" in row["flags"]} == {"B", "C"}
    assert codes(report) == {"half-number-taken", "slot-mismatch"}
    assert pending([store], settings_of_refusing).table().to_pylist() == open_rows(rows).to_pylist()


@pytest.mark.parametrize("version", ["5.1.0", "5.3.3"])
def test_an_op_message_that_names_its_number_may_be_of_either(version: str, tmp_path: Path) -> None:
    """C was ROLLED_BACK with certainty: its number was also that of B, which may be the one that was rolled back.

    Also after an upgrade: nothing shows which release wrote a record.
    """
    store = one_between(tmp_path, decided="B")
    both = ("UNDECIDABLE", "op_of_several")
    found = states_of(store, lambda one: broker_settings(one, version=version))
    assert found == {"A": ("PENDING", "check_to_come"), "B": both, "C": both}
    for name in "BC":
        shown = show([store], lambda one: broker_settings(one, version=version), name).table().to_pylist()
        assert [(row["state"], row["reason_code"]) for row in shown] == [both]


@pytest.mark.parametrize("version", ["5.1.0", "5.3.3"])
def test_an_op_message_that_names_the_slot_may_be_that_of_a_damaged_number(version: str, tmp_path: Path) -> None:
    store = one_between(tmp_path, decided="B", damaged_number=2)
    # The op message names 1, which was the number of B.
    report = audit([store], lambda one: broker_settings(one, version=version))
    found = {row["transaction_id"]: (row["state"], row["reason_code"]) for row in report.table().to_pylist()}
    assert found["B"] == ("UNDECIDABLE", "log_missing")
    assert "slot-mismatch" in codes(report)
    # Live it was LOST, as if the op message was that of another half message.
    known = broker_settings(store, version=version)
    with FakeServer(StoreBroker(store, known, version)) as server, Client() as client:
        broker = Broker(client, server.address, "b", "c")
        readings = [live.audit([broker]), live.show([broker], "B")]
        rows = [row for one in readings for row in one.table().to_pylist() if row["transaction_id"] == "B"]
    assert [(row["state"], row["reason_code"]) for row in rows] == [("UNDECIDABLE", "log_missing")] * 2


@pytest.mark.parametrize(("version", "number"), [("4.9.7", 2), ("5.1.0", 0), ("5.1.0", 900)])
def test_an_earlier_release_or_another_distance_is_a_damaged_number(version: str, number: int, tmp_path: Path) -> None:
    store = one_between(tmp_path, damaged_number=number)
    found = states_of(store, lambda one: broker_settings(one, version=version))
    assert found["B"] == ("UNDECIDABLE", "log_missing")


def test_a_damaged_number_of_a_pending_half_message_stays_noticed(tmp_path: Path) -> None:
    """Nothing shows whether a half message was refused, so its state is that of both, and a finding is there."""
    store = one_between(tmp_path, damaged_number=2)
    report = audit([store], settings_of_refusing)
    states = {row["transaction_id"]: row["state"] for row in report.table().to_pylist()}
    assert states == dict.fromkeys("ABC", "PENDING")
    assert {"half-number-taken", "slot-mismatch"} <= codes(report)
    assert "slot-mismatch" in {row["code"] for row in findings(tmp_path / "store")}


@pytest.mark.parametrize("decided", ["", "B"])
def test_every_way_to_read_agrees_on_one_half_message_behind_a_refused_one(decided: str, tmp_path: Path) -> None:
    store = one_between(tmp_path, decided=decided)
    rows = audit([store], settings_of_refusing).table().to_pylist()
    assert audit([store], settings_of_refusing, work=WorkDivision(300)).table().to_pylist() == rows
    followed = Followed([Path(store.root)], tmp_path / "checkpoint", settings_of_refusing)
    for _ in range(2):
        followed.assert_current()
        followed.restart()
    with FakeServer(StoreBroker(store, settings_of_refusing(store), "5.1.0")) as server, Client() as client:
        every = live.audit([Broker(client, server.address, "b", "c")]).table().to_pylist()
    for one, other in zip(every, rows, strict=True):
        assert (one["transaction_id"], one["state"]) == (other["transaction_id"], other["state"])
        assert ("number_shared" in one["flags"]) == ("number_shared" in other["flags"])


@pytest.mark.parametrize("count", [1, 2])
def test_each_half_message_behind_a_refused_one_may_be_alone(count: int, tmp_path: Path) -> None:
    """The last of B is in the slot before its number, and C in that slot, because another one was refused between.

    The op message of B names the slot of C. Of one B, C was `check_passed`; of two, UNDECIDABLE.
    """
    forge = Forge(tmp_path / "store", segment_bytes=8192)
    slots = forge._slots[HALF_TOPIC, 0]
    forge.half("A")
    slots.append(b"")
    for number in range(count):
        decided = forge.half(f"B{number}")
    slots.append(b"")
    forge.half("C")
    forge.op(decided)
    slots[:] = [slot for slot in slots if slot]
    store = open_store(forge.write(half_cursor=count + 2, op_cursor=1))
    wanted = {f"B{count - 1}": ("ROLLED_BACK", "op_message"), "C": ("LOST", "hidden_by_number")}
    assert states_of(store) | wanted == states_of(store)
    with FakeServer(StoreBroker(store, settings_of_refusing(store), "5.1.0")) as server, Client() as client:
        rows = live.audit([Broker(client, server.address, "b", "c")]).table().to_pylist()
    found = {row["transaction_id"]: (row["state"], row["reason_code"]) for row in rows}
    assert found | wanted == found


def test_the_fast_path_looks_for_the_number_of_a_decision_in_the_slots_before(
    rmqtx: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B (number 3) is in slot 1, behind two refused half messages, and D1 (number 3) in slot 3, which the check has
    before it: by queues and index D1 was ROLLED_BACK with certainty.
    """
    forge = Forge(tmp_path / "store", segment_bytes=8192)
    slots = forge._slots[HALF_TOPIC, 0]
    decided = forge.half("A")
    forge.op(decided)
    slots += [b"", b""]
    last = forge.half("B")
    slots[:] = [slot for slot in slots if slot]
    forge.half("D0")
    forge.half("D1")
    forge.op(last)
    forge.half("D1", checks=1)
    root = forge.write(half_cursor=4, op_cursor=2)
    made = rmqtx("rebuild", "index", root, "--to", tmp_path / "made")
    assert made.status == 0, made.err
    monkeypatch.setattr("rmqtx.verdicts.audit.lookups._OPEN_BYTES_MAX", 0)
    store = open_store(tmp_path / "made")
    rows = audit([store], settings_of_refusing).table()
    listed = pending([store], settings_of_refusing).table().to_pylist()
    assert listed == open_rows(rows).to_pylist()
    assert [(row["transaction_id"], row["reason_code"]) for row in listed] == [("D1", "op_of_several")]


@pytest.mark.parametrize("bit", [2, 16])
def test_the_second_op_message_of_a_commit_decides_no_half_message_with_a_damaged_number(
    bit: int, tmp_path: Path
) -> None:
    """A discarded half message, whose number was changed to that of a committed one, which has two op messages, was
    ROLLED_BACK by the second one.
    """
    name = "killed-5.5.0"
    root = copy_of(name, tmp_path)
    rows = truth.judged(name).to_pylist()
    marked = {mark["half_queue_offset"] for row in rows if row["state"] == "COMMITTED" for mark in row["op_marks"]}
    hurt = next(
        row for row in rows
        if row["state"] == "DISCARDED" and (row["half_copies"][0]["queue_offset"] ^ bit) in marked
    )
    copy = hurt["half_copies"][0]
    flip_byte(log_files(root)[0], copy["commit_log_offset"] + AT["queue_offset"] + 7, bit)
    found = {row["transaction_id"]: row for row in audit([open_store(root)], settings_of(name)).table().to_pylist()}
    assert found[hurt["transaction_id"]]["state"] in ("DISCARDED", "UNDECIDABLE")
    assert {row["transaction_id"] for row in rows if found[row["transaction_id"]]["state"] != row["state"]} <= {
        hurt["transaction_id"]
    }


def test_ranges_of_numbers_that_two_runs_cover() -> None:
    assert shared_ranges([(0, 9), (10, 20)]) == []
    assert shared_ranges([(0, 9), (0, 3), (9, 9)]) == [(0, 3), (9, 9)]
    assert shared_ranges([(5, 8), (0, 9), (6, 20)]) == [(5, 9)]


# --- acts ----


@pytest.mark.parametrize("act", ["commit", "rollback", "discard"])
@pytest.mark.parametrize("half", [OLD_HALF, "9F9E2BA5D3EE47FB64883E5DDBF33ED6"])
def test_an_act_that_would_hide_another_half_is_refused(
    rmqtx: Run, restarted: Path, tmp_path: Path, act: str, half: str
) -> None:
    """Of the second one the slot is not there yet: the next half message gets it."""
    result = rmqtx(
        act, half, "--store", restarted, "--to", tmp_path / "new", "--broker-version", "5.3.3", "--reason", "x", "--yes"
    )
    assert result.status == 12
    assert "refused by number-taken" in result.err
    assert "evidence-incomplete" not in result.err
    assert not (tmp_path / "new").exists()


def test_the_half_with_the_slot_can_be_committed(rmqtx: Run, restarted: Path, tmp_path: Path) -> None:
    act = ("--store", restarted, "--to", tmp_path / "new", "--broker-version", "5.3.3", "--reason", "x", "--yes")
    assert rmqtx("commit", NEW_HALF, *act).status == 0
    assert audited(tmp_path / "new")[5608]["state"] == "COMMITTED"


def test_a_rollback_that_could_mean_two_halves_is_refused_and_never_proved(
    rmqtx: Run, restarted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def briefly(*given: Any, prove_ms: int, **named: Any) -> None:
        assert prove_ms == 30_000
        prove(*given, prove_ms=1_000, **named)

    monkeypatch.setattr(carry_out, "prove", briefly)
    to = tmp_path / "new"
    act = ("--store", restarted, "--to", to, "--broker-version", "5.3.3", "--reason", "x", "--yes")
    for verb in ("rollback", "discard"):
        refused = rmqtx(verb, NEW_HALF, *act)
        assert (refused.status, to.exists()) == (12, False)
        assert "refused by number-shared" in refused.err
    result = rmqtx("rollback", NEW_HALF, *act, "--override", "number-shared")
    assert result.status == 18, result.err
    assert "it is UNDECIDABLE now" in result.err
    rows = audited(to)
    assert (rows[5608]["state"], rows[5608]["reason_code"]) == ("UNDECIDABLE", "op_of_several")
    assert "half queue offset 3" in rows[5608]["reason"]


def test_a_refusal_names_the_place_where_the_half_message_can_be_appended(
    rmqtx: Run, restarted: Path, tmp_path: Path
) -> None:
    """The files of a half queue that began again take none; those in which two halves have one number do."""
    act = ("--to", tmp_path / "new", "--broker-version", "5.3.3", "--reason", "x", "--yes")
    began_again = rmqtx("rollback", OLD_HALF, "--store", restarted, *act).err
    assert f"start the broker, because the numbers of its half queue began again, then rmqtx resume {OLD_HALF} -n " in (
        began_again
    )
    assert f"rmqtx resume {OLD_HALF} --store" not in began_again
    root = field_stores("two-halves-one-number", tmp_path) / "store"
    pending_half = "8B5DC344512906E32F076157A01F7C22"
    refused = rmqtx("rollback", pending_half, "--store", root, *act).err
    assert f"put it back with a number of its own, then rmqtx rollback {pending_half} -n HOST:PORT" in refused
    lost_half = next(row["transaction_id"] for row in audited(root).values() if row["state"] == "LOST")
    advised = rmqtx("rollback", lost_half, "--store", root, *act).err
    assert f"rmqtx resume {lost_half} --store {root}" in advised
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=1000000\n")  # it is not too old, whenever the test runs
    assert rmqtx("resume", lost_half, "--store", root, *act, "--broker-conf", conf).status == 0
