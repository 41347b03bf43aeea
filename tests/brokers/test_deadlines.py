"""Real brokers discard when predicted: live, from the files of a running broker, of a stopped and of a killed one.

`RMQTX_BROKER_VERSIONS` names the versions; without it one version is tested with one setting.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.brokers import maven
from tests.brokers.deadlines import SETTINGS, outcomes
from tests.brokers.test_live import VERSIONS

WHY_NOT = maven.why_not()
CHOSEN = list(SETTINGS) if "RMQTX_BROKER_VERSIONS" in os.environ else list(SETTINGS)[:1]
#: The delay of rounds, and of a broker's start, on a busy machine. Units: milliseconds.
BUSY_MS = 1_000

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]


@pytest.mark.parametrize("setting", CHOSEN)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_discards_within_a_round_of_the_predicted_time(version: str, setting: str, tmp_path: Path) -> None:
    rows = outcomes(version, setting, tmp_path)
    assert len({row.source for row in rows}) == 4
    for row in rows:
        assert row.late_ms is not None, row
        assert abs(row.late_ms) <= row.interval_ms + BUSY_MS, row
