"""Each guard refuses on a real broker with one sentence and exit 12, and lets pass when it is told to by name."""

from __future__ import annotations

from tests.brokers.forcing import guards
from tests.brokers.forcing.stage import Stage


def test_guards_refuse_and_let_pass_when_told(stage: Stage) -> None:
    found = guards.cases(stage)
    guards.play(stage.tool(), found)
    wrong = guards.judge(stage, found)
    assert wrong == {}, "\n".join(f"{guard}: {told}" for guard, lines in wrong.items() for told in lines)
