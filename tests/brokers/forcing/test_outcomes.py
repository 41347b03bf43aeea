"""Every action on a real broker: right response and deliveries, op written, nothing asked again, a whole receipt."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.brokers import maven
from tests.brokers.forcing.outcomes import play
from tests.brokers.forcing.stage import Stage

VERSIONS = os.environ.get("RMQTX_BROKER_VERSIONS", "5.3.3").split()
WHY_NOT = maven.why_not()
QUICK = {"waitTimeMillsInTransactionQueue": "500"}
QUICK_5 = {"transactionOpBatchInterval": "500"}

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]


def quick(version: str) -> dict[str, str]:
    """Short waits, so that the ordinary run stays short."""
    return QUICK | (QUICK_5 if version.startswith("5.") else {})


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= "4.9"])
def test_actions_on_transactions_of_a_dead_producer(version: str, tmp_path: Path) -> None:
    with Stage(version, tmp_path, quick(version)) as stage:
        results = play(stage, stage.tool())
        for result in results:
            act = result.act
            print(f"{version} {act.what} by {act.named_by}: codes {result.codes}, delivered {result.delivered}")
        wrong = {f"{result.act.what} by {result.act.named_by}": result.wrong for result in results if result.wrong}
        assert wrong == {}, "\n".join(f"{what}: {told}" for what, found in wrong.items() for told in found)
        assert len(results) == (15 if stage.rig.release >= (5, 3, 2) else 14)
