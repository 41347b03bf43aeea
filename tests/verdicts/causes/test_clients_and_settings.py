"""Causes in clients and settings, against what clients and brokers reported."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.brokers import corpus
from tests.forge.stores import opened
from tests.verdicts.causes.diagnosed import proven, settings_of, version_of
from verdicts.audit.local_audit import audit
from verdicts.causes.cause import NONE
from verdicts.causes.evidence import NEEDED_COLUMNS, Evidence
from verdicts.causes.register import CAUSES


def evidence(name: str) -> Evidence:
    store = opened(name)
    settings = settings_of(store, name, version_of(name))
    reading = audit([store], lambda _: settings, columns=NEEDED_COLUMNS)
    return Evidence(reading.table(), reading.evidence)


def test_a_group_without_a_producer() -> None:
    found = evidence("common-5.3.3")
    alive = pa.array([None if number % 3 == 2 else bool(number % 3) for number in range(found.count)])
    live = Evidence(found.rows.append_column("producer_alive", alive), found.stores)
    chosen = CAUSES["producer-not-connected"].rule(live) > NONE
    is_dead = np.asarray(alive.fill_null(True)) == 0
    was_checked = found.any_of(found.copies, found.copies.checks > 0)
    assert chosen.any()
    assert (chosen == (is_dead & was_checked & found.state("PENDING"))).all()
    assert not CAUSES["producer-not-connected"].rule(found).any()


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("delayed-4.3.0", "delay-diverts-half"), ("delayed-5.3.3", "timer-diverts-half"),
        ("delayed-5.5.0", "schedule-drops-half"),
    ],
)
def test_what_becomes_of_a_diverted_half_by_release(name: str, word: str) -> None:
    expected = {
        row["transaction_id"] for row in corpus.expected(name)
        if "delayed_half" in row["flags_at_least"] and (row["state"] == "LOST") == (word == "schedule-drops-half")
    }
    assert {row["transaction_id"] for row in proven(word, name)} == expected
    assert expected
