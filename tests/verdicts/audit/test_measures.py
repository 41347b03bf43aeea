"""Times between events and counts of checks: computed by hand from what clients and consumers of real brokers received.

The records with their store times are those that a client pulled from the broker after the run; the times of decisions
are also held against the client's own clock at each decision.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.transactions.measures import MEASURES
from rmqtx_cli.pages.latencies import Histograms, buckets_of, middle_of
from rmqtx_cli.pages.summary import SUMMARY_COLUMNS, Summary
from tests.brokers import corpus
from tests.forge.stores import opened, settings_of

Row = dict[str, Any]
STORES = ("common-4.3.0", "common-4.9.7", "common-5.3.3", "killed-5.5.0")
HALF_TOPIC, COMMIT = "RMQ_SYS_TRANS_HALF_TOPIC", 8
CLOCK_MS = 1_000


def measured(name: str) -> dict[str, Row]:
    names = ("transaction_id", "state", *MEASURES.names)
    rows = audit([opened(name)], settings_of(name), columns=names).table().to_pylist()
    return {row["transaction_id"]: row for row in rows}


def by_hand(name: str) -> dict[str, Row]:
    """The measures of each transaction with an id, from what clients received and the places of its records."""
    truth = corpus.truth(name)
    found = {one["commit_log_offset"]: one for one in truth if one["event"] == "after_record"}
    commits: dict[str, dict[int, Row]] = defaultdict(dict)
    for one in truth:
        if one["event"] == "delivered" and one["system_flag"] & 12 == COMMIT:
            commits[one["transaction_id"]][one["commit_log_offset"]] = one
    rows = {}
    for row in corpus.expected(name):
        copies = [found.get(copy["commit_log_offset"]) for copy in row["half_copies"]]
        if row["transaction_id"] is None or row["plan"] == "without_id" or not copies or None in copies:
            continue
        rows[row["transaction_id"]] = _of(row, [one for one in copies if one], found, commits[row["transaction_id"]])
    return rows


def _of(row: Row, copies: list[Row], found: dict[int, Row], commits: dict[int, Row]) -> Row:
    checks = {one["commit_log_offset"]: int(one["properties"].get("TRANSACTION_CHECK_TIMES", 0)) for one in copies}
    first = min(copies, key=lambda one: int(one["commit_log_offset"]))
    ops = [found[mark["commit_log_offset"]]["store_time_ms"] for mark in row["op_marks"]
           if mark["commit_log_offset"] in found]
    named = [checks[one["prepared_transaction_offset"]] for one in commits.values()
             if one["prepared_transaction_offset"] in checks]
    finals = [one["store_time_ms"] for one in commits.values()]
    decided = {"COMMITTED": finals, "ROLLED_BACK": ops}.get(row["state"]) if isinstance(row["state"], str) else None
    immune = [
        one for one in copies if "TRAN_PREPARED_QUEUE_OFFSET" in one["properties"]
        and one["store_time_ms"] - one["born_time_ms"] < 1000 * int(one["properties"]["CHECK_IMMUNITY_TIME_IN_SECONDS"])
    ]
    decided_ms = min(decided) if decided else None
    return {
        "key": (row["producer_group"], row["topic"]), "decided": decided_ms,
        "born_to_half_ms": first["store_time_ms"] - first["born_time_ms"],
        "half_to_decision_ms": None if decided_ms is None else decided_ms - first["store_time_ms"],
        "born_to_decision_ms": None if decided_ms is None else decided_ms - first["born_time_ms"],
        "decision_to_op_ms": ops[0] - finals[0] if len(ops) == len(finals) == len(row["op_marks"]) == 1 else None,
        "commits_count": len(named), "checked_commits_count": sum(count > 0 for count in named),
        "immune_checks_count": len(immune),
    }


@pytest.mark.parametrize("name", STORES)
def test_each_transaction_by_what_clients_received(name: str) -> None:
    ours, hand = measured(name), by_hand(name)
    clients = defaultdict(list)
    for one in corpus.truth(name):
        if one["event"] == "decision":
            clients[one["transaction_id"]].append(one["time_ms"])
    timed = 0
    for identity, wanted in hand.items():
        row = ours[identity]
        for measure in MEASURES.names:
            if measure == "decision_to_op_ms" and row[measure] is not None and wanted[measure] is None:
                continue
            assert row[measure] == wanted[measure], (identity, measure)
        if wanted["decided"] is not None and clients[identity]:
            waited = wanted["decided"] - min(clients[identity])
            assert -CLOCK_MS <= waited <= 7_000 + CLOCK_MS, identity
            timed += 1
    assert timed > 20
    assert sum(wanted["decision_to_op_ms"] is not None for wanted in hand.values()) > 5


@pytest.mark.parametrize("name", STORES)
def test_a_summary_has_the_quantiles_of_its_transactions(name: str) -> None:
    hand = by_hand(name)
    rows = audit([opened(name)], settings_of(name), columns=SUMMARY_COLUMNS).table()
    rows = rows.filter(np.isin(rows["transaction_id"].to_numpy(zero_copy_only=False).astype(str), list(hand)))
    found = {(row["producer_group"], row["topic"]): row for row in summed(rows).table().to_pylist()}
    parts = {(row["producer_group"], row["topic"]): row for row in _in_parts(rows).table().to_pylist()}
    assert found == parts
    for key, row in found.items():
        mine = [one for one in hand.values() if one["key"] == key]
        assert row["transactions_count"] == len(mine)
        for duration in ("born_to_half_ms", "half_to_decision_ms", "born_to_decision_ms"):
            values = sorted(one[duration] for one in mine if one[duration] is not None)
            for quantile, share in (("median", 0.5), ("95th", 0.95), ("worst", 1)):
                value = row[f"{duration.removesuffix('_ms')}_{quantile}_ms"]
                wanted = values[math.ceil(share * len(values)) - 1] if values else None
                assert value == wanted or (wanted is not None and abs(value - wanted) <= abs(wanted) / 256), duration
        commits = sum(one["commits_count"] for one in mine)
        checked = sum(one["checked_commits_count"] for one in mine)
        assert row["checked_commits_share"] == (checked / commits if commits else None)
        assert row["immune_checks_count"] == sum(one["immune_checks_count"] for one in mine)
        assert row["half_copies_per_transaction"] == row["half_copies_count"] / len(mine)


def summed(rows: pa.Table) -> Summary:
    """The counts of some transactions."""
    counted = Summary()
    for batch in rows.to_batches():
        counted.add(batch)
    return counted


def _in_parts(rows: pa.Table) -> Summary:
    """The same counts, of many batches in another order."""
    parts = Summary()
    for first in reversed(range(0, rows.num_rows, 7)):
        for batch in rows.slice(first, 7).combine_chunks().to_batches():
            parts.add(batch)
    return parts


@pytest.mark.parametrize("name", STORES)
def test_a_commit_record_carries_the_checks_of_its_half_copy(name: str) -> None:
    """So the number of a COMMIT record is known from the copy that it names."""
    records = [one for one in corpus.truth(name) if one["event"] == "after_record"]
    checks = {one["commit_log_offset"]: one["properties"].get("TRANSACTION_CHECK_TIMES") for one in records
              if one["topic"] == HALF_TOPIC}
    finals = [one for one in records if one["system_flag"] & 12 == COMMIT
              and one["prepared_transaction_offset"] in checks]
    assert len(finals) > 20
    for one in finals:
        assert one["properties"].get("TRANSACTION_CHECK_TIMES") == checks[one["prepared_transaction_offset"]]


def test_what_other_designs_do_not_record_is_null() -> None:
    for name in ("prepared-3.2.6", "statetable-3.1.4", "rocksdb-5.5.0"):
        rows = audit([opened(name)], settings_of(name), columns=SUMMARY_COLUMNS).table()
        assert rows["checked_commits_count"].null_count == rows.num_rows
        for row in summed(rows).table().to_pylist():
            assert row["checked_commits_share"] is None
            assert row["immune_checks_count"] is None
            assert row["born_to_half_median_ms"] is not None
            if not name.startswith("rocksdb"):
                assert row["decision_to_op_worst_ms"] is None
        decided = [row for row in rows.to_pylist() if row["state"] in ("COMMITTED", "ROLLED_BACK")]
        assert any(row["half_to_decision_ms"] is not None for row in decided)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-(2**45), 2**45) | st.integers(-300, 300)), max_size=60))
def test_quantiles_are_within_the_declared_error(values: list[tuple[int, int]]) -> None:
    found = Histograms()
    for first in range(0, len(values), 25):
        part = np.array(values[first : first + 25], np.int64)
        found.add(part[:, 0], part[:, 1])
    for cell in range(5):
        mine = sorted(value for number, value in values if number == cell)
        assert found.highest(cell) == (mine[-1] if mine else None)
        for hundredths in (1, 50, 95, 100):
            value = found.quantile(cell, hundredths)
            wanted = mine[math.ceil(hundredths * len(mine) / 100) - 1] if mine else None
            assert (value is None) == (wanted is None)
            if value is not None and wanted is not None:
                assert abs(value - wanted) <= (0 if abs(wanted) < 256 else abs(wanted) / 256)


def test_memory_does_not_grow_with_the_transactions() -> None:
    """A cell has at most one count for each bucket of its range."""
    found, numbers = Histograms(), np.random.default_rng(5)
    for _ in range(6):
        found.add(numbers.integers(0, 8, 50_000), numbers.integers(-10_000, 3_600_000, 50_000))
    buckets = int(np.diff(buckets_of(np.array([-10_000, 3_600_000])))[0]) + 1
    assert 1_000 < len(found._keys) <= 8 * buckets
    assert middle_of(int(buckets_of(np.array([255]))[0])) == 255
