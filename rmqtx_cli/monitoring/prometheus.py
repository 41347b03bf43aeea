"""Prometheus text, as node_exporter's textfile collector takes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rmqtx_cli.words.text import escaped


@dataclass(frozen=True, slots=True)
class Gauge:
    """One metric. Shape: `values` by labels: numbers, or text that is written unchanged."""

    name: str
    meaning: str
    values: Sequence[tuple[Mapping[str, str], float | str]]


def gauge(name: str, meaning: str, value: float | str) -> Gauge:
    """A metric of one value, without labels."""
    return Gauge(name, meaning, [({}, value)])


def of_run(what: str, status: int, now_ms: int) -> list[Gauge]:
    """The metrics of every run of a check or a probe, also of one that failed."""
    meaning = f"Outcome of the last {what}: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN."
    return [
        gauge(f"rmqtx_{what}_status", meaning, status),
        gauge(f"rmqtx_{what}_timestamp_seconds", f"When the last {what} ran.", f"{now_ms / 1000:.3f}"),
    ]


def as_text(gauges: Iterable[Gauge]) -> str:
    """The whole file."""
    return "".join(f"{line}\n" for one in gauges for line in _lines(one))


def _lines(one: Gauge) -> Iterator[str]:
    yield f"# HELP {one.name} {one.meaning}"
    yield f"# TYPE {one.name} gauge"
    for labels, value in one.values:
        pairs = ",".join(_label(name, text) for name, text in labels.items())
        yield f"{one.name}{f'{{{pairs}}}' if pairs else ''} {value}"


def _label(name: str, value: str) -> str:
    text = escaped(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}="{text}"'
