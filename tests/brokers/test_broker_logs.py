"""What a real broker's own logs show: the causes that they decide equal what the clients did.

`RMQTX_BROKER_VERSIONS` names the versions (default: one). The configuration of the logs is in the jar from 5.1.0 on.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

from rmqtx_cli.main import status_of
from tests.brokers import maven
from tests.brokers.expectation import expected_rows
from tests.brokers.make import play
from tests.brokers.recipes import Recipe
from tests.brokers.script import Script

VERSIONS = [one for one in os.environ.get("RMQTX_BROKER_VERSIONS", "5.3.3").split() if one >= "5.1"]
WHY_NOT = maven.why_not()
HISTORIES = {"commit": 3, "never_answered": 3, "producer_group_gone": 3, "commit_at_check_1": 2}
DECIDED = {"never_answered": "producer-answered-unknown", "producer_group_gone": "producer-not-connected"}

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_logs_show_what_the_producers_did(version: str, tmp_path: Path) -> None:
    run = play(Recipe("logs", "", Script(version, 1, HISTORIES)), tmp_path / "rig")
    plans = {row["transaction_id"]: row["plan"] for row in expected_rows(run.truth)}
    output = tmp_path / "rows.json"
    words = ["audit", str(tmp_path / "rig/store"), "--broker-version", version, "-q", "-o", str(output)]
    found: dict[bool, dict[str, set[str]]] = {False: defaultdict(set), True: defaultdict(set)}
    for with_logs, more in ((False, []), (True, ["--broker-logs", str(tmp_path / "rig/home")])):
        assert status_of([*words, *more]) == 0
        for row in json.loads(output.read_text()):
            plan = plans[row["transaction_id"]]
            found[with_logs][plan] |= {one for one in row["causes"] if one.removesuffix("?") in DECIDED.values()}
    print(f"LOGS | {version} | {dict(found[True])} |")
    for plan, word in DECIDED.items():
        assert found[False][plan] == {f"{one}?" for one in DECIDED.values()}
        assert found[True][plan] == {word}
    assert not found[True]["commit"] | found[True]["commit_at_check_1"]
