"""What two audits do not say the same of: every change is found, and nothing else."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqtx.readers.model.errors import BadText, UnreadableFile
from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.transactions import diff
from rmqtx.verdicts.transactions.diff import CHANGES, DIFFERENCES, NEEDED, differences, read_verdicts
from tests.brokers import corpus
from tests.forge.stores import opened, settings_of

Row = dict[str, Any]
NAME = "cursorback-5.3.3"


def audited(name: str, at_ms: int | None = None) -> pa.Table:
    return audit([opened(name)], settings_of(name), at_ms=at_ms).table()


def found(before: pa.Table, after: pa.Table) -> list[Row]:
    rows: list[Row] = pa.Table.from_batches(
        list(differences(before.to_batches(), after.to_batches())), DIFFERENCES
    ).to_pylist()
    return rows


def test_an_audit_does_not_differ_from_itself() -> None:
    rows = audited("common-5.3.3")
    shuffled = rows.take(random.Random(7).sample(range(len(rows)), len(rows)))
    assert found(rows, shuffled) == []


def test_what_appeared_and_what_vanished() -> None:
    rows = audited("common-5.3.3")
    changes = found(rows.slice(2), rows.slice(0, len(rows) - 3))
    ids = rows["transaction_id"].to_pylist()
    told = {row["transaction_id"]: row["change"] for row in changes}
    assert told == {**dict.fromkeys(ids[:2], "appeared"), **dict.fromkeys(ids[-3:], "vanished")}
    first = next(row for row in changes if row["transaction_id"] == ids[0])
    assert (first["state_before"], first["state_after"]) == (None, rows["state"][0].as_py())
    assert first["what"] == []


def test_a_store_at_two_times_tells_what_happened_in_between() -> None:
    """Between the two moments every transaction with a final was committed, as the truth says."""
    truth = {row["transaction_id"]: row for row in corpus.expected("common-5.3.3")}
    now = audited("common-5.3.3")
    middle = sorted(time for time in now["half_store_time_ms"].to_pylist() if time)[len(now) // 2]
    changes = found(audited("common-5.3.3", middle), now)
    appeared = {row["transaction_id"] for row in changes if row["change"] == "appeared"}
    later = {row["transaction_id"] for row in now.to_pylist() if row["half_store_time_ms"] > middle}
    assert appeared == later
    assert not [row for row in changes if row["change"] == "vanished"]
    for row in changes:
        if row["change"] == "changed" and row["state_after"] == "COMMITTED":
            assert truth[row["transaction_id"]]["state"] == "COMMITTED"
            assert "state" in row["what"] or row["state_before"] == "COMMITTED"
    assert [row["half_store_time_ms"] for row in changes] == sorted(row["half_store_time_ms"] for row in changes)


def test_each_kind_of_change_is_named() -> None:
    rows = audited("common-5.3.3").to_pylist()
    changed = [dict(row) for row in rows]
    changed[0]["state"] = "LOST"
    changed[1]["flags"] = [*changed[1]["flags"], "poison"]
    changed[2]["half_copies"] = changed[2]["half_copies"][:-1]
    delivered = next(number for number in range(4, len(rows)) if rows[number]["final_records"])
    changed[delivered]["final_records"] = []
    changed[3]["reason"] = "other words"  # a sentence is no difference
    told = {
        row["transaction_id"]: row["what"]
        for row in found(pa.Table.from_pylist(rows, TRANSACTIONS), pa.Table.from_pylist(changed, TRANSACTIONS))
    }
    assert told.pop(rows[0]["transaction_id"]) == ["state"]
    assert told.pop(rows[1]["transaction_id"]) == ["flags"]
    assert told.pop(rows[2]["transaction_id"]) == ["half_copies_count"]
    assert told.pop(rows[delivered]["transaction_id"]) == ["final_records_count"]
    assert told == {}


def test_unknown_groups_and_topics_are_the_same_as_themselves() -> None:
    row = dict(audited(NAME).to_pylist()[0], producer_group=None, topic=None, keys=None)
    other = dict(row, producer_group="shop")
    one, two = (pa.Table.from_pylist([value], TRANSACTIONS) for value in (row, other))
    assert found(one, one) == []
    assert sorted(change["change"] for change in found(one, two)) == ["appeared", "vanished"]


def test_one_identity_twice_is_compared_in_order() -> None:
    row = audited(NAME).to_pylist()[0]
    twice = pa.Table.from_pylist([row, dict(row, state="LOST")], TRANSACTIONS)
    assert found(twice, twice) == []
    (change,) = found(twice, twice.slice(0, 1))
    assert (change["change"], change["state_before"]) == ("vanished", "LOST")


def test_nothing_at_all() -> None:
    assert found(TRANSACTIONS.empty_table(), TRANSACTIONS.empty_table()) == []


def test_very_many_are_told_without_being_held(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = audited("common-5.3.3")
    wanted = found(TRANSACTIONS.empty_table(), rows)
    monkeypatch.setattr(diff, "_ORDERED_ROWS_MAX", 10)
    several = found(TRANSACTIONS.empty_table(), rows)
    assert several != wanted
    assert sorted(map(str, several)) == sorted(map(str, wanted))
    assert {row["change"] for row in wanted} <= set(CHANGES)


# -- results in files


def test_verdicts_come_back_from_files(tmp_path: Path) -> None:
    rows = audited(NAME)
    pq.write_table(rows, tmp_path / "a.parquet")
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    with pa.OSFile(str(tmp_path / "b.arrow"), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as file:
        file.write_table(rows)
    pq.write_table(rows.drop_columns(["reason_code", "deliveries_count"]), tmp_path / "old.parquet")
    for name in ("a.parquet", "a.arrow", "b.arrow", "old.parquet"):
        read = pa.Table.from_batches(list(read_verdicts(tmp_path / name)), NEEDED)
        assert read.to_pylist() == rows.select(NEEDED.names).to_pylist()


def test_a_file_without_all_columns_is_no_audit(tmp_path: Path) -> None:
    pq.write_table(audited(NAME).drop_columns(["op_marks"]), tmp_path / "a.parquet")
    with pytest.raises(BadText, match="column op_marks is missing"):
        list(read_verdicts(tmp_path / "a.parquet"))


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_a_file_that_is_none(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="not a readable result of an audit"):
        list(read_verdicts(tmp_path / name))
    (tmp_path / name).write_bytes(b"nothing of the kind")
    with pytest.raises(UnreadableFile, match="not a readable result of an audit"):
        list(read_verdicts(tmp_path / name))
