"""Actions on the files of stopped brokers, on stores that real brokers wrote."""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.log.compression import inflate
from rmqtx.readers.model.errors import StoreInUse, UnsafeStore, UnwritableFile
from rmqtx.readers.model.tables import FUTURE_COLUMNS
from rmqtx.readers.queues.consume_queue import PRE_BLANK_LENGTH
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, open_store
from rmqtx.remoting.protocol.codes import COMMIT
from rmqtx.repairs.acts.carry_out import checked_acts
from rmqtx.repairs.acts.file_medium import FileMedium
from rmqtx.repairs.acts.log_tail import log_end
from rmqtx.repairs.acts.orders import ActOrder, Conduct
from rmqtx.repairs.acts.situation import ActRequest
from rmqtx.repairs.changes.execution import Destination, undo
from rmqtx.repairs.changes.undo_files import read_undo_file
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.records.record_writer import draft_of
from tests.brokers.corpus import expected, recipe
from tests.forge.damage import write_bytes
from tests.forge.logs import Forge
from tests.forge.stores import copy_of
from tests.repairs.acting import act, content, medium_of, rows_of
from tests.repairs.broker_lock import locked_by_a_broker
from tests.repairs.crash_story import Story
from tests.repairs.log_records import records
from tests.representatives import rest_is_slow

VERSIONS = ("4.3.0", "4.4.0", "4.9.7", "5.1.4", "5.3.3", "5.5.0")


def one_of_each(rows: dict[str, dict[str, Any]]) -> dict[str, ActKind]:
    """Each action on a transaction that it fits."""
    plain = {"stalled", "never_checked", "resumed", "expires_soon"}
    waiting = [name for name, row in rows.items() if row["state"] == "PENDING" and set(row["flags"]) <= plain]
    given_up = [name for name, row in rows.items() if row["state"] == "DISCARDED" and "bad_body" not in row["flags"]]
    asked_again = [name for name, row in rows.items() if row["advice"] == "close"]
    orders = dict(zip(waiting, (ActKind.COMMIT, ActKind.ROLLBACK, ActKind.DISCARD, ActKind.COMMIT), strict=False))
    orders |= dict(zip(given_up, (ActKind.COMMIT, ActKind.RESUME), strict=False))
    return orders | dict.fromkeys(asked_again[:1], ActKind.CLOSE)


@pytest.mark.parametrize("version", rest_is_slow(VERSIONS, quick=3))
def test_each_action_does_what_it_says_and_nothing_else(version: str, tmp_path: Path, journal: Journal) -> None:
    source = copy_of(f"common-{version}", tmp_path / "source")
    before, bytes_before = rows_of(source, version), content(source)
    orders = one_of_each(before)
    assert {ActKind.COMMIT, ActKind.ROLLBACK, ActKind.DISCARD} <= set(orders.values())
    target = tmp_path / "target"
    receipts = act(medium_of(source, version, Destination(copy=target)), journal, orders)
    assert content(source) == bytes_before
    after = rows_of(target, version)
    for receipt in receipts:
        row = after[receipt.acted_on]
        assert receipt.outcome == ("accepted" if receipt.action == ActKind.RESUME else "proved"), receipt.notes
        assert receipt.store == str(target)
        effect = {"commit": "COMMITTED", "rollback": "ROLLED_BACK", "discard": "ROLLED_BACK", "resume": "PENDING"}
        assert row["state"] == effect.get(receipt.action, before[receipt.acted_on]["state"])
        assert "duplicate_commit" not in row["flags"]
        assert "discarded_though_decided" not in row["flags"] or receipt.action == ActKind.CLOSE
        assert row["advice"] == ("wait" if receipt.action == "resume" else "none")
    untouched = {name: row for name, row in before.items() if name not in orders}
    assert {name: _settled(row) for name, row in after.items() if name not in orders} == {
        name: _settled(row) for name, row in untouched.items()
    }


def _settled(row: dict[str, Any]) -> dict[str, Any]:
    """Without what only says how long ago the store ended, or when a broker that started now would come to it."""
    aging = {"stalled", "never_checked", "expires_soon", "immune"}
    moving = ("advice", "reason", "advice_reason", *FUTURE_COLUMNS)
    kept = {name: value for name, value in row.items() if name not in moving}
    return {**kept, "flags": sorted(set(row["flags"]) - aging)}


@pytest.mark.parametrize("version", rest_is_slow(VERSIONS, quick=3))
def test_what_is_appended_stands_where_it_says_and_undo_takes_it_back(
    version: str, tmp_path: Path, journal: Journal
) -> None:
    """Small files: each run closes some with a blank record and begins others."""
    root = copy_of(f"killed-{version}", tmp_path / "store")
    before = content(root)
    end = log_end(open_store(root))
    waiting = [name for name, row in rows_of(root, version).items() if row["state"] == "PENDING"]
    orders = dict.fromkeys(waiting, ActKind.COMMIT)
    undo_file = tmp_path / "undo"
    override = Conduct(overrides=("immunity", "op-in-memory"))
    receipts = act(medium_of(root, version, Destination(undo_file=undo_file)), journal, orders, override)
    assert {receipt.outcome for receipt in receipts} == {"proved"}
    line = re.compile(r"commit (\S+): .+ at log offset \d+ \(receipt (\S+)\)")
    about = [line.fullmatch(one) for one in read_undo_file(undo_file).about]  # what `undo` shows before it asks
    assert {one.groups() for one in about if one} == {(one.transaction_id, one.receipt_id) for one in receipts}
    assert all(about)
    after = content(root)
    for name, data in before.items():
        if name.startswith("commitlog/"):
            base = int(name[-20:])
            kept = max(0, min(len(data), end.offset - base))
            assert after[name][:kept] == data[:kept]
        elif name != "lock":
            assert after[name] == data, name
    new = log_end(open_store(root))
    appended = [record for record in records(open_store(root)) if int.from_bytes(record[28:36], "big") >= end.offset]
    topics = [draft_of(record).topic for record in appended]
    assert topics.count(OP_TOPIC) >= len(waiting)  # one for each copy that is before the check
    assert len(topics) - topics.count(OP_TOPIC) == len(waiting)
    assert {row["advice"] for name, row in rows_of(root, version).items() if name in waiting} == {"none"}
    assert new.offset > end.offset
    undo(undo_file, root)
    assert content(root) == before


def test_a_full_file_is_closed_and_a_new_one_begun(tmp_path: Path, journal: Journal) -> None:
    root = copy_of("multipath-5.1.4", tmp_path / "store")  # it ends some hundred bytes before the end of its last file
    store = open_store(root)
    waiting = [name for name, row in rows_of(root, "5.1.4").items() if row["state"] == "PENDING"]
    act(
        medium_of(root, "5.1.4", Destination(undo_file=tmp_path / "undo")), journal,
        dict.fromkeys(waiting, ActKind.COMMIT),
        Conduct(overrides=("immunity",)),
    )
    size, last = store.commit_log[-1].size_bytes, store.commit_log[-1].base_offset
    grown = open_store(root)
    assert len(grown.commit_log) > len(store.commit_log)
    new = grown.commit_log[-1]
    assert (new.base_offset, new.size_bytes) == (last + size, size)
    assert Path(new.file).parent.name == "commitlog-a"  # files of a multi-path log go round
    assert log_end(grown).offset > new.base_offset
    rows = rows_of(root, "5.1.4")
    assert {rows[name]["state"] for name in waiting} == {"COMMITTED"}


def test_the_record_that_just_fits_leaves_room_for_a_blank_one(tmp_path: Path) -> None:
    """Eight bytes are left for it, always; with seven the record goes into the next file."""
    from dataclasses import replace

    from rmqtx.repairs.acts.log_tail import LogTail
    from rmqtx.repairs.records.record_writer import writing_rules

    store = open_store(copy_of("multipath-5.3.3", tmp_path / "store"))
    end = log_end(store)
    rules = writing_rules(broker_settings(store, version="5.3.3"), has_property_crc=False)
    draft = replace(draft_of(list(records(store))[-1]), topic=HALF_TOPIC, queue_id=0)
    size = store.commit_log[-1].size_bytes
    room = size - end.position_bytes - (draft.length_bytes(rules) - len(draft.body)) - 8
    for more, base in ((0, end.segment.base_offset), (1, end.segment.base_offset + size)):
        tail = LogTail(store, end, rules, now_ms=1, abort=b"", is_copied=False)
        placed = tail.append(replace(draft, body=bytes(room + more)))
        assert placed.commit_log_offset // size * size == base
        second = tail.append(draft)
        assert second.commit_log_offset // size * size == end.segment.base_offset + size
        assert second.queue_offset == placed.queue_offset + 1
        assert second.record[56:64] == placed.record[56:64]


def test_what_has_a_discard_copy_alone_gets_a_half_copy_first(tmp_path: Path, journal: Journal) -> None:
    """Its half copies have expired with the first files of the log."""
    root = copy_of("multipath-5.3.3", tmp_path / "store")
    rows = rows_of(root, "5.3.3")
    segments = open_store(root).commit_log
    for first in range(1, len(segments)):
        begin = segments[first].base_offset
        alone = [
            name for name, row in rows.items()
            if row["state"] == "DISCARDED" and row["discard_copies"][-1]["commit_log_offset"] >= begin
            and all(copy["commit_log_offset"] < begin for copy in row["half_copies"])
        ]
        if alone:
            break
    else:
        pytest.fail("no file boundary lies between the half copies and the discard copy of any transaction")
    for segment in segments[:first]:
        Path(segment.file).unlink()
    target = tmp_path / "target"
    receipt = act(medium_of(root, "5.3.3", Destination(copy=target)), journal, {alone[0]: ActKind.COMMIT},
                  Conduct(overrides=("evidence-incomplete",)))[0]
    assert receipt.outcome == "proved", receipt.notes
    assert [request.fields["record"] for request in receipt.requests] == ["half copy", "final", "op"]
    row = rows_of(target, "5.3.3")[alone[0]]
    assert row["state"] == "COMMITTED"
    assert row["op_marks"][0]["half_queue_offset"] == row["half_copies"][-1]["queue_offset"]


@pytest.mark.parametrize("version", ["4.3.0", "4.4.0"])
def test_a_copy_that_nobody_can_inflate_is_committed_by_an_older_one(
    version: str, tmp_path: Path, journal: Journal
) -> None:
    """The check of brokers before 4.6.0 spoils compressed bodies as it puts them back."""
    name = f"poison-{version}"
    root, target = copy_of(name, tmp_path / "source"), tmp_path / "target"
    spoiled = [row["transaction_id"] for row in expected(name) if row["case"].startswith("poison.")]
    orders = dict.fromkeys(spoiled, ActKind.COMMIT)
    end = log_end(open_store(root)).offset
    receipts = act(medium_of(root, version, Destination(copy=target)), journal, orders)
    assert [receipt.outcome for receipt in receipts] == ["proved"] * len(spoiled)
    for receipt in receipts:
        assert "cannot be decompressed" in receipt.notes[0]
    rows = rows_of(target, version)
    assert {rows[one]["state"] for one in spoiled} == {"COMMITTED"}
    assert not any("open_after_decision" in rows[one]["flags"] for one in spoiled)
    appended = [record for record in records(open_store(target)) if int.from_bytes(record[28:36], "big") >= end]
    finals = [record for record in appended if draft_of(record).topic in ("orders", "payments")]
    assert len(finals) == len(spoiled)
    for record in finals:
        body = inflate(draft_of(record).body, draft_of(record).sys_flag)
        assert body is not None
        assert len(body) == 6000


def test_a_discard_leaves_a_copy_where_the_version_writes_one(tmp_path: Path, journal: Journal) -> None:
    for version, copies in (("4.4.0", 0), ("4.9.7", 1)):
        root = copy_of(f"common-{version}", tmp_path / version)
        name = next(name for name, row in rows_of(root, version).items() if row["state"] == "PENDING")
        target = tmp_path / f"{version}.target"
        receipt = act(medium_of(root, version, Destination(copy=target)), journal, {name: ActKind.DISCARD},
                      Conduct(overrides=("immunity",)))[0]
        assert receipt.outcome == "proved"
        assert Path(str(receipt.saved_message)).is_file()
        before, after = (rows_of(place, version)[name]["discard_copies"] for place in (root, target))
        assert len(after) - len(before) == copies


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return copy_of("common-5.3.3", tmp_path / "common")


def refused(root: Path, conf: dict[str, str] | None = None, version: str = "5.3.3") -> str:
    with pytest.raises(UnsafeStore) as error:
        medium_of(root, version, Destination(undo_file=root.parent / "undo"), conf)
    assert error.value.advice
    return str(error.value)


def test_stores_that_others_would_overrule_are_refused(store: Path) -> None:
    assert "slave" in refused(store, {"brokerRole": "SLAVE"})
    assert "slave" in refused(store, {"brokerId": "1"})
    assert "controller" in refused(store, {"enableControllerMode": "true"})
    (store / "epochFileCheckpoint").write_text("1\n")
    assert "controller" in refused(store)
    (store / "dledger-n0" / "data").mkdir(parents=True)
    assert "DLedger" in refused(store)


def test_stores_with_queues_in_rocksdb_are_refused(store: Path) -> None:
    (store / "consumequeue" / "CURRENT").write_text("MANIFEST-000001\n")
    assert "storeType=defaultRocksDB" in refused(store)


def test_a_version_that_is_not_known_or_cannot_be_is_refused(store: Path) -> None:
    assert "the files of" in refused(store, version="5.1.0")
    with pytest.raises(UnsafeStore, match="--broker-version"):
        FileMedium(open_store(store), broker_settings, {}, Destination(copy=store.parent / "x"), open_store)


def test_a_store_that_a_broker_uses_is_refused(store: Path) -> None:
    with locked_by_a_broker(store), pytest.raises(StoreInUse):
        medium_of(store, "5.3.3", Destination(copy=store.parent / "x"))


def damages(root: Path) -> Iterator[tuple[str, Path]]:
    """Stores whose log a broker would cut before its end, or not load at all, each with what is said of it."""
    store = open_store(root)
    end = log_end(store)
    last = list(records(store))[-1]
    for number, (said, position, data) in enumerate(
        (
            ("torn", end.position_bytes - len(last) + 20, bytes(len(last) - 20)),
            ("CRC", end.position_bytes - len(last) + 90, b"\xff\xff"),
            ("damaged", 3000, b"\xff" * 60),
        )
    ):
        copy = root.parent / f"damaged-{number}"
        shutil.copytree(root, copy)
        log = copy / "commitlog" / Path(end.segment.file).name
        with log.open("r+b") as file:
            file.seek(position)
            file.write(data)
        yield said, copy
    stray = root.parent / "stray"
    shutil.copytree(root, stray)
    (stray / "commitlog" / "notes.txt").write_text("x")
    yield "stray-file", stray


def test_a_log_that_a_broker_would_cut_is_not_appended_to(store: Path) -> None:
    for said, root in damages(store):
        assert said in refused(root)


def test_queues_that_are_not_numbered_as_their_records_are_refused(store: Path, journal: Journal) -> None:
    """What is appended would come into another slot than its record says."""
    queue = store / "consumequeue" / OP_TOPIC / "0" / "00000000000000000000"
    data = bytearray(queue.read_bytes())
    used = len(data.rstrip(b"\0")) // 20
    data[used * 20 : used * 20 + 20] = data[(used - 1) * 20 : used * 20]
    queue.write_bytes(data)
    name = next(name for name, row in rows_of(store, "5.3.3").items() if row["state"] == "PENDING")
    with pytest.raises(UnsafeStore, match="ends at queue offset"):
        act(medium_of(store, "5.3.3", Destination(copy=store.parent / "x")), journal, {name: ActKind.ROLLBACK},
            Conduct(overrides=("evidence-incomplete", "immunity")))
    assert not (store.parent / "x").exists()
    assert [receipt.outcome for receipt in journal.read().receipts] == ["not_sent"]


def test_what_the_broker_would_put_off_is_refused(tmp_path: Path, journal: Journal) -> None:
    version = recipe("delayed-4.4.0")["version"]
    root = copy_of("delayed-4.4.0", tmp_path / "store")
    delayed = [name for name, row in rows_of(root, version).items() if "delayed_half" in row["flags"]]
    assert delayed
    medium = medium_of(root, version, Destination(copy=tmp_path / "x"))
    found = checked_acts([ActOrder(name, ActRequest(ActKind.COMMIT), None) for name in delayed], medium, Conduct())
    assert all("cannot-be-written" in {refusal.guard for refusal in each.refusals} for each in found)


def test_what_nobody_could_consume_is_refused(store: Path, journal: Journal) -> None:
    for name in ("topics.json", "topics.json.bak"):
        file = store / "config" / name
        file.write_text(file.read_text().replace('"payments"', '"paymentz"'))
    rows = rows_of(store, "5.3.3")
    name = next(n for n, row in rows.items() if row["state"] == "PENDING" and row["topic"] == "payments")
    receipt = act(medium_of(store, "5.3.3", Destination(copy=store.parent / "x")), journal, {name: ActKind.COMMIT},
                  Conduct(overrides=("immunity",)))[0]
    assert receipt.outcome == "refused_by_guard"
    assert "payments is not in config/topics.json" in receipt.notes[0]
    assert not (store.parent / "x").exists()


def test_a_roll_over_survives_a_crash_at_any_instant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps that an act really makes: `abort`, a new file of the log, what closes the one before it."""
    # As in tests/repairs/test_crashes.py: each crash ends with a look for other processes, which others test.
    monkeypatch.setattr("rmqtx.repairs.changes.store_lock._may_be_open_elsewhere", lambda identity: False)
    root = copy_of("multipath-5.1.4", tmp_path / "source")
    waiting = [name for name, row in rows_of(root, "5.1.4").items() if row["state"] == "PENDING"]
    medium, conduct = medium_of(root, "5.1.4", Destination(copy=tmp_path / "x")), Conduct(overrides=("immunity",))
    for each in checked_acts([ActOrder(name, ActRequest(ActKind.COMMIT), None) for name in waiting], medium, conduct):
        assert each.named is not None
        medium.decide(each.named, each.situation, COMMIT, each.begin(conduct))
    changes = medium.change_set()
    steps = [[type(change).__name__ for change in group] for group in changes.groups()]
    assert steps == [["ReplaceFile"], ["CreateFile"], ["WriteAt"], ["WriteAt"]]
    story = Story(tmp_path / "first", changes, lambda place: shutil.copytree(root, place))
    assert story.check(story.states, tmp_path / "crashed") > 10


def test_a_disk_that_is_full_is_in_every_receipt(
    store: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise UnwritableFile("cannot write: No space left on device", advice="make room")

    monkeypatch.setattr("rmqtx.repairs.changes.execution.execute_on_copy", full)
    names = [name for name, row in rows_of(store, "5.3.3").items() if row["state"] == "PENDING"][:3]
    with pytest.raises(UnwritableFile):
        act(medium_of(store, "5.3.3", Destination(copy=store.parent / "x")), journal,
            dict.fromkeys(names, ActKind.ROLLBACK), Conduct(overrides=("immunity",)))
    assert not (store.parent / "x").exists()
    found = journal.read().receipts
    assert [(receipt.outcome, receipt.requests[0].response_code) for receipt in found] == [("not_sent", None)] * 3


@pytest.mark.parametrize("version", ["4.3.0", "4.4.0"])
@pytest.mark.parametrize("count", [1, 2])
def test_an_op_message_whose_slot_the_start_gives_to_an_earlier_one_is_refused(
    count: int, version: str, tmp_path: Path
) -> None:
    """The op queue ends with a filler, so the start gives op message 0 a slot behind it, and the next one gets none.

    History 1353167 on 4.3.0: the act was carried out, and the check asked about the transaction that it had decided.
    """
    forge = Forge(tmp_path / "store")
    decided = [forge.half(f"A{number}") for number in range(count)]
    forge.half("B")
    forge.segment_bytes = len(forge._data)  # the check passes what is in the file to which the filler leads
    for half in decided:
        forge.op(half)
    root = forge.write()

    def guards() -> set[str]:
        medium = medium_of(root, version, Destination(copy=tmp_path / "x"))
        [one] = checked_acts([ActOrder("B", ActRequest(ActKind.ROLLBACK), None)], medium, Conduct())
        return {refusal.guard for refusal in one.refusals}

    assert "cannot-be-written" not in guards()
    filler = struct.pack(">qiq", 0, PRE_BLANK_LENGTH, 0)
    write_bytes(root / "consumequeue" / OP_TOPIC / "0" / f"{0:020d}", (count - 1) * len(filler), filler)
    assert "cannot-be-written" in guards()
