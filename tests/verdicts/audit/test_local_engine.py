"""One partition in memory or many in files, one split or many: the same verdicts, findings and coverage."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rmqtx.readers.jobs.spool import Spool
from rmqtx.readers.log.kernels import is_accelerator_installed, use_accelerator
from rmqtx.readers.log.splits import WorkDivision
from rmqtx.readers.model.tables import MARKS, TRANSACTIONS
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit import local_audit
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.causes.judging import Judging
from tests.forge import damage
from tests.forge.stores import copy_of, opened, settings_of
from tests.representatives import rest_is_slow

Row = dict[str, Any]
STORES = ("common-5.3.3", "killed-4.9.7", "masked-4.9.7", "common-4.3.0")


def verdicts(name: str, root: Path | None = None, *, processes: int = 1) -> tuple[dict[str, list[Row]], set[str], Row]:
    """Rows by id, findings as lines, and bytes by what became of them."""
    store = opened(name) if root is None else open_store(root)
    reading = audit([store], settings_of(name), processes=processes)
    rows: dict[str, list[Row]] = {}
    for row in reading.table().to_pylist():
        rows.setdefault(row["transaction_id"], []).append(row)
    sums = {
        field: sum(getattr(part, field) for part in reading.coverage)
        for field in ("decoded_bytes", "filler_bytes", "damaged_bytes", "unread_bytes")
    }
    return rows, {finding.line() for finding in reading.findings}, sums


@functools.cache
def wanted_of(name: str) -> tuple[dict[str, list[Row]], set[str], Row]:
    """The same of an undamaged store, in one partition and in memory, once for all tests: ask before `many` is used."""
    return verdicts(name)


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small splits, many partitions, all in files."""
    monkeypatch.setattr(local_audit, "ONE_PROCESS_BYTES_MAX", 0)
    monkeypatch.setattr(local_audit, "SPLIT_BYTES", 7_001)
    monkeypatch.setattr(local_audit, "PARTITION_BYTES", 20_000)


@pytest.mark.parametrize("name", STORES)
def test_partitions_in_files_give_what_memory_gives(name: str, request: pytest.FixtureRequest) -> None:
    wanted = wanted_of(name)
    request.getfixturevalue("many")
    assert verdicts(name) == wanted


@pytest.mark.parametrize("engine", ["memory", "many"])
def test_some_columns_are_those_of_all(engine: str, request: pytest.FixtureRequest) -> None:
    if engine == "many":
        request.getfixturevalue("many")

    def table(columns: Sequence[str]) -> pa.Table:
        name, now_ms = "killed-4.9.7", 1_800_000_000_000
        return audit([opened(name)], settings_of(name), at_ms=now_ms, processes=1, columns=columns).table()

    whole = table(TRANSACTIONS.names)
    for columns in (("state", "half_copies"), ("discard_at_ms",), ("reason", "store"), ("flags",)):
        part = table(columns)
        assert part.schema.names == [name for name in TRANSACTIONS.names if name in columns]
        assert part.equals(whole.select(part.schema.names)), columns


def test_the_accelerator_gives_the_same(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if not is_accelerator_installed():
        pytest.skip("numba (extra `fast`) is not installed")
    wanted = {name: wanted_of(name) for name in STORES}
    monkeypatch.setattr(local_audit, "ACCELERATED_BYTES_MIN", 0)
    for _ in ("one partition", "many"):
        assert {name: verdicts(name) for name in STORES} == wanted
        request.getfixturevalue("many")
    use_accelerator(False)


@pytest.mark.parametrize("seed", rest_is_slow(range(6), quick=1))
def test_the_same_on_damaged_stores(seed: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A record's place, not its name, brings a final to its half: flips of single header bytes keep the rows equal."""
    name = STORES[seed % len(STORES)]
    root = copy_of(name, tmp_path)
    file = damage.log_files(root)[0]
    for number, (position, _) in enumerate(damage.records_in(file)[3 + seed :: 23]):
        damage.flip_byte(file, position + (3, 6, 30, 26, 15, 86)[(seed + number) % 6], 0x11)
    wanted = verdicts(name, root)
    request.getfixturevalue("many")
    assert verdicts(name, root) == wanted


def test_a_final_of_another_name_is_judged_with_the_copy_it_names(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Bits flipped in the ids of finals: by their ids alone they would be in other partitions than their copies."""
    root = copy_of(STORES[0], tmp_path)
    file = damage.log_files(root)[0]
    data = file.read_bytes()
    whole = wanted_of(STORES[0])[0]
    finals = [row for row in whole.values() if row[0]["final_records"]]
    for rows in finals:
        place = rows[0]["final_records"][0]["commit_log_offset"]
        damage.flip_byte(file, data.index(b"UNIQ_KEY\x01", place) + len("UNIQ_KEY\x01") + 50, 0x11)
    assert len(finals) > 10
    wanted = verdicts(STORES[0], root)
    assert wanted[0].keys() >= whole.keys()
    request.getfixturevalue("many")
    assert verdicts(STORES[0], root) == wanted


@pytest.mark.parametrize("name", ["rocksdb-both-5.5.0", "common-5.3.3", "prepared-4.2.0"])
def test_a_half_with_an_id_that_is_no_text_is_judged_with_the_end_that_names_it(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A byte of the id becomes 0xff: the half is reported as unreadable, and its COMMIT record names its place."""
    root = copy_of(name, tmp_path)
    file = damage.log_files(root)[0]
    data = file.read_bytes()
    sound = [row for rows in wanted_of(name)[0].values() for row in rows]
    damaged = {
        row["transaction_id"]: row["half_copies"][0]["commit_log_offset"] for row in sound
        if len(row["half_copies"]) == 1 and row["final_records"] and not row["discard_copies"]
    }
    damaged = {identity: place for identity, place in damaged.items() if place}  # to name offset 0 is to name nothing
    for place in damaged.values():
        damage.write_bytes(file, data.index(b"UNIQ_KEY\x01", place) + len("UNIQ_KEY\x01") + 20, b"\xff")
    assert len(damaged) > 5
    wanted = verdicts(name, root)
    assert {identity: wanted[0][identity][0]["half_copies"][0]["commit_log_offset"] for identity in damaged} == damaged
    assert sum("half-unreadable" in line for line in wanted[1]) == len(damaged)
    request.getfixturevalue("many")
    assert verdicts(name, root) == wanted


@pytest.mark.parametrize("has_index", [True, False])
def test_a_torn_copy_is_judged_alike_where_the_other_copies_are_in_another_partition(
    has_index: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Its id is lost, and with it the partition of its transaction: one partition had UNDECIDABLE, many had LOST."""
    name = "common-5.3.3"
    root = copy_of(name, tmp_path)
    damage.zero_bytes(damage.log_files(root)[0], 16_045 + 180, 505 - 180)  # a half copy, from its properties to its end
    if not has_index:
        damage.drop(root / "index")
    wanted = verdicts(name, root)
    torn = [
        row for rows in wanted[0].values() for row in rows
        if [one["commit_log_offset"] for one in row["half_copies"]] == [16_045]
    ]
    assert [row["state"] for row in torn] == ["UNDECIDABLE"]
    request.getfixturevalue("many")
    assert verdicts(name, root) == wanted


def test_other_processes_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    name = STORES[0]
    wanted = wanted_of(name)
    monkeypatch.setattr(local_audit, "ONE_PROCESS_BYTES_MAX", 0)
    assert verdicts(name, processes=2) == wanted


def test_two_stores_are_one_audit() -> None:
    names = ("common-5.3.3", "common-4.3.0")
    stores = [opened(name) for name in names]
    rows = audit(stores, settings_of(names[0])).table().to_pylist()
    assert {row["store"] for row in rows} == {store.root for store in stores}
    for store, name in zip(stores, names, strict=True):
        rows_alone = audit([store], settings_of(name)).table().to_pylist()
        alone = {row["transaction_id"]: row["half_copies"] for row in rows_alone}
        together = {row["transaction_id"]: row["half_copies"] for row in rows if row["store"] == store.root}
        assert together == alone


def test_nothing_is_left_in_the_temporary_directory(tmp_path: Path, many: None) -> None:
    reading = audit([opened(STORES[0])], settings_of(STORES[0]), processes=1, work=WorkDivision(None, str(tmp_path)))
    assert reading.table().num_rows
    assert list(tmp_path.iterdir()) == []


def test_places_of_one_store_are_not_those_of_another(request: pytest.FixtureRequest) -> None:
    """Both logs begin at offset 0 with a half message; a decision in one says nothing of the other's."""
    names = ("masked-5.3.3", "multipath-5.3.3")
    stores = [opened(name) for name in names]

    def rows_of(*chosen: Any) -> dict[str, Row]:
        rows = audit(list(chosen), settings_of(names[0]), processes=1).table().to_pylist()
        return {row["transaction_id"]: row for row in rows}

    wanted = rows_of(*stores)
    assert wanted == {**rows_of(stores[0]), **rows_of(stores[1])}
    request.getfixturevalue("many")
    assert rows_of(*stores) == wanted


def test_a_mark_in_two_partitions_counts_once_where_they_are_tied(tmp_path: Path) -> None:
    row = {"store": "s", "queue_id": 0, "queue_offset": 3, "commit_log_offset": 900, "store_time_ms": 7}
    marks = pa.RecordBatch.from_pylist([{**row, "half_queue_offset": number} for number in (5, 4)], MARKS)
    spool = Spool(2, tmp_path)
    spool.add("marks", [marks, marks.slice(0, 1)], np.array([0, 0, 1]), "one")
    judging = Judging({}, ())
    found = {
        numbers: local_audit._Verdict(spool, numbers, judging).witnesses().marks["half_queue_offset"].to_pylist()
        for numbers in ((0,), (1,), (0, 1))
    }
    assert found == {(0,): [5, 4], (1,): [5], (0, 1): [5, 4]}
