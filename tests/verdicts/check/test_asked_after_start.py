"""What a broker of 3.1 asks for when it is started again, and whether it takes the answer: as a real one then did."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.simulation.beside_simulated import BesideSimulated
from rmqtx.verdicts.simulation.simulation_setup import SimulatedConfiguration, simulated_checks
from tests.brokers import corpus
from tests.forge.stores import copy_of, opened, settings_of

Row = dict[str, Any]
STORES = [name for name in corpus.corpus_names("state_table") if not name.startswith("upgraded")]


def audited(name: str) -> dict[str, Row]:
    rows: list[Row] = audit([opened(name)], settings_of(name)).table().to_pylist()
    return {row["transaction_id"]: row for row in rows}


@pytest.mark.parametrize("name", STORES)
def test_each_open_one_is_checked_and_answered_as_predicted(name: str) -> None:
    rows, wrong = audited(name), []
    for wanted in corpus.expected(name):
        row = rows[wanted["transaction_id"]]
        if row["state"] != "PENDING":
            continue
        told = [flag for flag in ("never_asked", "unanswerable") if flag in row["flags"]]
        seen = [] if wanted["answered_after_restart"] else ["unanswerable"]
        if told != (seen if wanted["asked_after_restart"] else ["never_asked"]):
            wrong.append((wanted["plan"], told, row["reason"]))
        assert row["advice"] == ("decide" if told else "wait")
        assert row["next_event"] == ("asked" if wanted["asked_after_restart"] else "none")
        assert row["answer_effect"] == ("deliver" if wanted["answered_after_restart"] else None)
        assert row["checks_count"] is None
    assert wrong == []


def test_a_damaged_table_does_not_say_that_nobody_asks(tmp_path: Path) -> None:
    name = "statetable-3.1.4"
    root = copy_of(name, tmp_path)
    file = sorted(root.glob("transaction/statetable/*"))[1]
    file.write_bytes(b"\x7f" * file.stat().st_size)
    rows = audit([open_store(root)], settings_of(name)).table().to_pylist()
    hit = [row for row in rows if row["state"] == "PENDING" and "is damaged" in row["reason"]]
    assert hit
    assert not [row for row in rows if "never_asked" in row["flags"]]
    assert {row["advice"] for row in hit} == {"wait"}


def test_a_rollback_record_without_its_words_still_ends_what_it_names(tmp_path: Path) -> None:
    name = "prepared-4.2.0"
    root = copy_of(name, tmp_path)
    row = next(row for row in audited(name).values() if row["state"] == "ROLLED_BACK")
    place = row["op_marks"][0]["commit_log_offset"]
    file = root / "commitlog" / f"{0:020}"
    data = file.read_bytes()
    end = place + int.from_bytes(data[place : place + 4], "big")
    words = data[place:end].replace(b"TRAN_MSG", b"TRAN,MSG").replace(b"PGROUP", b"PG,OUP")
    file.write_bytes(data[:place] + words + data[end:])
    rows = audit([open_store(root)], settings_of(name)).table().to_pylist()
    assert [one["state"] for one in rows if one["transaction_id"] == row["transaction_id"]] == ["ROLLED_BACK"]


@pytest.mark.parametrize("is_killed", [True, False])
def test_without_the_files_from_which_a_start_makes_its_table_nothing_is_asked(is_killed: bool, tmp_path: Path) -> None:
    """`pending` advised to wait for the check, with status 0, where `simulate` and `verify` had a check of nothing."""
    root = copy_of("statetable-3.1.4", tmp_path)
    shutil.rmtree(root / "transaction" / "redolog" if is_killed else root / "transaction")
    if is_killed:
        (root / "abort").touch()
    settings = settings_of("statetable-3.1.4")
    reading = audit([open_store(root)], settings)
    rows = [row for row in reading.table().to_pylist() if row["state"] == "PENDING"]
    assert len(rows) == 16
    assert {(row["advice"], row["next_event"]) for row in rows} == {("decide", "none")}
    assert all("never_asked" in row["flags"] for row in rows)
    assert "table-lost" in {one.code for one in reading.findings if one.is_error}
    checks, findings, _ = simulated_checks(
        open_store(root), [SimulatedConfiguration("as is", settings(open_store(root)))], None, 1 << 41
    )
    beside = [one for one in checks if isinstance(one, BesideSimulated)]
    assert len(beside) == len(checks)
    assert not [step for one in beside for played in islice(one.rounds(), 1) for step in played.steps]
    assert {one.code for one in findings if one.is_error} == {"table-lost"}
