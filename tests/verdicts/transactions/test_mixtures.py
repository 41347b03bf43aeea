"""Stores put together by hand: parts of several designs, parts alone, logs under other names. Nothing is guessed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rmqtx.readers.log.designs import designs_of
from rmqtx.readers.log.record_layout import PREPARED, ROLLBACK
from rmqtx.readers.model.errors import BadRequest, NotAStore
from rmqtx.readers.storage.segments import DLEDGER_FRAME_BYTES
from rmqtx.readers.store.store import Store, open_store
from rmqtx.repairs.rebuild.rebuild import PARTS, rebuild
from rmqtx.repairs.records.store_sizes import store_sizes
from rmqtx.repairs.salvage.salvage import salvage
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending
from rmqtx_cli.commands.reading.stores import stores_below
from tests.brokers import corpus
from tests.forge.records import Message
from tests.forge.stores import copy_of, opened, settings_of, unpacked

OLD = [name for design in ("state_table", "prepared_records") for name in corpus.corpus_names(design)]
DLEDGER = corpus.corpus_names("dledger")


def words(store: Store) -> list[str]:
    return [design.word for design in designs_of(store)]


def log_alone(name: str, to: Path) -> Store:
    shutil.copytree(unpacked(name) / "commitlog", to / "commitlog")
    return open_store(to)


@pytest.mark.parametrize("name", [name for name in OLD if not name.startswith("upgraded")])
def test_a_log_alone_tells_its_design(name: str, tmp_path: Path) -> None:
    assert words(log_alone(name, tmp_path)) == [corpus.recipe(name)["design"]]


def test_a_log_alone_tells_that_it_was_upgraded(tmp_path: Path) -> None:
    assert words(log_alone("upgraded-3.1.4-3.2.6", tmp_path)) == ["state_table", "prepared_records"]


@pytest.mark.parametrize(
    ("numbers", "kind", "design"),
    [
        ([0, 1, 2, 0, 1, 0, 1], PREPARED, ["state_table"]),  # a broker of 3.1, killed twice
        ([5, 6, 0], PREPARED, ["state_table"]),
        ([0, 0], PREPARED, ["prepared_records"]),
        ([0, 1, 2, 0, 0], PREPARED, ["state_table", "prepared_records"]),
        ([7], ROLLBACK, ["state_table"]),
        ([0, 0], ROLLBACK, ["prepared_records"]),
    ],
)
def test_numbers_of_slots_tell_the_design(numbers: list[int], kind: int, design: list[str], tmp_path: Path) -> None:
    words_of_a_producer = (("TRAN_MSG", "true"), ("PGROUP", "shop"))
    body, prepared = (b"x", 0) if kind == PREPARED else (b"", 1)
    message = Message(body=body, sys_flag=kind, properties=words_of_a_producer, prepared_transaction_offset=prepared)
    log = replace(message, properties=(), sys_flag=0).record(0)
    for number in numbers:
        log += replace(message, queue_offset=number).record(len(log))
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(log.ljust(4096, b"\0"))
    assert words(open_store(tmp_path)) == design


def test_tables_beside_the_log_of_another_design_are_named(tmp_path: Path) -> None:
    root = copy_of("common-4.9.7", tmp_path)
    shutil.copytree(unpacked("statetable-3.1.4") / "transaction", root / "transaction")
    assert words(open_store(root)) == ["state_table", "half_topic"]
    settings = settings_of("common-4.9.7")
    rows = [
        {key: value for key, value in row.items() if key not in ("store", "half_copies", "op_marks", "final_records",
                                                                  "discard_copies")}
        for row in audit([open_store(root)], settings).table().to_pylist()
    ]
    alone = audit([opened("common-4.9.7")], settings).table().to_pylist()
    assert [row["state"] for row in rows] == [row["state"] for row in alone]
    assert all(row["state_entries"] == [] for row in rows)


@pytest.mark.parametrize("kept", [["statetable"], ["redolog"], ["statetable", "redolog"]])
def test_tables_without_a_log_are_a_store_that_shows_nothing(kept: list[str], tmp_path: Path) -> None:
    for name in kept:
        shutil.copytree(unpacked("statetable-3.1.4") / "transaction" / name, tmp_path / "transaction" / name)
    store = open_store(tmp_path)
    assert words(store) == ["state_table"]
    reading = audit([store], settings_of("statetable-3.1.4"))
    assert reading.table().num_rows == 0
    told = {finding.code for finding in reading.findings}
    assert "log-missing" in told


# --- DLedger ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DLEDGER)
def test_entries_are_known_under_any_name(name: str, tmp_path: Path) -> None:
    """storePathDLedgerCommitLog (4.9.4+) puts the log anywhere."""
    root = copy_of(name, tmp_path)
    (root / "dledger-n0" / "data").rename(tmp_path / "entries")
    shutil.rmtree(root / "dledger-n0")
    store = open_store(root, (str(tmp_path / "entries"),))
    assert store.is_dledger
    assert {segment.frame_bytes for segment in store.commit_log} == {DLEDGER_FRAME_BYTES}
    rows = pending([store], settings_of(name)).table()["transaction_id"].to_pylist()
    assert rows == pending([opened(name)], settings_of(name)).table()["transaction_id"].to_pylist()
    whole = audit([store], settings_of(name))
    assert not whole.findings
    assert whole.table()["state"].equals(audit([opened(name)], settings_of(name)).table()["state"])
    with pytest.raises(BadRequest, match="DLedger"):
        rebuild(PARTS, store, tmp_path / "new", store_sizes(store))


def test_an_ordinary_log_is_never_taken_for_entries(tmp_path: Path) -> None:
    for name in ("common-4.3.0", "statetable-3.1.4", "multipath-5.1.4"):
        store = open_store(copy_of(name, tmp_path / name))
        assert not store.is_dledger
        assert {segment.frame_bytes for segment in store.commit_log} == {0}


@pytest.mark.parametrize("below", ["", "data"])
def test_a_members_directory_is_no_store(below: str, tmp_path: Path) -> None:
    """It has a checkpoint of its own, and without queues and cursors it would show no transaction at all."""
    root = copy_of("dledger-5.1.4", tmp_path)
    with pytest.raises(NotAStore, match=f"give the store's root: {root}$"):
        open_store(root / "dledger-n0" / below)
    with pytest.raises(BadRequest, match="DLedger"):
        salvage([root / "dledger-n0" / below], tmp_path / "salvaged", store_sizes(opened("dledger-5.1.4")))


def test_every_layout_of_a_log_is_found_below_a_directory(tmp_path: Path) -> None:
    """Directories that are named as a member's are none unless they hold its data."""
    names = ["common-4.3.0", "dledger-5.1.4", "multipath-5.1.4"]
    for name in names:
        copy_of(name, tmp_path / name)
    stores, refused = stores_below(str(tmp_path))
    assert ([store.root for store in stores], refused) == ([str(tmp_path / name / "store") for name in names], [])
