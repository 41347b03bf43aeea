"""Stores whose clients reported what they sent: several applications in one producer group, and message traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from readers.store.broker_settings import broker_settings
from readers.store.store import open_store
from tests.conftest import MOMENT
from tests.field import field_stores, right
from verdicts.audit.local_audit import audit
from verdicts.audit.lookups import pending
from verdicts.evidence.store_facts import known_until_ms

Row = dict[str, Any]
OWN, SHARED, UNKNOWN = "group-own-5.3.3", "group-shared-5.3.3", "group-shared-unknow-4.9.7"
TRACES = ("trace-checks-4.9.7", "trace-custom-topic-5.5.0", "trace-dropped-5.3.3")
#: A transaction without a decision that was checked as often as the broker checks, transactionCheckMax=3.
CHECKS_MAX = 3


@pytest.fixture(autouse=True)
def _a_minute_after_the_last_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MOMENT, lambda store: known_until_ms(store) + 60_000)


def rows_of(name: str, to: Path) -> dict[str, Row]:
    store = open_store(field_stores(name, to) / "store")
    reading = audit([store], broker_settings)
    rows = reading.table().to_pylist()
    assert [finding.code for finding in reading.findings if finding.severity == "error"] == []
    open_ones = {row["transaction_id"] for row in rows if row["state"] == "PENDING"}
    listed = pending([store], broker_settings).table().to_pylist()
    assert {row["transaction_id"] for row in listed if row["state"] == "PENDING"} == open_ones
    return {row["transaction_id"]: row for row in rows}


def delivered_at(row: Row) -> list[int]:
    return [final["commit_log_offset"] for final in row["final_records"]]


@pytest.mark.parametrize("name", [OWN, SHARED, UNKNOWN])
def test_transactions_of_two_applications_have_the_states_that_they_reported(name: str, tmp_path: Path) -> None:
    rows, expected = rows_of(name, tmp_path), right(name)["transactions"]
    assert set(rows) == set(expected)
    for transaction_id, one in expected.items():
        row = rows[transaction_id]
        assert row["topic"] == one["topic"]
        assert delivered_at(row) == one["delivered"]
        states = {"PENDING", "DISCARDED"} if one["state"] == "OPEN_OR_DISCARDED" else {one["state"]}
        assert row["state"] in states
    open_ones = [row for row in rows.values() if row["state"] in ("PENDING", "DISCARDED")]
    assert len(open_ones) == sum(one["state"] == "OPEN_OR_DISCARDED" for one in expected.values())


def test_transactions_of_a_group_with_random_ids(tmp_path: Path) -> None:
    states = [row["state"] for row in rows_of("shared-group", tmp_path).values()]
    assert {word: states.count(word) for word in set(states)} == right("shared-group")["states"]


@pytest.mark.parametrize("name", TRACES)
def test_only_what_reached_the_broker_decides_however_clients_and_their_traces_report_it(
    name: str, tmp_path: Path
) -> None:
    """A proxy dropped some decisions on their way; the client, and the trace topic in the same log, have them."""
    rows = rows_of(name, tmp_path)
    for transaction_id, one in right(name)["transactions"].items():
        row = rows.pop(transaction_id)
        assert row["topic"] == one["topic"]
        assert delivered_at(row) == one["delivered"]
        if one["arrived"]:
            assert row["state"] == {"COMMIT": "COMMITTED", "ROLLBACK": "ROLLED_BACK"}[one["arrived"][0]]
        else:
            assert one["answers"] == CHECKS_MAX
            assert row["state"] == "DISCARDED"
    assert {row["keys"] for row in rows.values()} <= {"KEY_warm"}
