"""Stores with several diseases at once: causes and their numbers are those of what was done."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.causes.cause import FITS, PROVES
from rmqtx.verdicts.causes.diagnosing import Diagnosis
from rmqtx.verdicts.causes.evidence import NEEDED_COLUMNS, Evidence
from rmqtx.verdicts.causes.strengths import CAUSES
from tests.brokers import corpus
from tests.forge import volume
from tests.forge.stores import opened
from tests.forge.volume import CHECKS_MAX, Plan, build

CONF = {"transactionCheckMax": str(CHECKS_MAX)}
HEALTHY = {volume.committed: 35_000, volume.rolled_back: 9_000, volume.committed_at_check: 5_000}
#: The release, the plan, and the causes that follow from it.
PLANS: dict[str, tuple[str, Plan, dict[tuple[str, str], int]]] = {
    "dropped-and-twice-4.4.0": (
        "4.4.0",
        Plan(
            {**HEALTHY, volume.decided_twice: 400, volume.old_copy_named: 300, volume.dropped: 260},
            {volume.pending: 40},
        ),
        {
            ("decided-twice", "explains"): 400, ("decision-names-old-copy", "explains"): 300,
            ("discarded-without-copy", "explains"): 260, ("no-decision-in-time", "explains"): 260,
        },
    ),
    "killed-and-late-5.3.3": (
        "5.3.3",
        Plan(
            {**HEALTHY, volume.old_copy_named: 300, volume.op_late: 250, volume.discarded: 210},
            {volume.op_lost: 170, volume.pending: 70}, is_killed=True,
        ),
        {
            ("decision-names-old-copy", "explains"): 300, ("op-written-late", "explains"): 250,
            ("no-decision-in-time", "explains"): 210, ("ops-lost-in-memory", "explains"): 170,
            ("ops-lost-in-memory", "could_explain"): 70,
        },
    ),
    "masked-and-late-5.1.4": (
        "5.1.4",
        Plan({volume.committed: 40, volume.op_late: 6}, {volume.pending: 3}, masks=4),
        {
            ("hidden-by-another-decision", "explains"): 4, ("op-written-late", "explains"): 6,
            ("decided-twice", "could_explain"): 4,
        },
    ),
}
BIG = [name for name, (_, plan, _) in PLANS.items() if plan.count >= 50_000]
SMALL = [name for name in PLANS if name not in BIG]


def require_plan(found: Diagnosis, wanted: dict[tuple[str, str], int]) -> None:
    """The causes that explain are those of the plan; what could explain beside them depends on the producer's log."""
    rows = found.table().to_pylist()
    counts = {(row["cause"], row["strength"]): row["transactions_count"] for row in rows}
    assert {key: count for key, count in counts.items() if key[1] == "explains" or key in wanted} == wanted


def diagnosed(root: Path, version: str, **options: Any) -> Diagnosis:
    store = open_store(str(root))
    settings = broker_settings(store, version=version, conf=CONF)
    reading = audit([store], lambda _: settings, columns=NEEDED_COLUMNS, **options)
    found = Diagnosis(reading.evidence)
    for batch in reading:
        found.add(batch)
    assert list(reading.findings) == []
    return found


@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(name, marks=pytest.mark.slow) for name in BIG)])
def test_a_plan_gives_its_causes_and_their_numbers(name: str, tmp_path: Path) -> None:
    version, plan, wanted = PLANS[name]
    found = diagnosed(build(tmp_path, plan), version)
    require_plan(found, wanted)
    assert found.transactions_count == plan.count
    for row in found.table().to_pylist():
        assert all(example["half_commit_log_offset"] is not None for example in row["examples"])


def test_the_examples_are_of_the_deed(tmp_path: Path) -> None:
    version, plan, _ = PLANS["masked-and-late-5.1.4"]
    rows = diagnosed(build(tmp_path, plan), version).table().to_pylist()
    deeds = {row["cause"]: {one["transaction_id"].partition("-")[0] for one in row["examples"]} for row in rows}
    wanted = {"hidden-by-another-decision": {"masked"}, "op-written-late": {"op_late"}, "decided-twice": {"masking"}}
    assert deeds.items() >= wanted.items()


#: Stores of real brokers: the plans of the histories, how far their records support each cause.
REAL: dict[str, dict[str, dict[int, set[str]]]] = {
    "poison-4.4.0": {
        "check-spoils-compressed": {PROVES: {"poison"}},
        "discarded-without-copy": {PROVES: {"never_answered"}},
    },
    "killed-5.3.3": {
        "decision-names-old-copy": {
            PROVES: {"late_commit", "late_commit_then_commit"}, FITS: {"late_rollback", "late_rollback_then_commit"},
        },
        "ops-lost-in-memory": {PROVES: {"op_batch_lost", "pending_late_commit"}},
        "decided-after-discard": {PROVES: {"commit_after_discard"}},
    },
    # The COMMIT record names the discard copy; from 5.1.0 on a lost op message leaves the same op messages.
    "masked-4.9.7": {
        "decision-names-discard-copy": {PROVES: {"decision_names_discard"}, FITS: set()},
        "decided-after-discard": {PROVES: set(), FITS: set()},
    },
    "masked-5.3.3": {
        "decision-names-discard-copy": {PROVES: {"decision_names_discard"}, FITS: set()},
        "decided-after-discard": {PROVES: set(), FITS: set()},
    },
}


@pytest.mark.parametrize("name", REAL)
def test_two_diseases_of_a_real_broker(name: str) -> None:
    """Every transaction of a plan has the cause, and no transaction of another plan."""
    store = opened(name)
    settings = broker_settings(store, version=corpus.recipe(name)["version"])
    reading = audit([store], lambda _: settings, columns=NEEDED_COLUMNS)
    rows = reading.table()
    plans = {row["transaction_id"]: row["plan"] for row in corpus.expected(name)}
    all_plans = Counter(plans.values())
    evidence = Evidence(rows, reading.evidence)
    for word, wanted in REAL[name].items():
        support = CAUSES[word].rule(evidence)
        for degree, expected in wanted.items():
            ids = rows["transaction_id"].filter(pa.array(support == degree)).to_pylist()
            found = Counter(plans[identity] for identity in ids)
            assert set(found) == expected, word
            if word != "ops-lost-in-memory" and not name.startswith("masked-"):
                assert all(found[plan] == all_plans[plan] for plan in expected), word
