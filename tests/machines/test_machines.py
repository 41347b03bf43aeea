"""A few steps of each state machine; `make machines` plays thousands."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.machines.growing_stores import Exporting, Following, GrowingTable
from tests.machines.offline_acts import OfflineActs

MACHINES: list[type[RuleBasedStateMachine]] = [OfflineActs, Following, GrowingTable, Exporting]
_STEPS = 8


@pytest.mark.parametrize("machine", MACHINES)
def test_a_machine(machine: type[RuleBasedStateMachine]) -> None:
    steps = int(os.environ.get("RMQTX_MACHINE_STEPS", _STEPS))
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max(1, steps // 20), stateful_step_count=min(steps, 20), deadline=None, database=None,
            derandomize="RMQTX_MACHINE_STEPS" not in os.environ,
            suppress_health_check=list(HealthCheck),
        ),
    )
