"""What is played in a run: the script of a store, and the acts that its histories are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tests.brokers.stage import Play

Stop = Literal["clean", "kill"]
DEFAULT_TOPICS = {"orders": 4, "payments": 2}
BETWEEN = 3


@dataclass
class Script:
    """The plan of a run: a recipe without its name."""

    version: str
    seed: int
    histories: Mapping[str, int]
    stop: Stop = "clean"
    conf: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, int] = field(default_factory=lambda: dict(DEFAULT_TOPICS))
    attributes: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[str, ...] = ("shop",)
    host: str = "127.0.0.1"
    half_cursor: int | None = None
    """Value of the half cursor that is written after the stop."""
    design: str = "half_topic"
    """The design in which the store keeps transactions and records."""
    restart: Mapping[str, str] | None = None
    """Stop cleanly after the first phase, and start again with these settings."""
    earlier: tuple[str, ...] = ()
    """Earlier versions on the same store: the first phase is played on the first one, BETWEEN on the others."""
    proxy: str | None = None
    """The version of the proxy between the producers and the broker."""
    as_is: bool = False
    """Whether to start the same version again on an unchanged copy, with the same settings, and record its actions."""


@dataclass(frozen=True)
class Act:
    """A history as it is played."""

    name: str
    play: Callable[[Play, int, Random], None]
    words: str
    phase: int = 0
    """0: first; 1: transactions that stay open, with the epilogues of other histories; 2: just before the stop;
    BETWEEN: on each broker between the first and the last.
    """
