"""Transactions in which nothing happened but one decision: only rules that declare it fit them."""

from __future__ import annotations

import numpy as np
import pytest

from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.causes.evidence import Evidence
from rmqtx.verdicts.causes.strengths import CAUSES, supports_of
from rmqtx.verdicts.model.verdict_words import State
from tests.brokers import corpus
from tests.forge.stores import opened, settings_of
from tests.representatives import in_two_ways


def evidence_of(name: str) -> Evidence:
    reading = audit([opened(name)], settings_of(name))
    return Evidence(reading.table(), reading.evidence)


@pytest.mark.parametrize("name", in_two_ways(corpus.all_names()))
def test_rules_find_the_same_among_all_transactions(name: str) -> None:
    found = evidence_of(name)
    supports = supports_of(found)
    for word, cause in CAUSES.items():
        if cause.contradicted is None:
            assert np.array_equal(supports[word], cause.rule(found)), word


@pytest.mark.parametrize("name", in_two_ways(corpus.all_names()))
def test_what_most_transactions_show_by_their_counts_is_what_their_records_show(name: str) -> None:
    found = evidence_of(name)
    assert np.array_equal(found.is_direct, found.any_of(found.marks, found.names_original))
    assert np.array_equal(found.was_checked, found.any_of(found.copies, found.copies.checks > 0))
    assert np.array_equal(found.has_marks, found.count_of(found.marks) > 0)
    assert np.array_equal(found.has_finals, found.count_of(found.finals) > 0)


@pytest.mark.parametrize("name", ["common-4.9.7", "common-5.3.3"])
def test_what_was_decided_at_once_is_uneventful(name: str) -> None:
    found = evidence_of(name)
    is_whole = np.asarray(found.rows["deliveries_count"]) <= 1
    assert found.count // 3 < found.is_uneventful.sum() < found.count
    assert (found.is_uneventful & ~(found.state(State.COMMITTED, State.ROLLED_BACK) & is_whole)).sum() == 0
