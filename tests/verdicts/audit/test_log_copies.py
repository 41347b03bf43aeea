"""Copies of one broker's log in one audit: compared byte by byte, and each record once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import HALF_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.log_copies import log_copies
from rmqtx.verdicts.audit.lookups import pending
from rmqtx.verdicts.evidence.store_facts import known_until_ms
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx.verdicts.verify import copies
from rmqtx_cli.main import status_of
from tests.conftest import MOMENT
from tests.field import field_stores, right
from tests.forge import damage
from tests.forge.logs import Forge
from tests.forge.stores import copy_of


def audited(*roots: Path) -> tuple[VerdictReading, dict[str, dict[str, Any]]]:
    reading = audit([open_store(root) for root in roots], broker_settings)
    return reading, {row["transaction_id"]: row for row in reading.table().to_pylist()}


def found(reading: VerdictReading, code: str) -> list[tuple[str, int | None, str | None]]:
    return [(Path(one.store).name, one.commit_log_offset, one.actual) for one in reading.findings if one.code == code]


def test_a_record_in_two_copies_is_one_and_the_difference_is_found(tmp_path: Path) -> None:
    root, answer = field_stores("joined-slave-earlier", tmp_path), right("joined-slave-earlier")
    reading, rows = audited(root / "master", root / "slave")
    flags = {flag for row in rows.values() for flag in row["flags"]}
    assert not flags & set(answer["flags_absent"])
    [committed] = [row for row in rows.values() if len(row["final_records"]) == 2 and row["half_copies"][0][
        "commit_log_offset"] == 2816]
    assert committed["deliveries_count"] == 1
    begin = answer["diverged_from"]
    [(store, offset, words)] = found(reading, "logs-differ")
    assert (store, offset) == ("slave", begin)
    assert words == f"other records from commit-log offset {begin} to {answer['damaged'][0]}"
    assert [store for store, _, _ in found(reading, "copy-lacks-pending")] == ["slave"]


def test_a_slave_that_began_later_lacks_what_was_before(tmp_path: Path) -> None:
    root = field_stores("partial-slave", tmp_path)
    reading, _ = audited(root / "master", root / "slave")
    assert found(reading, "logs-differ") == []
    assert found(reading, "copy-lacks-pending") == [("slave", None, "38 of them are not in this copy")]
    alone, _ = audited(root / "slave")
    [cursor] = [one for one in alone.findings if one.code == "cursor-before-begin"]
    assert cursor.meaning is not None
    assert "never received them" in cursor.meaning
    assert "expired" not in cursor.meaning
    with open_queue(open_store(root / "slave"), HALF_TOPIC, 0) as queue:
        assert (cursor.expected, int(str(cursor.actual)) < queue.min_offset) == (f"at least {queue.min_offset}", True)


def test_damage_in_one_copy_is_no_other_history(tmp_path: Path) -> None:
    """The other copy has the records; a different record behind the damage is a difference still."""
    roots = []
    for name in ("sound", "damaged"):
        forge = Forge(tmp_path / name)
        offsets = [forge.half(f"COMMON{number}") for number in range(5)]
        roots.append(forge.write())
    file = next((roots[1] / "commitlog").iterdir())
    data = bytearray(file.read_bytes())
    data[offsets[2] + 4 : offsets[2] + 12] = b"\xff" * 8
    file.write_bytes(data)
    reading, _ = audited(*roots)
    assert found(reading, "record-damaged") != []
    assert found(reading, "logs-differ") == []
    reversed_reading, _ = audited(*reversed(roots))
    assert found(reversed_reading, "logs-differ") == []
    damage.flip_byte(file, offsets[1] + 90)  # in a body: the record stays, with other bytes
    other, _ = audited(*roots)
    [difference] = [one for one in other.findings if one.code == "logs-differ"]
    assert difference.commit_log_offset == offsets[1]
    assert difference.meaning is not None
    assert "one of the two copies is damaged" in difference.meaning


def test_an_uncut_tail_of_an_old_master_differs(tmp_path: Path) -> None:
    """Both logs are sound: the old master wrote on by itself."""
    roots = []
    for name in ("new", "old"):
        forge = Forge(tmp_path / name)
        for number in range(5):
            forge.half(f"COMMON{number}")
        begin = forge.half(f"{name.upper()}0")
        forge.half(f"{name.upper()}1")
        roots.append(forge.write())
    reading, rows = audited(*roots)
    [(store, offset, _)] = found(reading, "logs-differ")
    assert (store, offset) == ("old", begin)
    assert {name: row["state"] for name, row in rows.items() if name.startswith("OLD")} == dict.fromkeys(
        ("OLD0", "OLD1"), "PENDING"
    )
    assert sorted(found(reading, "copy-lacks-pending")) == [
        ("new", None, "2 of them are not in this copy"), ("old", None, "2 of them are not in this copy")
    ]


def test_a_shorter_copy_and_an_equal_one_do_not_differ(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "master")
    for number in range(12):
        forge.half(f"HALF{number}")
    master = forge.write()
    shutil.copytree(master, tmp_path / "equal")
    shutil.copytree(master, tmp_path / "shorter")
    last = max((tmp_path / "shorter" / "commitlog").iterdir())
    data = last.read_bytes()
    last.write_bytes(data[:400] + bytes(len(data) - 400))
    [group] = log_copies([open_store(tmp_path / name) for name in ("master", "equal", "shorter")])
    assert (len(group.roots), group.differences) == (3, ())
    reading, rows = audited(master, tmp_path / "equal")
    assert [one.code for one in reading.findings] == []
    assert len(rows) == 12


def test_stores_of_other_brokers_are_not_compared(tmp_path: Path) -> None:
    """Each begins with another record at offset 0, although the store host is the same."""
    roots = []
    for name in ("a", "b"):
        forge = Forge(tmp_path / name)
        for number in range(20):
            forge.half(f"{name}{number}-{'x' * (number + (name == 'b'))}")
        roots.append(forge.write())
    assert log_copies([open_store(root) for root in roots]) == []
    reading, _ = audited(*roots)
    assert not pc.any(pc.equal(reading.table()["state"], "UNDECIDABLE")).as_py()


# --- the other commands -----------------------------------------------------------------------------------------------


def codes_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """The status of a command, and all that it printed."""
    status = status_of([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return status, printed.out + printed.err


@pytest.fixture
def _later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MOMENT, lambda store: known_until_ms(store) + 60_000)


@pytest.mark.usefixtures("_later")
def test_pending_reads_cursors_and_queues_and_finds_what_a_slave_lacks(tmp_path: Path) -> None:
    root = field_stores("partial-slave", tmp_path)
    stores = [open_store(root / name) for name in ("master", "slave")]
    reading = pending(stores, broker_settings)
    assert reading.table().num_rows == 38 + 15  # the slave has 15 of the open half messages
    assert [note.text for note in reading.notes if "scanned" in note.text] == []
    assert found(reading, "copy-lacks-pending") == [("slave", None, "38 of them are not in this copy")]
    assert found(reading, "logs-differ") == []


def diverged(to: Path) -> list[Path]:
    """Two sound logs with five half messages in common and two of their own each."""
    roots = []
    for name in ("new", "old"):
        forge = Forge(to / name)
        for number in range(5):
            forge.half(f"COMMON{number}")
        for number in range(2):
            forge.half(f"{name.upper()}{number}")
        roots.append(forge.write())
    return roots


@pytest.mark.parametrize(
    ("command", "codes"),
    [
        ("audit", {"logs-differ", "copy-lacks-pending"}), ("pending", {"logs-differ", "copy-lacks-pending"}),
        ("verify", {"logs-differ", "copy-lacks-pending"}), ("stores", {"logs-differ"}),
        ("diff", {"logs-differ", "copy-lacks-pending"}),
    ],
)
def test_every_command_finds_logs_that_differ(
    command: str, codes: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new, old = diverged(tmp_path)
    _, text = codes_of(capsys, command, new, old)
    assert codes <= {word for word in ("logs-differ", "copy-lacks-pending") if word in text}
    _, alone = codes_of(capsys, *((command, new) if command != "diff" else (command, new, new)))
    assert "logs-differ" not in alone
    assert "copy-lacks-pending" not in alone


@pytest.mark.parametrize("depth", [(), ("--quick",), ("--full",)])
@pytest.mark.parametrize("order", [("master", "slave"), ("slave", "master")])
def test_verify_names_what_a_failover_loses(
    depth: tuple[str, ...], order: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = field_stores("partial-slave", tmp_path)
    status, text = codes_of(
        capsys, "verify", *(root / name for name in order), *depth, "--format", "jsonl", "--quiet",
        "--where", "code = copy-lacks-pending",
    )
    [row] = map(json.loads, text.splitlines())
    assert status == 1
    assert (row["store"], row["actual"]) == (str(root / "slave"), "38 of them are not in this copy")


def test_verify_says_when_it_did_not_look_for_pending_transactions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "ONE_PROCESS_BYTES_MAX", 0)
    root = field_stores("joined-slave-earlier", tmp_path)  # its queues are not to be trusted: the log would be scanned
    for depth, is_examined in (("--quick", False), ("--full", True)):
        _, text = codes_of(capsys, "verify", root / "master", root / "slave", depth)
        assert ("copy-lacks-pending" in text) is is_examined
        assert ("which pending transactions only some copies have was not examined" in text) is not is_examined


@pytest.mark.parametrize("is_master_first", [True, False])
def test_diff_names_what_a_failover_loses(
    is_master_first: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = field_stores("partial-slave", tmp_path)
    sides = ("master", "slave") if is_master_first else ("slave", "master")
    _, text = codes_of(capsys, "diff", *(root / name for name in sides), "--limit", "1")
    assert f"copy-lacks-pending: {root / 'slave'}: " in text
    assert "38 of them are not in this copy" in text
    assert f"copy-lacks-pending: {root / 'master'}: " not in text


def test_stores_shows_half_copies_that_a_copy_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the bounds of the half queues: 44 copies before the slave's first one; an equal copy lacks none."""
    root = field_stores("partial-slave", tmp_path)
    shutil.copytree(root / "master", root / "equal")
    _, text = codes_of(
        capsys, "stores", *(root / name for name in ("slave", "master", "equal")), "--format", "jsonl", "--quiet"
    )
    trust = {Path(row["store"]).name: " ".join(row["trust"]) for row in map(json.loads, text.splitlines())}
    assert f"lacks 44 half copies that the check of {root / 'master'} still reads" in trust["slave"]
    assert "lacks" not in trust["master"] + trust["equal"]


def test_check_names_them_and_what_a_failover_loses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new, old = diverged(tmp_path)
    _, text = codes_of(capsys, "check", new, old, "--state-dir", tmp_path / "state", "--format", "json")
    reasons = [one["reason"] for one in json.loads(text)["reasons"]]
    assert any("logs-differ" in reason for reason in reasons)
    assert f"a failover to {new} loses pending transactions: 2 of them are not in this copy" in reasons


def test_report_of_a_master_and_its_slave(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A transaction that the broker of the slave discards later has its deadline from there."""
    root = field_stores("joined-slave-earlier", tmp_path)
    page = tmp_path / "page.md"
    status, _ = codes_of(capsys, "report", root / "master", root / "slave", "-o", page)
    assert status == 3
    assert "logs-differ" in page.read_text(encoding="utf-8")


def test_stores_shows_copies_confirmed_offset_and_epochs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = field_stores("partial-slave", tmp_path)
    status, text = codes_of(capsys, "stores", root / "master", root / "slave", "--format", "jsonl", "--quiet")
    master, slave = (json.loads(line) for line in text.splitlines())
    assert status == 0
    assert (master["copy_of"], slave["copy_of"]) == (None, str(root / "master"))
    assert slave["confirm_offset"] == 22538
    assert any("the newest bytes that both have are equal" in sentence for sentence in slave["trust"])
    (replica,) = [json.loads(codes_of(
        capsys, "stores", copy_of("controller-5.1.4", tmp_path), "--format", "jsonl", "--quiet")[1])]
    assert replica["epochs"] == ["1 from 0"]


def test_only_the_newest_bytes_are_compared_unless_these_differ(tmp_path: Path) -> None:
    """A difference before them is not searched; one in them leads to the first one."""
    new, old = diverged(tmp_path)
    stores = [open_store(new), open_store(old)]
    ((first,),) = [group.differences for group in log_copies(stores)]
    assert [group.differences for group in log_copies(stores, 64)] == [(first,)]
    file = old / "commitlog" / ("0" * 20)
    file.write_bytes((new / "commitlog" / ("0" * 20)).read_bytes())
    damage.flip_byte(file, 63)  # in its store time: it is another record
    stores = [open_store(new), open_store(old)]
    ((early,),) = [group.differences for group in log_copies(stores)]
    assert early.begin_offset == 0
    assert [group.differences for group in log_copies(stores, 64)] == [()]
