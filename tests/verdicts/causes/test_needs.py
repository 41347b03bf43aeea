"""Settings that a cause needs: known and fitting, known and different, unknown; and places where it shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqtx.readers.store.broker_settings import broker_settings, settings_of_broker
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.causes.cause import VALUES, all_hold, need
from rmqtx.verdicts.causes.diagnosing import Diagnosis
from rmqtx.verdicts.causes.evidence import NEEDED_COLUMNS
from rmqtx.verdicts.causes.judging import store_evidence
from rmqtx.verdicts.causes.strengths import CAUSES
from rmqtx.verdicts.evidence.store_facts import store_facts
from rmqtx.verdicts.model.store_evidence import BROKER_LOG, FILES
from tests.forge.stores import opened

NAME, WORD = "common-5.3.3", "decided-after-discard"
POOL = need("transientStorePoolEnable")
FLUSH = need("flushDiskType", "ASYNC_FLUSH")


@pytest.mark.parametrize(
    ("conf", "holds"),
    [
        (None, None),
        ({"brokerName": "a"}, False),
        ({"transientStorePoolEnable": "true"}, True),
        ({"transientStorePoolEnable": "TRUE"}, True),
        ({"transientStorePoolEnable": "yes"}, False),
    ],
)
def test_a_switch(conf: dict[str, str] | None, holds: bool | None) -> None:
    assert POOL.holds(conf) is holds


@pytest.mark.parametrize(
    ("conf", "holds"),
    [
        (None, None),
        ({"brokerName": "a"}, True),
        ({"flushDiskType": "SYNC_FLUSH"}, False),
        ({"flushDiskType": "sync_flush"}, True),  # brokers keep the default if they cannot parse a word
    ],
)
def test_a_word_with_a_fitting_default(conf: dict[str, str] | None, holds: bool | None) -> None:
    assert FLUSH.holds(conf) is holds


def test_all_hold_is_three_valued() -> None:
    assert all_hold((), None) is True
    assert all_hold((POOL, FLUSH), None) is None
    assert all_hold((POOL, FLUSH), {"transientStorePoolEnable": "true"}) is True
    assert all_hold((POOL, FLUSH), {"flushDiskType": "SYNC_FLUSH"}) is False


def test_needs_are_declared_settings() -> None:
    for cause in CAUSES.values():
        for one in cause.needs:
            assert set(one.fitting) < set(VALUES[one.key]), cause.word


@pytest.mark.parametrize(
    ("conf", "strength"),
    [(None, "could_explain"), ({"transientStorePoolEnable": "true"}, "explains"), ({"brokerId": "0"}, "ruled_out")],
)
def test_the_configuration_decides_the_strength(
    conf: dict[str, str] | None, strength: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CAUSES, WORD, replace(CAUSES[WORD], needs=(POOL,)))
    found = _diagnosed(conf)
    (row,) = (row for row in found.table().to_pylist() if row["cause"] == WORD)
    assert row["strength"] == strength
    is_unknown = conf is None
    assert (list(found.needed_settings) == [POOL.key]) == is_unknown
    assert ("transientStorePoolEnable): add --broker-conf FILE" in str(row["would_decide"])) == is_unknown


def test_a_cause_of_a_log_that_was_not_read_only_could_explain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CAUSES, WORD, replace(CAUSES[WORD], shows_in=(BROKER_LOG,)))
    for read, strength in (({FILES}, "could_explain"), ({FILES, BROKER_LOG}, "explains")):
        rows = [row for row in _diagnosed(None, frozenset(read)).table().to_pylist() if row["cause"] == WORD]
        assert [row["strength"] for row in rows] == [strength]
        assert (rows[0]["would_decide"] is None) == (strength == "explains")


def test_the_configuration_is_part_of_the_settings() -> None:
    store = opened(NAME)
    assert broker_settings(store).given is None
    assert broker_settings(store, conf={}).given is None
    conf = {"transientStorePoolEnable": "true"}
    assert store_evidence(store_facts(store, lambda _: broker_settings(store, conf=conf))).conf == conf
    assert settings_of_broker(conf, "5.3.3").given == conf


def _diagnosed(conf: dict[str, str] | None, read: frozenset[str] = frozenset({FILES})) -> Diagnosis:
    store = opened(NAME)
    settings = broker_settings(store, conf=conf, version="5.3.3")
    reading = audit([store], lambda _: settings, columns=NEEDED_COLUMNS)
    rows = reading.table()
    found = Diagnosis({store.root: replace(reading.evidence[store.root], read=read)})
    for batch in rows.to_batches():
        found.add(batch)
    return found
