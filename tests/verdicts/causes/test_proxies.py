"""Causes behind a proxy, by what the clients of a real one reported: decisions that it refused, and where they show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqtx.readers.model.errors import BadText, UnreadableFile
from rmqtx.readers.store.broker_conf import read_expire_ms
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.causes.cause import FITS
from rmqtx.verdicts.causes.evidence import NEEDED_COLUMNS, Evidence
from rmqtx.verdicts.causes.strengths import CAUSES, applied
from rmqtx.verdicts.model.store_evidence import SOURCES
from tests.brokers import corpus
from tests.forge.stores import opened

NAME = "proxy-5.3.3"
FORGOT, REMOTING, VOUCHES = "proxy-forgot-half", "proxy-loses-remoting-decision", "proxy-vouches-for-the-dead"


def plans_with(word: str, keeps_ms: int | None = None, **columns: str | None) -> dict[str, int]:
    """The number of transactions that a rule fits, by plan; `columns`: values that a live broker adds to each row."""
    store = opened(NAME)
    settings = broker_settings(store)
    reading = audit([store], lambda _: settings, columns=NEEDED_COLUMNS)
    rows = reading.table()
    for name, value in columns.items():
        rows = rows.append_column(name, pa.array([value] * rows.num_rows, pa.string()))
    facts = replace(reading.evidence[store.root], proxy_keeps_ms=keeps_ms)
    support = CAUSES[word].rule(Evidence(rows, {store.root: facts}))
    assert support.max(initial=0) <= FITS
    plans = {row["transaction_id"]: row["plan"] for row in corpus.expected(NAME)}
    found: dict[str, int] = {}
    for row in rows.filter(pa.array(support == FITS)).to_pylist():
        plan = plans[row["transaction_id"]]
        found[plan] = found.get(plan, 0) + 1
    return found


def planned(*plans: str) -> Mapping[str, int]:
    histories: dict[str, int] = corpus.recipe(NAME)["histories"]
    return {plan: histories[plan] for plan in plans}


def test_the_proxy_refused_these_decisions() -> None:
    """The history itself: every late decision and every first decision of a remoting client was lost, no other."""
    lost = {event["case"].rpartition(".")[0] for event in corpus.truth(NAME) if event["event"] == "decision_lost"}
    assert lost == {plan for plan in corpus.recipe(NAME)["histories"] if plan.endswith(("_lost", "_lost_then_unknown"))}


def test_late_decisions_are_found() -> None:
    assert plans_with(FORGOT) == planned("late_commit_lost", "late_rollback_lost", "late_commit_lost_then_unknown")


def test_a_longer_memory_forgets_none() -> None:
    assert plans_with(FORGOT, 600_000) == {}


def test_remoting_clients_are_found_where_the_proxy_is_known() -> None:
    wanted = planned("remoting_commit_lost", "remoting_rollback_lost")
    assert plans_with(REMOTING) == {}
    assert plans_with(REMOTING, 30_000) == wanted
    assert plans_with(REMOTING, asked_through="proxy") == wanted
    assert plans_with(REMOTING, 30_000, asked_through="producer") == {}
    assert plans_with(REMOTING, asked_through="nobody") == {}


def test_only_a_live_broker_shows_a_proxy_that_vouches() -> None:
    assert plans_with(VOUCHES) == {}
    assert plans_with(VOUCHES, asked_through="proxy") == {}, "no transaction that is open was checked"


MISSING, FORGOTTEN = "producer-not-connected", "proxy-forgot-producer"


def strengths_live(name: str, **facts: Any) -> dict[str, set[str]]:
    """The strengths of causes if no producer of any group is connected to the live broker."""
    store = opened(name)
    settings = broker_settings(store, version="5.3.3")
    reading = audit([store], lambda _: settings, columns=NEEDED_COLUMNS)
    rows = reading.table()
    count = rows.num_rows
    rows = rows.append_column("producer_alive", pa.array([False] * count))
    rows = rows.append_column("asked_through", pa.array(["nobody"] * count))
    of_store = replace(reading.evidence[store.root], read=frozenset(SOURCES), **facts)
    found: dict[str, set[str]] = {}
    for one in applied(Evidence(rows, {store.root: of_store})):
        found[one.cause.word] = {strength for strength, chosen in one.rows.items() if chosen.any()}
    return found


@pytest.mark.parametrize("facts", [{"has_proxy": True}, {"proxy_keeps_ms": 30_000}])
def test_a_missing_producer_is_only_possible_behind_a_proxy(facts: dict[str, Any]) -> None:
    """A proxy may have forgotten a group whose application runs and is connected to the proxy."""
    found = strengths_live("common-5.3.3")
    assert "explains" in found[MISSING]
    assert FORGOTTEN not in found
    found = strengths_live("common-5.3.3", **facts)
    assert found[MISSING] == found[FORGOTTEN] == {"could_explain"}
    assert CAUSES[FORGOTTEN].decides.endswith("the proxy's list of its producers")


def test_files_show_that_a_proxy_has_used_the_broker() -> None:
    store = opened(NAME)
    reading = audit([store], lambda _: broker_settings(store), columns=NEEDED_COLUMNS)
    reading.table()
    assert reading.evidence[store.root].has_proxy
    assert strengths_live(NAME)[FORGOTTEN] == {"could_explain"}


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("{}", 30_000), ('{"transactionDataExpireMillis": 90000, "grpcServerPort": 8081}', 90_000),
     ('{"transactionDataExpireMillis": "90000"}', 90_000)],
)
def test_the_configuration_of_a_proxy(text: str, milliseconds: int, tmp_path: Path) -> None:
    file = tmp_path / "rmq-proxy.json"
    file.write_text(text)
    assert read_expire_ms(file) == milliseconds


@pytest.mark.parametrize("text", ["[]", "", "{", '{"transactionDataExpireMillis": "soon"}'])
def test_other_files_are_no_configuration(text: str, tmp_path: Path) -> None:
    file = tmp_path / "rmq-proxy.json"
    file.write_text(text)
    with pytest.raises(BadText):
        read_expire_ms(file)
    with pytest.raises(UnreadableFile):
        read_expire_ms(tmp_path / "missing.json")
