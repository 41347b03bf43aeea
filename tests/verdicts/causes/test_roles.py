"""Causes in the roles of brokers, against what clients, brokers and the slaves' logs reported."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import Store, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.causes.cause import PROVES
from rmqtx.verdicts.causes.diagnosing import Diagnosis
from rmqtx.verdicts.causes.evidence import NEEDED_COLUMNS, Evidence
from rmqtx.verdicts.causes.strengths import CAUSES
from tests.brokers import corpus
from tests.forge import damage
from tests.forge.stores import copy_of, opened, settings_of
from tests.verdicts.causes.diagnosed import diagnosed, proven, strengths

ESCAPED, ACTING, ROCKSDB = "escaped-5.3.3", "acting-5.3.3", "rocksdb-slave-5.5.0"
SENT, GAVE_UP, REFUSED = "acting-slave-sent-copies", "acting-slave-gave-up", "topic-refused-by-slave"


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Store]:
    """The stores of the other brokers."""
    names = (ESCAPED, ACTING, ROCKSDB)
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


def test_fast_rounds_alone_prove_nothing() -> None:
    """A store that was written with compressed times: its first copies come as soon as their messages are made."""
    reading = audit([opened(ESCAPED)], settings_of(ESCAPED), columns=NEEDED_COLUMNS)
    rows = reading.table()
    rule = CAUSES[SENT].rule
    assert PROVES in rule(Evidence(rows, reading.evidence))
    place = rows.schema.get_field_index("born_time_ms")
    at_once = rows.set_column(place, "born_time_ms", rows["half_store_time_ms"])
    assert not rule(Evidence(at_once, reading.evidence)).any()


def test_copies_on_two_brokers(beside: dict[str, Store]) -> None:
    """The killed master's store shows the rest: all that its slave sent is on both brokers."""
    sent = [row for row in corpus.expected(ESCAPED) if row["plan"].startswith("escaped_")]
    found = strengths(found_in([opened(ESCAPED), beside[ESCAPED]], "5.3.3"))[SENT]
    assert sum(found.values()) == len(sent)
    assert found["explains"] >= len(proven(SENT, ESCAPED))
    assert SENT not in strengths(found_in([beside[ESCAPED]], "5.3.3"))


def test_a_damaged_copy_of_the_same_log_is_no_other_broker(tmp_path: Path) -> None:
    """The first copies of some transactions are lost in it, and the whole copy has them."""
    root = copy_of("common-5.3.3", tmp_path / "damaged")
    file = damage.log_files(root)[0]
    places = damage.records_in(file)[:150]
    damage.zero_bytes(file, places[0][0], places[-1][0] + places[-1][1])
    whole, damaged = opened("common-5.3.3"), open_store(root)
    assert SENT in strengths(found_in([damaged], "5.3.3"))
    for stores in ([whole, damaged], [damaged, whole]):
        assert SENT not in strengths(found_in(stores, "5.3.3"))


def test_a_replica_is_no_other_broker(beside: dict[str, Store]) -> None:
    """A slave has the copies of its master at the same offsets."""
    assert SENT not in strengths(found_in([opened(ACTING), beside[ACTING]], "5.3.3"))


@pytest.mark.parametrize(
    ("conf", "strength"),
    [(None, "could_explain"), ({"enableSlaveActingMaster": "true"}, "could_explain"), ({"brokerId": "0"}, "ruled_out")],
)
def test_what_an_acting_slave_passed(conf: dict[str, str] | None, strength: str) -> None:
    lost = [row for row in corpus.expected(ACTING) if row["state"] == "LOST"]
    assert lost
    assert strengths(found_in([opened(ACTING)], "5.3.3", conf))[GAVE_UP] == {strength: len(lost)}


def test_topics_that_a_slave_refused(beside: dict[str, Store]) -> None:
    """It refused one with attributes, and took over none after it."""
    count = len(corpus.expected(ACTING))
    assert strengths(diagnosed(ACTING, "5.3.3")[1])[REFUSED] == {"could_explain": count}
    assert strengths(diagnosed(ACTING, "5.4.0")[1])[REFUSED] == {"ruled_out": count}
    assert REFUSED not in strengths(found_in([beside[ACTING]], "5.3.3"))


def test_what_only_the_slave_dropped(beside: dict[str, Store]) -> None:
    rows = [row for row in corpus.expected(ROCKSDB) if row["plan"] == "dropped_by_slave"]
    assert {row["state"] for row in rows} == {"PENDING"}
    word = "rocksdb-slave-drops"
    assert strengths(found_in([beside[ROCKSDB]], "5.5.0", {"brokerRole": "SLAVE"}))[word] == {"explains": len(rows)}
    assert word not in strengths(diagnosed(ROCKSDB, "5.5.0")[1])
