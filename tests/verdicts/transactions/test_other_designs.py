"""Stores of the other designs that real brokers wrote: each verdict and each proof is what clients and broker saw."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.log.record_layout import PREPARED
from rmqtx.readers.log.splits import WorkDivision
from rmqtx.readers.log.transaction_records import scan_halves
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.tables import STATE_ENTRIES
from rmqtx.readers.old_tables import beside_tables
from rmqtx.readers.old_tables.beside_log import REDO_LOG, STATE_TABLE
from rmqtx.readers.store.store import HALF_TOPIC, ROCKSDB_HALF_TOPIC, Store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending, show
from tests.brokers import corpus
from tests.forge.stores import contents, opened, settings_of, unpacked
from tests.representatives import few_quick, one_of_each_design, rest_is_slow
from tests.verdicts.truth import Row, audited, is_asked, require_truth

OLD = [*corpus.corpus_names(design="state_table"), *corpus.corpus_names(design="prepared_records")]
needs_rocksdict = pytest.mark.skipif(
    importlib.util.find_spec("rocksdict") is None, reason="rocksdict is not here (pip install rocksdict)"
)
ROCKSDB = [pytest.param(name, marks=needs_rocksdict) for name in corpus.corpus_names(design="rocksdb")]


@pytest.mark.parametrize("name", OLD)
def test_prepared_records_have_the_state_and_the_proof_that_was_seen(name: str) -> None:
    require_truth(name, audited(name), is_asked)


SLOT = struct.Struct(">qiiii")
STATES = {4: "PREPARED", 8: "COMMIT", 12: "ROLLBACK"}


def slots_of(store: Store, findings: list[Finding]) -> pa.Table | None:
    """The slots of the state table that hold a transaction. docs/formats/state_table.md#slot."""
    del findings
    files = sorted(Path(store.root, "transaction", "statetable").glob("0*"))
    rows = []
    for file in files:
        data = file.read_bytes()
        for position in range(0, len(data) // SLOT.size * SLOT.size, SLOT.size):
            offset, size, _, _, state = SLOT.unpack_from(data, position)
            if size and state in STATES:
                place = int(file.name) + position
                rows.append((store.root, offset, STATE_TABLE, str(place // SLOT.size), STATES[state], place))
    columns: list[Any] = list(zip(*rows, strict=True)) if rows else [[]] * len(STATE_ENTRIES)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, STATE_ENTRIES, strict=True)],
                    schema=STATE_ENTRIES) if files else None


def no_redo_entries(store: Store, findings: list[Finding]) -> pa.Table | None:
    """That there is a redo log: a slave has no table beside it."""
    del findings
    return STATE_ENTRIES.empty_table() if Path(store.root, "transaction", "redolog").is_dir() else None


@pytest.mark.parametrize("name", corpus.corpus_names(design="state_table"))
def test_the_state_table_tells_who_is_asked_and_whose_answers_are_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside_tables, "OF_PREPARED", ((STATE_TABLE, slots_of), (REDO_LOG, no_redo_entries)))
    rows: list[Row] = audit([opened(name)], settings_of(name)).table().to_pylist()
    # A broker that finds `abort` makes its table anew: whether its answers count is not known before.
    require_truth(name, rows, is_asked)
    for row in rows:
        places_of = {copy["commit_log_offset"] for copy in row["half_copies"]}
        slots = slots_of(opened(name), []) or STATE_ENTRIES.empty_table()
        mine = [slot for slot in slots.to_pylist() if slot["half_commit_log_offset"] in places_of]
        assert [entry["position_bytes"] for entry in row["state_entries"]] == [slot["position_bytes"] for slot in mine]


@pytest.mark.parametrize("name", ROCKSDB)
def test_transactions_in_rocksdb_have_the_state_and_the_proof_that_was_seen(name: str) -> None:
    require_truth(name, audited(name), is_asked)


def test_nothing_counts_what_a_timer_asked() -> None:
    assert {row["checks_count"] for row in audited("statetable-3.1.4")} == {None}
    assert {row["checks_count"] for row in audited("prepared-4.2.0")} == {0}


@pytest.mark.parametrize("name", [*OLD, *ROCKSDB])
def test_every_row_is_complete(name: str) -> None:
    for row in audited(name):
        assert row["transaction_id"]
        assert row["reason"]
        assert row["half_copies"] or row["final_records"] or row["op_marks"]
        is_undated = row["state"] in ("PENDING", "LOST", "UNDECIDABLE") or "without_copy" in row["flags"]
        assert (row["decided_time_ms"] is None) == is_undated
        assert row["producer_group"]
        assert row["topic"]
        assert row["queue_id"] is not None


@pytest.mark.parametrize("name", one_of_each_design([*OLD, *ROCKSDB]))
def test_pending_and_show_scan_and_say_so(name: str) -> None:
    rows = audited(name)
    wanted = [
        row
        for row in rows
        if row["state"] == "PENDING" or row["advice"] in ("close", "wait") or "open_after_decision" in row["flags"]
    ]
    reading = pending([opened(name)], settings_of(name))
    assert reading.table().to_pylist() == wanted
    assert reading.notes[0].text.startswith("the log is scanned because ")
    for row in rows[:: max(1, len(rows) // 6)]:
        assert row in show([opened(name)], settings_of(name), row["transaction_id"]).table().to_pylist()


@pytest.mark.parametrize("name", few_quick(OLD))
def test_show_finds_a_prepared_record_by_its_offset_message_id(name: str) -> None:
    ids = {row["commit_log_offset"]: row["message_id"] for row in scan_records(opened(name)).table().to_pylist()}
    for row in audited(name)[::9]:
        rollbacks = [mark for mark in row["op_marks"] if mark["half_queue_offset"] is None]
        for copy in row["half_copies"] + rollbacks:
            found = show([opened(name)], settings_of(name), ids[copy["commit_log_offset"]]).table().to_pylist()
            assert found == [row]


@pytest.mark.parametrize("name", [*OLD, *ROCKSDB])
def test_half_copies_of_every_design_are_halves(name: str) -> None:
    rows = scan_halves(opened(name)).table().to_pylist()
    copies = sorted(copy["commit_log_offset"] for row in audited(name) for copy in row["half_copies"])
    assert [row["commit_log_offset"] for row in rows] == copies
    for row in rows:
        if row["topic"] in (HALF_TOPIC, ROCKSDB_HALF_TOPIC):
            continue
        assert row["sys_flag"] & 0xC == PREPARED
        assert (row["real_topic"], row["real_queue_id"]) == (row["topic"], row["queue_id"])


@pytest.mark.parametrize("name", [*few_quick(OLD), *rest_is_slow(ROCKSDB)])
def test_small_splits_give_the_same_rows(name: str) -> None:
    rows = audit([opened(name)], settings_of(name), work=WorkDivision(7_000)).table().to_pylist()
    assert sorted(rows, key=str) == sorted(audited(name), key=str)


@pytest.mark.parametrize("name", [*few_quick(OLD), *rest_is_slow(ROCKSDB)])
def test_reading_changes_nothing(name: str) -> None:
    before = contents(unpacked(name))
    list(audit([opened(name)], settings_of(name)))
    assert contents(unpacked(name)) == before
