"""What the next stop or start does to decided transactions: the numbers that the histories of real brokers give."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import Store, open_store
from rmqtx.verdicts.verify.verify import next_start_findings, next_stop_findings
from tests.brokers import corpus
from tests.forge.stores import copy_of, opened
from tests.forge.volume import Plan, build, committed, op_lost, pending
from tests.representatives import few_quick


def found(store: Store, version: str | None = None) -> list[tuple[str, str | None]]:
    # Forged records are years old: the check would only discard them.
    settings = broker_settings(store, conf={"fileReservedTime": "1000000"}, version=version)
    every = [*next_stop_findings(store, settings), *next_start_findings(store, settings)]
    return [(one.code, one.actual) for one in every]


def reached_again(name: str) -> Counter[str]:
    """The decided transactions that the broker would check again, by what it and its clients reported."""
    counts: Counter[str] = Counter()
    for row in corpus.expected(name):
        if row["open"] and row["state"] != "PENDING":
            counts[row["state"] if isinstance(row["state"], str) else row["state"][0]] += 1
    return counts


#: Where a check is stopped, `verify` reports that instead.
NAMES = [name for name in corpus.corpus_names() if not name.startswith("poison-")]


@pytest.mark.parametrize("name", few_quick(NAMES))
def test_the_decided_ones_that_are_checked_again_are_counted(name: str) -> None:
    rows = found(opened(name))
    assert {code for code, _ in rows} <= {"start-checks-again"}
    told = {
        state: int(count) for _, text in rows for count, state in re.findall(r"(\d+) (?!PENDING)([A-Z_]+)", str(text))
    }
    assert told == dict(reached_again(name))
    if rows and not told:  # rollbacks that were in the memory of a killed broker
        assert corpus.recipe(name)["stop"] == "kill"


def test_some_stores_have_it_and_most_do_not() -> None:
    assert found(opened("cursorback-4.3.0")) == [("start-checks-again", "4 COMMITTED, 4 ROLLED_BACK")]
    assert found(opened("busystop-5.3.3")) == []
    [(code, text)] = found(opened("killed-5.3.3"))
    assert code == "start-checks-again"
    assert re.fullmatch(r"4 COMMITTED, \d+ PENDING that may have been rolled back .*", str(text))


@pytest.mark.parametrize(
    ("version", "wanted"), [("4.9.7", None), ("5.1.4", "3 s"), ("5.5.0", "3 s"), (None, "3 s")]
)
def test_a_running_broker_from_5_1_0_on_loses_ops_at_its_stop(
    version: str | None, wanted: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store: Any = open_store(copy_of("busystop-4.9.7" if version == "4.9.7" else "busystop-5.1.4", tmp_path / "store"))
    assert found(store, version) == []
    monkeypatch.setattr(Store, "in_use", property(lambda _: True))
    rows = found(store, version)
    assert [code for code, _ in rows] == ["stop-loses-ops"] * (wanted is not None)
    assert all(str(wanted) in str(text) for _, text in rows)


def test_an_orderly_stop_that_lost_ops_leaves_rollbacks_without_a_trace(tmp_path: Path) -> None:
    """As a 5.3.3 that was stopped within transactionOpBatchInterval left it: no op message of its last decisions."""
    store = open_store(build(tmp_path, Plan({committed: 40}, {op_lost: 3, pending: 2})))
    words = "3 COMMITTED, 2 PENDING of which some may have been rolled back just before the stop"
    assert found(store, "5.3.3") == [("start-checks-again", words)]
    assert found(store, "4.9.7") == [("start-checks-again", "3 COMMITTED")]
