"""`rmqtx probe`: a canary that goes the whole way of a transaction. Exits with 0 to 3 only, as `rmqtx check` does."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from readers.model.errors import BadRequest
from rmqtx_cli.commands import Example
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import VoiceOptions
from rmqtx_cli.words.durations import parse_duration_ms
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import stored_text

if TYPE_CHECKING:
    from remoting.connections.broker import Broker
    from repairs.canary.canary import FlightPlan
    from repairs.canary.probe_steps import Flight
    from rmqtx_cli.monitoring.judge import Outcome, Thresholds
    from rmqtx_cli.options.live import Live

NAME = "probe"
SHORT = "a canary: real transactions, each step timed and proved"
_WHERE = "-n 10.0.0.1:9876 --topic rmqtx-probe --group rmqtx-probe"
EXAMPLES = (
    Example(f"rmqtx probe {_WHERE}", "every step with its time and proof"),
    Example(f"rmqtx probe {_WHERE} --without-check --format nagios", "a few seconds, for cron and Nagios"),
    Example(f"rmqtx probe {_WHERE} --textfile /var/lib/node_exporter/rmqtx_probe.prom", "for Prometheus"),
)
_BROKERS_AT_ONCE = 16


class ProbeFormat(StrEnum):
    """How the outcome is printed."""

    TABLE = "table"
    NAGIOS = "nagios"
    JSON = "json"


TopicOption = Annotated[
    str,
    typer.Option(
        "--topic", parser=stored_text, metavar="TOPIC",
        help="A topic of the probe's own, which must exist: its consumers get what is committed.",
    ),
]
GroupOption = Annotated[
    str,
    typer.Option("--group", parser=stored_text, metavar="GROUP", help="A producer group of the probe's own."),
]
WithoutCheckOption = Annotated[
    bool,
    typer.Option("--without-check", help="Do not wait until the broker asks: that takes its timeout and interval."),
]
WarningOption = Annotated[
    str, typer.Option("--warning", metavar="DURATION", help="Warn if a step takes so much longer than it may.")
]
CriticalOption = Annotated[
    str,
    typer.Option(
        "--critical", metavar="DURATION", help="Critical if a step takes so much longer; then it is not waited for."
    ),
]
TextfileOption = Annotated[
    Path | None, typer.Option("--textfile", metavar="FILE", help="Also write Prometheus text, whole or not at all.")
]
ProbeFormatOption = Annotated[
    ProbeFormat, typer.Option("--format", help="A table of the steps, one Nagios line, or one JSON object.")
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
    """Send real transactions through every broker and prove each step: half, decision, delivery, op, broker's check.

    One is committed at once, one rolled back, and one says nothing until the broker asks. Leaves nothing open, also
    when it is interrupted. Consumers of the topic get two messages a run, which say what they are: give it a topic and
    a group of its own. A step may take what the broker's settings say (the check its timeout and interval); beyond that
    the thresholds count.
    """
    from remoting.protocol.errors import RemotingError
    from rmqtx_cli.monitoring.flights import judged, prometheus_text
    from rmqtx_cli.monitoring.judge import CRITICAL, UNKNOWN, Outcome
    from rmqtx_cli.options.live import open_live

    thresholds = _thresholds(warning, critical)
    plan = _plan(live.full_name(topic), live.full_name(group), parse_duration_ms(critical), without_check)
    now_ms = time.time_ns() // 1_000_000
    flights: list[Flight] = []
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
    """How much longer than allowed a step takes until it warns, and until it is critical.

    Raises: BadRequest.
    """
    from rmqtx_cli.monitoring.judge import Thresholds

    warning_ms, critical_ms = parse_duration_ms(warning), parse_duration_ms(critical)
    if warning_ms > critical_ms:
        raise BadRequest("--warning is beyond --critical: nothing could ever only warn")
    return Thresholds(warning_ms, critical_ms)


def _plan(topic: str, group: str, patience_ms: int, without_check: bool) -> FlightPlan:
    from repairs.canary.canary import FlightPlan
    from repairs.canary.probe_steps import SCENARIOS

    scenarios = tuple(name for name in SCENARIOS if name != "check" or not without_check)
    return FlightPlan(topic, group, scenarios, patience_ms)


def _fly(live: Live, plan: FlightPlan, tell: Callable[[str], None]) -> list[Flight]:
    """One canary at each broker that has the topic.

    Raises: BadRequest if none has it, or if the group is not the probe's own; RemotingError.
    """
    from repairs.acts.group_watch import GroupWatch
    from repairs.acts.live_medium import LiveMedium
    from repairs.canary.canary import Canary, has_topic
    from rmqtx_cli.sources.interrupting import interruptible

    brokers = [broker for broker in live.brokers if has_topic(broker, plan.topic)]
    if not brokers:
        names = live.name_servers
        where = f"-b {live.brokers[0].address}"
        if names is not None:
            where = f"-n '{';'.join(names.addresses)}' -c {live.brokers[0].cluster}"
        raise BadRequest(
            f"no topic {plan.topic!r} at {live.names}, and none is made unasked",
            advice=f"mqadmin updateTopic {where} -t {plan.topic} -r 1 -w 1",
        )
    _refuse_others(GroupWatch(live.client, live.members, plan.group), plan.group)

    def canary(broker: Broker) -> Canary:
        return Canary(broker, plan, LiveMedium([broker], live.members).look, interrupted, tell)

    with interruptible() as interrupted, ThreadPoolExecutor(min(len(brokers), _BROKERS_AT_ONCE)) as pool:
        return list(pool.map(lambda broker: canary(broker).fly(), brokers))


def _refuse_others(watch: object, group: str) -> None:
    """A group that the application uses is no place for a canary: it would be asked about real transactions.

    Raises: BadRequest; Unreachable where nobody can tell.
    """
    from remoting.protocol.errors import Unreachable
    from repairs.acts.group_watch import GroupWatch

    assert isinstance(watch, GroupWatch)
    others = watch.look()
    if others.unknown is not None:
        raise Unreachable(others.unknown)
    if others.members:
        found = ", ".join(others.members[:3])
        raise BadRequest(f"group {group} has other producers ({found})", advice="give a group of the probe's own")
    if others.rivals:
        found = ", ".join(others.rivals[:3])
        raise BadRequest(f"another rmqtx uses group {group} ({found})", advice="wait until it has ended")


def _leave(textfile: Path, text: str) -> None:
    from rmqtx_cli.output.streams import written_whole

    with written_whole(textfile) as stream:
        stream.write(text.encode())


def _print(
    flights: list[Flight], outcome: Outcome, thresholds: Thresholds, output_format: ProbeFormat, now_ms: int,
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
    _table(flights)
    voice.note(nagios_line(outcome.status, text))


def _table(flights: list[Flight]) -> None:
    from repairs.canary.probe_steps import PROBE_STEPS, steps_table
    from rmqtx_cli.output.table import TablePort
    from rmqtx_cli.output.views import flights_view

    sys.stdout.flush()
    port = TablePort(sys.stdout.buffer, PROBE_STEPS, flights_view(with_store=len(flights) > 1))
    for batch in steps_table(flights).to_batches():
        port.write(batch)
    port.finish()
