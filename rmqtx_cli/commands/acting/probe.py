"""`rmqtx probe`: send test transactions and time each step. The exit status is 0 to 3 only, as of `rmqtx check`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.commands import Example
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import VoiceOptions
from rmqtx_cli.words.durations import parse_duration_ms
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import stored_text

if TYPE_CHECKING:
    from rmqtx.remoting.connections.broker import Broker
    from rmqtx.repairs.canary.canary import ProbeSettings
    from rmqtx.repairs.canary.probe_steps import ProbeRun
    from rmqtx_cli.monitoring.judge import Outcome, Thresholds
    from rmqtx_cli.options.live import Live

NAME = "probe"
_WHERE = "-n 10.0.0.1:9876 --topic rmqtx-probe --group rmqtx-probe"
EXAMPLES = (
    Example(f"rmqtx probe {_WHERE}", "all steps with their times and proofs"),
    Example(f"rmqtx probe {_WHERE} --without-check --format nagios", "without waiting for the check, for Nagios"),
    Example(f"rmqtx probe {_WHERE} --textfile /var/lib/node_exporter/rmqtx_probe.prom", "for Prometheus"),
)
_BROKERS_AT_ONCE = 16


class ProbeFormat(StrEnum):
    """Format of the outcome."""

    TABLE = "table"
    NAGIOS = "nagios"
    JSON = "json"


TopicOption = Annotated[
    str,
    typer.Option(
        "--topic", parser=stored_text, metavar="TOPIC",
        help="Topic that only the probe uses; it must exist, and its consumers get the committed messages",
    ),
]
GroupOption = Annotated[
    str,
    typer.Option("--group", parser=stored_text, metavar="GROUP", help="Producer group that only the probe uses"),
]
WithoutCheckOption = Annotated[
    bool,
    typer.Option("--without-check", help="Do not wait for the broker's check, which takes its timeout and interval"),
]
WarningOption = Annotated[
    str, typer.Option("--warning", metavar="DURATION", help="Warn if a step takes this much longer than allowed")
]
CriticalOption = Annotated[
    str,
    typer.Option(
        "--critical", metavar="DURATION", help="Critical if a step takes this much longer; stop waiting for the step"
    ),
]
TextfileOption = Annotated[
    Path | None,
    typer.Option(
        "--textfile", metavar="FILE",
        help="Also write Prometheus text to FILE, replaced as a whole",
    ),
]
ProbeFormatOption = Annotated[
    ProbeFormat, typer.Option("--format", help="A table of the steps, one Nagios line, or one JSON object")
]


@with_option_groups
def command(
    topic: TopicOption,
    group: GroupOption,
    without_check: WithoutCheckOption = False,
    warning: WarningOption = "2s",
    critical: CriticalOption = "30s",
    textfile: TextfileOption = None,
    output_format: ProbeFormatOption = ProbeFormat.TABLE,
    *,
    voice: VoiceOptions,
    live: LiveOptions,
) -> int:
    """Send test transactions through every broker and prove each step: half, decision, delivery, op message, check.

    One transaction is committed at once, one is rolled back, and one is decided only when the broker checks it. No
    transaction stays open, even after an interruption. Consumers of the topic get two marked messages per run: use a
    topic and a group that nothing else uses. Each step may take as long as the broker's settings allow (the
    check: timeout and interval); --warning and --critical are added to that.
    """
    from rmqtx.remoting.protocol.errors import RemotingError
    from rmqtx_cli.monitoring.flights import judged, prometheus_text
    from rmqtx_cli.monitoring.judge import CRITICAL, UNKNOWN, Outcome
    from rmqtx_cli.options.live import open_live

    thresholds = _thresholds(warning, critical)
    plan = _plan(live.full_name(topic), live.full_name(group), parse_duration_ms(critical), without_check)
    now_ms = time.time_ns() // 1_000_000
    flights: list[ProbeRun] = []
    outcome, status = Outcome(), UNKNOWN
    try:
        with open_live(live) as given:
            flights = _fly(given, plan, voice.note if output_format is ProbeFormat.TABLE else voice.detail)
        outcome = judged(flights, thresholds)
        status = outcome.status
    except RemotingError as error:
        outcome.add(CRITICAL, str(error))
        status = outcome.status
    finally:
        if textfile is not None:
            _leave(textfile, prometheus_text(flights, status, now_ms))
    _print(flights, outcome, thresholds, output_format, now_ms, voice)
    return outcome.status


def _thresholds(warning: str, critical: str) -> Thresholds:
    """Return how much longer than allowed a step can take before WARNING, and before CRITICAL.

    Raises: BadRequest.
    """
    from rmqtx_cli.monitoring.judge import Thresholds

    warning_ms, critical_ms = parse_duration_ms(warning), parse_duration_ms(critical)
    if warning_ms > critical_ms:
        raise BadRequest("--warning must not be more than --critical")
    return Thresholds(warning_ms, critical_ms)


def _plan(topic: str, group: str, patience_ms: int, without_check: bool) -> ProbeSettings:
    from rmqtx.repairs.canary.canary import ProbeSettings
    from rmqtx.repairs.canary.probe_steps import SCENARIOS

    scenarios = tuple(name for name in SCENARIOS if name != "check" or not without_check)
    return ProbeSettings(topic, group, scenarios, patience_ms)


def _fly(live: Live, plan: ProbeSettings, note: Callable[[str], None]) -> list[ProbeRun]:
    """Send the test transactions through each broker that has the topic.

    Raises: BadRequest if none has it, or if the group has other producers; RemotingError.
    """
    from rmqtx.repairs.acts.group_watch import GroupWatch
    from rmqtx.repairs.acts.live_medium import LiveMedium
    from rmqtx.repairs.canary.canary import Canary, has_topic
    from rmqtx_cli.sources.interrupting import interruptible

    brokers = [broker for broker in live.brokers if has_topic(broker, plan.topic)]
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
    from rmqtx.remoting.protocol.errors import Unreachable
    from rmqtx.repairs.acts.group_watch import GroupWatch

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
    from rmqtx_cli.output.streams import written_whole

    with written_whole(textfile) as stream:
        stream.write(text.encode())


def _print(
    flights: list[ProbeRun], outcome: Outcome, thresholds: Thresholds, output_format: ProbeFormat, now_ms: int,
    voice: Voice,
) -> None:
    from rmqtx_cli.monitoring.flights import as_json, flights_text, performance
    from rmqtx_cli.monitoring.say_outcome import nagios_line

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
    from rmqtx.repairs.canary.probe_steps import PROBE_STEPS, steps_table
    from rmqtx_cli.output.table import TablePort
    from rmqtx_cli.output.views import flights_view

    sys.stdout.flush()
    port = TablePort(sys.stdout.buffer, PROBE_STEPS, flights_view(with_store=len(flights) > 1))
    for batch in steps_table(flights).to_batches():
        port.write(batch)
    port.finish()
