"""The results of `rmqtx probe` for monitoring: thresholds on its steps, a Nagios line, JSON, Prometheus text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rmqtx_cli.monitoring.judge import CRITICAL, NAMES, UNKNOWN, WARNING, Outcome, Thresholds
from rmqtx_cli.monitoring.metrics import as_text, of_run
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import duration_text, time_text

if TYPE_CHECKING:
    from rmqtx.repairs.canary.probe_steps import ProbeRun, ProbeStep


def judged(flights: Sequence[ProbeRun], thresholds: Thresholds) -> Outcome:
    """The outcome: a step that was not proved is critical; for a late one the thresholds decide."""
    outcome = Outcome()
    for flight in flights:
        if flight.failure is not None:
            outcome.add(CRITICAL, f"{flight.store}: {flight.failure}")
        if flight.left_open:
            outcome.add(CRITICAL, f"{flight.store}: left open: {', '.join(flight.left_open)}")
        if flight.is_interrupted:
            outcome.add(UNKNOWN, f"{flight.store}: interrupted; its open transactions were rolled back")
        for step in flight.steps:
            if step.is_proved and (status := _lateness(step, thresholds)) is not None:
                outcome.add(status, f"{flight.store}: {_step_text(step)}")
    return outcome


def _lateness(step: ProbeStep, thresholds: Thresholds) -> int | None:
    if thresholds.critical_age_ms is not None and step.late_ms >= thresholds.critical_age_ms:
        return CRITICAL
    return WARNING if thresholds.warning_age_ms is not None and step.late_ms >= thresholds.warning_age_ms else None


def _step_text(step: ProbeStep) -> str:
    more = f", {duration_text(step.late_ms)} longer than its settings allow" if step.allowed_ms else ""
    return f"{step.scenario} {step.step} took {duration_text(step.duration_ms)}{more}"


def flights_text(flights: Sequence[ProbeRun], outcome: Outcome) -> str:
    """The reasons, worst first; without any, what was proved."""
    if outcome.reasons:
        return "; ".join(reason for _, reason in outcome.reasons)
    steps = sum(len(flight.steps) for flight in flights)
    swept = sum(len(flight.swept) for flight in flights)
    left = f", {count(swept, 'transaction')} of earlier probes ended" if swept else ""
    return f"{count(steps, 'step')} proved at {count(len(flights), 'broker')}{left}"


def performance(flights: Sequence[ProbeRun], thresholds: Thresholds) -> str:
    """Performance data: for each step the time at the slowest broker, in seconds, and its thresholds."""
    slowest: dict[str, ProbeStep] = {}
    for step in (step for flight in flights for step in flight.steps):
        label = f"{step.scenario}_{step.step}"
        if label not in slowest or step.duration_ms > slowest[label].duration_ms:
            slowest[label] = step

    def limit(step: ProbeStep, threshold_ms: int | None) -> str:
        return "" if threshold_ms is None else f"{(step.allowed_ms + threshold_ms) / 1000:g}"

    return " ".join(
        f"{label}={step.duration_ms / 1000:.3f}s;{limit(step, thresholds.warning_age_ms)};"
        f"{limit(step, thresholds.critical_age_ms)};0"
        for label, step in slowest.items()
    )


def as_json(flights: Sequence[ProbeRun], outcome: Outcome, now_ms: int) -> str:
    """The same as one JSON object."""
    return json.dumps(
        {
            "status": NAMES[outcome.status],
            "exit_status": outcome.status,
            "reasons": [{"status": NAMES[status], "reason": reason} for status, reason in outcome.reasons],
            "taken_time_ms": now_ms,
            "taken_time": time_text(now_ms),
            "brokers": [_flight_json(flight) for flight in flights],
        }
    )


def _flight_json(flight: ProbeRun) -> dict[str, object]:
    return {
        "store": flight.store,
        "is_proved": flight.is_proved,
        "failure": flight.failure,
        "left_open": flight.left_open,
        "ended_of_earlier_probes": flight.swept,
        "steps": [
            {
                "scenario": step.scenario, "step": step.step, "is_proved": step.is_proved,
                "duration_ms": step.duration_ms, "allowed_ms": step.allowed_ms,
                "transaction_id": step.transaction_id, "proof": step.proof,
                "begun_time_ms": step.begun_time_ms, "begun_time": time_text(step.begun_time_ms),
            }
            for step in flight.steps
        ],
    }


def prometheus_text(flights: Sequence[ProbeRun], status: int, now_ms: int) -> str:
    """The results as Prometheus text; without flights only the failure of the probe."""
    samples = of_run("probe", status, now_ms)
    if flights:
        samples["rmqtx_probe_proved"] = [({"store": flight.store}, int(flight.is_proved)) for flight in flights]
        samples["rmqtx_probe_step_seconds"] = [
            ({"store": step.store, "scenario": step.scenario, "step": step.step}, step.duration_ms / 1000)
            for flight in flights for step in flight.steps
        ]
    return as_text(samples)
