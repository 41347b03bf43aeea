"""Whom a real broker asks whose check is stopped: those that `pending -n` says, on 4.3.0, 4.4.0 and 4.5.0.

Only where `RMQTX_BROKER_VERSIONS` is set, as by `make test-brokers`; 4.5.0 is played beside 4.3.0 and 4.4.0.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rmqtx_cli.main import status_of
from tests.brokers import corpus, maven
from tests.brokers.rig import Rig
from tests.brokers.watching import CALM, Seen, booted

VERSIONS = os.environ.get("RMQTX_BROKER_VERSIONS", "").split()
WHY_NOT = maven.why_not() or (None if VERSIONS else "RMQTX_BROKER_VERSIONS is not set")
POISONED = [version for version in ("4.3.0", "4.4.0", "4.5.0") if {"4.3.0", "4.4.0", "4.5.0"} & set(VERSIONS)]
SPENDING = [version for version in VERSIONS if f"common-{version}" in corpus.corpus_names()]

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]


@pytest.mark.parametrize("version", POISONED)
def test_a_live_broker_asks_those_that_wait_and_no_others(version: str, tmp_path: Path) -> None:
    name = f"poison-{version}"
    made = corpus.recipe(name)
    corpus.unpack(name, tmp_path / "rig")
    cases = {row["transaction_id"]: row["case"] for row in corpus.expected(name)}
    seen = Seen(cases)
    with Rig(version, tmp_path / "rig", {**made["broker_conf"], **CALM}) as rig:
        rig.start_names()
        with booted(rig, seen.take) as agent:
            seen.meet_clients(agent, made)
            rows = live_rows(rig, tmp_path / "rows.json")
            assert status_of(["check", "--broker", rig.address, "--state-dir", str(tmp_path)]) == 2
    by_advice: dict[tuple[str, bool], set[str]] = {}
    for row in rows:
        by_advice.setdefault((row["advice"], "never_asked" in row["flags"]), set()).add(cases[row["transaction_id"]])
    counts = ", ".join(f"{advice}{' never' * never} {len(found)}" for (advice, never), found in by_advice.items())
    print(f"ALIVE | {version} | asked {len(seen.checks)} | {counts} |")
    assert seen.checks == by_advice["wait", False] | by_advice["close", False]
    assert by_advice["decide", True]
    assert not seen.checks & by_advice["decide", True]


@pytest.mark.parametrize("version", SPENDING)
def test_what_had_all_its_checks_is_given_up_without_asking(version: str, tmp_path: Path) -> None:
    """A broker that makes one check, started on a store whose halves had that and more."""
    name = f"common-{version}"
    made, rows = corpus.recipe(name), corpus.expected(name)
    root = corpus.unpack(name, tmp_path / "rig")
    conf = {**made["broker_conf"], **CALM, "transactionCheckMax": "1"}
    (tmp_path / "broker.conf").write_text("".join(f"{key}={value}\n" for key, value in conf.items()))
    output = tmp_path / "rows.json"
    options = ["--broker-version", version, "--broker-conf", str(tmp_path / "broker.conf")]
    assert status_of(["pending", str(root), *options, "-o", str(output)]) == 0
    cases = {row["transaction_id"]: row["case"] for row in rows}
    predicted = {cases[row["transaction_id"]]: row for row in json.loads(output.read_text())}
    spent = {case for case, row in predicted.items() if row["advice"] == "decide"}
    waiting = {case for case, row in predicted.items() if row["advice"] == "wait"}
    seen = Seen(cases)
    with Rig(version, tmp_path / "rig", conf) as rig:
        rig.start_names()
        with booted(rig, seen.take) as agent:
            seen.meet_clients(agent, made)
    assert status_of(["audit", str(root), *options, "-q", "-o", str(output)]) == 0
    after = {cases[row["transaction_id"]]: row for row in json.loads(output.read_text())}
    asked = {case for case in predicted if len(after[case]["half_copies"]) > len(predicted[case]["half_copies"])}
    print(f"SPENT | {version} | {len(spent)} given up, {len(waiting)} wait | put back and asked {len(asked)} |")
    assert spent
    assert not spent & asked
    assert waiting <= asked
    assert {after[case]["state"] for case in spent} == {"DISCARDED"}


def live_rows(rig: Rig, output: Path) -> list[dict[str, Any]]:
    """What `pending` says of the broker, decided ones too."""
    assert status_of(["pending", "--broker", rig.address, "--all-open", "-o", str(output)]) == 0
    rows: list[dict[str, Any]] = json.loads(output.read_text())
    return rows
