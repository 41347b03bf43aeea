"""Each guard refuses on a real broker with one sentence and exit 12, and lets pass when it is told to by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers.forcing import guards
from tests.brokers.forcing.stage import Stage
from tests.brokers.forcing.test_outcomes import VERSIONS, WHY_NOT, quick

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= "4.9"])
def test_guards_refuse_and_let_pass_when_told(version: str, tmp_path: Path) -> None:
    with Stage(version, tmp_path, quick(version)) as stage:
        found = guards.cases(stage)
        guards.play(stage.tool(), found)
        wrong = guards.judge(stage, found)
        assert wrong == {}, "\n".join(f"{guard}: {told}" for guard, lines in wrong.items() for told in lines)
