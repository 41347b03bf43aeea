"""Causes in the roles of brokers, against what clients, brokers and the slaves' logs reported."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from readers.store.broker_settings import broker_settings
from readers.store.store import Store, open_store
from tests.brokers import corpus
from tests.forge.stores import opened
from tests.verdicts.causes.diagnosed import diagnosed, proven, strengths
from verdicts.audit.local_audit import audit
from verdicts.causes.diagnosing import Diagnosis
from verdicts.causes.evidence import NEEDED_COLUMNS

ESCAPED, ROCKSDB, SENT = "escaped-5.3.3", "rocksdb-slave-5.5.0", "acting-slave-sent-copies"


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Store]:
    """The stores of the other brokers."""
    names = (ESCAPED, ROCKSDB)
    return {name: open_store(corpus.unpack_beside(name, tmp_path_factory.mktemp(name))) for name in names}


def found_in(stores: list[Store], version: str, conf: dict[str, str] | None = None) -> list[dict[str, Any]]:
    settings = {store.root: broker_settings(store, conf=conf, version=version) for store in stores}
    reading = audit(stores, lambda store: settings[store.root], columns=NEEDED_COLUMNS)
    found = Diagnosis(reading.evidence)
    for batch in reading:
        found.add(batch)
    rows: list[dict[str, Any]] = found.table().to_pylist()
    return rows


def test_copies_that_an_acting_slave_sent() -> None:
    """Each is checked to its end, so a transaction that is committed at a check is delivered several times."""
    plans = Counter(row["plan"] for row in corpus.expected(ESCAPED))
    rows = proven(SENT, ESCAPED)
    assert Counter(row["plan"] for row in rows)["escaped_unanswered"] == plans["escaped_unanswered"]
    assert all(row["plan"].startswith("escaped_") for row in rows)
    found = strengths(diagnosed(ESCAPED, "5.3.3")[1])
    assert found[SENT]["explains"] == len(rows)
    assert "explains" not in found["cursor-went-back"]
    again = [row for row in rows if row["plan"] == "escaped_committed_before"]
    assert any(len(row["final_records"]) > 1 for row in again)


def test_copies_on_two_brokers(beside: dict[str, Store]) -> None:
    """The killed master's store shows the rest: all that its slave sent is on both brokers."""
    sent = [row for row in corpus.expected(ESCAPED) if row["plan"].startswith("escaped_")]
    found = strengths(found_in([opened(ESCAPED), beside[ESCAPED]], "5.3.3"))[SENT]
    assert sum(found.values()) == len(sent)
    assert found["explains"] >= len(proven(SENT, ESCAPED))
    assert SENT not in strengths(found_in([beside[ESCAPED]], "5.3.3"))


def test_what_only_the_slave_dropped(beside: dict[str, Store]) -> None:
    rows = [row for row in corpus.expected(ROCKSDB) if row["plan"] == "dropped_by_slave"]
    assert {row["state"] for row in rows} == {"PENDING"}
    word = "rocksdb-slave-drops"
    assert strengths(found_in([beside[ROCKSDB]], "5.5.0", {"brokerRole": "SLAVE"}))[word] == {"explains": len(rows)}
    assert word not in strengths(diagnosed(ROCKSDB, "5.5.0")[1])
