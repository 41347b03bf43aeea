"""The state of the exporter as metric families of prometheus_client."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.metadata import version

from prometheus_client import Metric as Family
from prometheus_client.registry import Collector

from rmqtx_cli.exporter.schedule import Schedule, State
from rmqtx_cli.monitoring.metrics import EXPORTED, Metric, Samples
from rmqtx_cli.words.text import fully_escaped

#: Results of readings; each has a counter from the start on, so that the first failure is an increase.
RESULTS = ("ok", "failed", "timed_out")


class StateCollector(Collector):
    """Collects what the last reading gave; never reads a store."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def collect(self) -> Iterator[Family]:
        """Return the metric families, in the order of their declaration."""
        state, now = self._schedule.state, time.time()
        samples = {**state.samples, **state.counters, **_own_samples(state, now)}
        for metric in EXPORTED:
            if metric.name in samples:
                yield _family(metric, samples)


def _own_samples(state: State, now: float) -> Samples:
    found: Samples = {
        "rmqtx_build_info": [({"version": version("rmqtx")}, 1)],
        "rmqtx_up": [({}, int(state.is_ok and now <= state.due_time))],
        "rmqtx_readings_total": [({"result": result}, state.results[result]) for result in RESULTS],
        "rmqtx_reading_running_seconds": [({}, 0.0 if state.running_since is None else now - state.running_since)],
    }
    if state.duration_seconds is not None:
        found["rmqtx_reading_duration_seconds"] = [({}, state.duration_seconds)]
    if state.ok_time is not None:
        found["rmqtx_reading_timestamp_seconds"] = [({}, state.ok_time)]
        found["rmqtx_reading_age_seconds"] = [({}, now - state.ok_time)]
    return found


def _family(metric: Metric, samples: Samples) -> Family:
    family = Family(metric.name.removesuffix("_total"), metric.meaning, str(metric.kind), metric.unit)
    for labels, value in samples[metric.name]:
        named = {name: fully_escaped(labels[name]) for name in metric.labels if labels.get(name)}
        family.add_sample(metric.name, named, value)
    return family
