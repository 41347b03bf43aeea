"""The registry of histories, by the names of their functions."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.brokers.script import Act
from tests.brokers.stage import Play

Program = Callable[[Play, int, Random], None]
HISTORIES: dict[str, Act] = {}
IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"


def history(phase: int = 0) -> Callable[[Program], Program]:
    """Register a history under its function's name."""

    def register(program: Program) -> Program:
        name = program.__name__
        HISTORIES[name] = Act(name, program, (program.__doc__ or "").strip(), phase)
        return program

    return register
