"""`rmqtx probe`: send test transactions and time each step. The exit status is 0 to 3 only, as of `rmqtx check`.

Its results for monitoring: thresholds on the steps, a Nagios line, JSON, Prometheus text.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from rmqtx.readers.model.errors import BadRequest
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.protocol.errors import RemotingError, Unreachable
from rmqtx.repairs.acts.claims import GroupWatch
from rmqtx.repairs.acts.live_medium import LiveMedium
from rmqtx.repairs.canary.canary import Canary, ProbeSettings
from rmqtx.repairs.canary.probe_steps import PROBE_STEPS, SCENARIOS, ProbeRun, steps_table
from rmqtx_cli.commands.declared.watch import ProbeCommand, ProbeFormat
from rmqtx_cli.monitoring.judge import CRITICAL, NAMES, UNKNOWN, WARNING, Outcome, Thresholds
from rmqtx_cli.monitoring.metrics import as_text, of_run
from rmqtx_cli.monitoring.say_outcome import nagios_line
from rmqtx_cli.output.streams import written_whole
from rmqtx_cli.output.table import TablePort
from rmqtx_cli.output.views import flights_view
from rmqtx_cli.sources.interrupting import interruptible
from rmqtx_cli.sources.live_brokers import Live, full_name, open_live
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import duration_text, parse_duration_ms, time_text

if TYPE_CHECKING:
    from rmqtx.repairs.canary.probe_steps import ProbeRun, ProbeStep


_BROKERS_AT_ONCE = 16


def run(options: ProbeCommand) -> int:
    """Run the command; return its exit status."""
    thresholds = _thresholds(options.warning, options.critical)
    plan = _plan(
        full_name(options.live, options.topic), full_name(options.live, options.group),
        parse_duration_ms(options.critical), options.without_check,
    )
    now_ms = time.time_ns() // 1_000_000
    flights: list[ProbeRun] = []
    outcome, status = Outcome(), UNKNOWN
    try:
        with open_live(options.live) as given:
            flights = _fly(
                given, plan, options.voice.note if options.output_format is ProbeFormat.TABLE else options.voice.detail
            )
        outcome = judged(flights, thresholds)
        status = outcome.status
    except RemotingError as error:
        outcome.add(CRITICAL, str(error))
        status = outcome.status
    finally:
        if options.textfile is not None:
            _leave(options.textfile, prometheus_text(flights, status, now_ms))
    _print(flights, outcome, thresholds, options.output_format, now_ms, options.voice)
    return outcome.status


def _thresholds(warning: str, critical: str) -> Thresholds:
    """Return how much longer than allowed a step can take before WARNING, and before CRITICAL.

    Raises: BadRequest.
    """
    warning_ms, critical_ms = parse_duration_ms(warning), parse_duration_ms(critical)
    if warning_ms > critical_ms:
        raise BadRequest("--warning must not be more than --critical")
    return Thresholds(warning_ms, critical_ms)


def _plan(topic: str, group: str, patience_ms: int, without_check: bool) -> ProbeSettings:
    scenarios = tuple(name for name in SCENARIOS if name != "check" or not without_check)
    return ProbeSettings(topic, group, scenarios, patience_ms)


def _fly(live: Live, plan: ProbeSettings, note: Callable[[str], None]) -> list[ProbeRun]:
    """Send the test transactions through each broker that has the topic.

    Raises: BadRequest if none has it, or if the group has other producers; RemotingError.
    """
    brokers = [broker for broker in live.brokers if broker.has_topic(plan.topic)]
    if not brokers:
        names = live.name_servers
        where = f"-b {live.brokers[0].address}"
        if names is not None:
            where = f"-n '{';'.join(names.addresses)}' -c {live.brokers[0].cluster}"
        raise BadRequest(
            f"topic {plan.topic!r} does not exist at {live.names}",
            advice=f"mqadmin updateTopic {where} -t {plan.topic} -r 1 -w 1",
        )
    _refuse_others(GroupWatch(live.client, live.members, plan.group), plan.group)

    def canary(broker: Broker) -> Canary:
        return Canary(broker, plan, LiveMedium([broker], live.members).look, interrupted, note)

    with interruptible() as interrupted, ThreadPoolExecutor(min(len(brokers), _BROKERS_AT_ONCE)) as pool:
        return list(pool.map(lambda broker: canary(broker).run(), brokers))


def _refuse_others(watch: object, group: str) -> None:
    """Refuse a group that the application uses: the probe would get the checks of real transactions.

    Raises: BadRequest; Unreachable if the members of the group cannot be listed.
    """
    assert isinstance(watch, GroupWatch)
    others = watch.look()
    if others.unknown is not None:
        raise Unreachable(others.unknown)
    if others.members:
        found = ", ".join(others.members[:3])
        raise BadRequest(f"group {group} has other producers ({found})", advice="give a group that only the probe uses")
    if others.rivals:
        found = ", ".join(others.rivals[:3])
        raise BadRequest(f"another rmqtx uses group {group} ({found})", advice="wait until that process has ended")


def _leave(textfile: Path, text: str) -> None:
    with written_whole(textfile) as stream:
        stream.write(text.encode())


def _print(
    flights: list[ProbeRun], outcome: Outcome, thresholds: Thresholds, output_format: ProbeFormat, now_ms: int,
    voice: Voice,
) -> None:
    if output_format is ProbeFormat.JSON:
        sys.stdout.write(as_json(flights, outcome, now_ms) + "\n")
        return
    text = flights_text(flights, outcome)
    if output_format is ProbeFormat.NAGIOS:
        sys.stdout.write(nagios_line(outcome.status, text, performance(flights, thresholds)) + "\n")
        return
    if flights:
        _table(flights)
    voice.note(nagios_line(outcome.status, text))


def _table(flights: list[ProbeRun]) -> None:
    sys.stdout.flush()
    port = TablePort(sys.stdout.buffer, PROBE_STEPS, flights_view(with_store=len(flights) > 1))
    for batch in steps_table(flights).to_batches():
        port.write(batch)
    port.finish()


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
    }  # fmt: skip


def prometheus_text(flights: Sequence[ProbeRun], status: int, now_ms: int) -> str:
    """The results as Prometheus text; without flights only the failure of the probe."""
    samples = of_run("probe", status, now_ms)
    if flights:
        samples["rmqtx_probe_proved"] = [({"store": flight.store}, int(flight.is_proved)) for flight in flights]
        samples["rmqtx_probe_step_seconds"] = [
            ({"store": step.store, "scenario": step.scenario, "step": step.step}, step.duration_ms / 1000)
            for flight in flights for step in flight.steps
        ]  # fmt: skip
    return as_text(samples)
