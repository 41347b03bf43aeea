"""Causes in transactions in RocksDB, against what clients and brokers reported."""

from __future__ import annotations

import pytest

from tests.brokers import corpus
from tests.verdicts.causes.diagnosed import proven


@pytest.mark.parametrize("version", ["5.4.0", "5.5.0"])
def test_a_kill_loses_the_end_of_the_table(version: str) -> None:
    """The next start asks for them again, for those too that the broker had dropped, and counts from 0."""
    name = f"rocksdb-killed-{version}"
    rows = proven("rocksdb-table-old-after-kill", name)
    expected = {row["transaction_id"]: row for row in corpus.expected(name)}
    found = {row["transaction_id"] for row in rows}
    assert found == {row["transaction_id"] for row in expected.values() if row["state"] == "PENDING"}
    dropped = [one for one in found if expected[one]["plan"] == "pending_after_drop"]
    assert dropped
    assert all(expected[one]["discard_seen"] and expected[one]["asked_after_restart"] for one in dropped)
    assert not proven("rocksdb-table-old-after-kill", f"rocksdb-{version}")
