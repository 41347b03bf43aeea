"""Prometheus text, as node_exporter's textfile collector takes it."""

from __future__ import annotations

from collections.abc import Iterator

from rmqtx_cli.monitoring.metrics import METRICS, Metric, Samples
from rmqtx_cli.words.text import fully_escaped


def as_text(samples: Samples) -> str:
    """Return the whole file, with the metrics that are among the samples, also those without any sample."""
    return "".join(
        f"{line}\n" for metric in METRICS if metric.name in samples for line in _lines(metric, samples)
    )


def of_run(what: str, status: int, now_ms: int) -> Samples:
    """Return the samples of every run of a check or a probe, also of one that failed."""
    return {f"rmqtx_{what}_status": [({}, status)], f"rmqtx_{what}_timestamp_seconds": [({}, now_ms / 1000)]}


def _lines(metric: Metric, samples: Samples) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.meaning}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for labels, value in samples[metric.name]:
        pairs = ",".join(_label(name, labels[name]) for name in metric.labels if labels.get(name))
        yield f"{metric.name}{f'{{{pairs}}}' if pairs else ''} {value!r}"


def _label(name: str, value: str) -> str:
    text = fully_escaped(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}="{text}"'
