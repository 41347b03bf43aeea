"""`rmqtx probe`: send test transactions and time each step. The exit status is 0 to 3 only, as of `rmqtx check`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rmqtx.readers.model import clock
from rmqtx.readers.model.errors import BadRequest
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.protocol.errors import RemotingError, Unreachable
from rmqtx.repairs.acts.claims import GroupWatch
from rmqtx.repairs.acts.live_medium import LiveMedium
from rmqtx.repairs.canary.canary import Canary, ProbeSettings
from rmqtx.repairs.canary.probe_steps import SCENARIOS, ProbeRun, steps_table
from rmqtx_cli.commands.declared.watch import ProbeCommand, ProbeFormat
from rmqtx_cli.monitoring.flights import as_json, flights_text, judged, performance, prometheus_text
from rmqtx_cli.monitoring.judge import CRITICAL, UNKNOWN, Outcome, Thresholds
from rmqtx_cli.monitoring.say_outcome import nagios_line
from rmqtx_cli.output.streams import written_whole
from rmqtx_cli.output.table import write_table
from rmqtx_cli.output.views import flights_view
from rmqtx_cli.sources.interrupting import asked_to_end
from rmqtx_cli.sources.live_brokers import Live, full_name, open_live
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.times import parse_duration_ms

_BROKERS_AT_ONCE = 16


def run(options: ProbeCommand) -> int:
    """Run the command; return its exit status."""
    thresholds = _thresholds(options.warning, options.critical)
    plan = _plan(
        full_name(options.live, options.topic), full_name(options.live, options.group),
        parse_duration_ms(options.critical), options.without_check,
    )
    now_ms = clock.now_ms()
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
    """Return how much longer than allowed a step can take before WARNING, and before CRITICAL. Raises: BadRequest."""
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

    with asked_to_end() as interrupted, ThreadPoolExecutor(min(len(brokers), _BROKERS_AT_ONCE)) as pool:
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
    write_table(sys.stdout.buffer, steps_table(flights), flights_view(with_store=len(flights) > 1))
