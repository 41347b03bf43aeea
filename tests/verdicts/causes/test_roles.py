"""Causes in the roles of brokers, against what clients, brokers and the slaves' logs reported."""

from __future__ import annotations

from typing import Any

import pytest

from readers.store.broker_settings import broker_settings
from readers.store.store import Store, open_store
from tests.brokers import corpus
from tests.verdicts.causes.diagnosed import diagnosed, strengths
from verdicts.audit.local_audit import audit
from verdicts.causes.diagnosing import Diagnosis
from verdicts.causes.evidence import NEEDED_COLUMNS

ROCKSDB = "rocksdb-slave-5.5.0"


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Store]:
    """The stores of the other brokers."""
    names = (ROCKSDB,)
    return {name: open_store(corpus.unpack_beside(name, tmp_path_factory.mktemp(name))) for name in names}


def found_in(stores: list[Store], version: str, conf: dict[str, str] | None = None) -> list[dict[str, Any]]:
    settings = {store.root: broker_settings(store, conf=conf, version=version) for store in stores}
    reading = audit(stores, lambda store: settings[store.root], columns=NEEDED_COLUMNS)
    found = Diagnosis(reading.evidence)
    for batch in reading:
        found.add(batch)
    rows: list[dict[str, Any]] = found.table().to_pylist()
    return rows


def test_what_only_the_slave_dropped(beside: dict[str, Store]) -> None:
    rows = [row for row in corpus.expected(ROCKSDB) if row["plan"] == "dropped_by_slave"]
    assert {row["state"] for row in rows} == {"PENDING"}
    word = "rocksdb-slave-drops"
    assert strengths(found_in([beside[ROCKSDB]], "5.5.0", {"brokerRole": "SLAVE"}))[word] == {"explains": len(rows)}
    assert word not in strengths(diagnosed(ROCKSDB, "5.5.0")[1])
