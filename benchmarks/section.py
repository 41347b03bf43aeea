"""The parts of a report: a section with its table, its targets and remarks, and values as text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.measure import Measured

MIB = 1 << 20
PROCESS_HEADER = ("process", "wall median", "wall best", "CPU", "peak RSS", "peak anonymous", "others")
NOT_MEASURED = "not measured"
#: If other processes used this share of the machine during a counted run, the report marks it.
DISTURBED_SHARE = 0.10


@dataclass(frozen=True)
class Target:
    """One target: what is measured, its bound, the measured value, and whether it meets the bound."""

    what: str
    bound: str
    value: str
    kept: bool


@dataclass
class Section:
    """One table of the report, with its targets and remarks.

    `others_share`: the largest share of the machine that other processes used during a run of it.
    """

    title: str
    intro: str
    header: tuple[str, ...] = ()
    rows: list[tuple[str, ...]] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    others_share: float = 0.0

    @property
    def is_disturbed(self) -> bool:
        """Whether other processes took too much of the machine for the times to count."""
        return self.others_share > DISTURBED_SHARE

    def at_most(self, what: str, measured: float, bound: float, show: Callable[[float], str]) -> None:
        """Add a target with an upper bound; a value that is NaN was not measured, and misses it."""
        self.targets.append(Target(what, f"≤ {show(bound)}", _shown(measured, show), measured <= bound))

    def at_least(self, what: str, measured: float, bound: float, show: Callable[[float], str]) -> None:
        """Add a target with a lower bound; a value that is NaN was not measured, and misses it."""
        self.targets.append(Target(what, f"≥ {show(bound)}", _shown(measured, show), measured >= bound))

    def add_processes(self, measured: Sequence[Measured]) -> None:
        """Add a row for each process, and a remark for each that failed."""
        self.rows += [_process_row(one) for one in measured]
        self.notes += [f"**{one.name} failed:** {one.failure}." for one in measured if one.failure]


def _process_row(one: Measured) -> tuple[str, ...]:
    values = (
        seconds(one.wall_s), seconds(one.best_wall_s), seconds(one.cpu_s), mebibytes(one.peak_rss_bytes),
        mebibytes(one.peak_anonymous_bytes), "" if math.isnan(one.others_share) else f"{one.others_share:.0%}",
    )
    return (one.name, *(values if one.runs else ("failed", *[""] * (len(values) - 1))))


def _shown(value: float, show: Callable[[float], str]) -> str:
    return NOT_MEASURED if math.isnan(value) else show(value)


def seconds(value: float) -> str:
    """Return seconds as text, with the significant digits."""
    return f"{value:.3f} s" if value < 1 else f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def mebibytes(value: float) -> str:
    """Bytes as text in MiB."""
    return f"{value / MIB:,.0f} MiB"


def times(value: float) -> str:
    """A ratio as text."""
    return f"{value:.2f} ×"


def rate(value: float) -> str:
    """Bytes of log per second of processor time as text, in MB."""
    return f"{value / 1e6:,.0f} MB/s"


def number(value: float) -> str:
    """A count as text."""
    return f"{value:,.0f}"


def percent(value: float) -> str:
    """A share as text."""
    return f"{value:.2%}"
