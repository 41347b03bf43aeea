"""Copies of one broker's log in one audit: compared byte by byte, and each record once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from readers.store.broker_settings import broker_settings
from readers.store.store import open_store
from tests.field import field_stores, right
from tests.forge.logs import Forge
from verdicts.audit.local_audit import audit
from verdicts.audit.log_copies import log_copies
from verdicts.model.reading import VerdictReading


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
        "commit_log_offset"] == 2816]  # fmt: skip
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
    ]  # fmt: skip


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
