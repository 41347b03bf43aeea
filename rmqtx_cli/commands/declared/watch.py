"""Commands for monitoring."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rmqtx_cli.commands import Command, Example
from rmqtx_cli.options.engine import ProcessesOption, TemporaryOption, checked_temporary
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import (
    FailOnOption,
    FieldsOption,
    FlaggedOption,
    OptionalStoreArguments,
    OutputFormat,
    RateOption,
    RowForm,
    StoreArguments,
    TracedStoreOptions,
    VoiceOptions,
    WhereOption,
)
from rmqtx_cli.words.text import stored_text

TextfileOption = Annotated[
    Path | None,
    typer.Option(
        "--textfile", metavar="FILE",
        help="Also write Prometheus text to FILE, replaced as a whole",
    ),
]
IntervalOption = Annotated[
    str, typer.Option("--interval", metavar="DURATION", help="Time from the start of one reading to the next")
]


class CheckFormat(StrEnum):
    """Format of the outcome."""

    NAGIOS = "nagios"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class ThresholdOptions:
    """Thresholds for WARNING and CRITICAL."""

    warning: Annotated[
        str, typer.Option("--warning", metavar="DURATION", help="Warn if a pending transaction is this old")
    ] = "10m"
    critical: Annotated[
        str, typer.Option("--critical", metavar="DURATION", help="Critical if a pending transaction is this old")
    ] = "1h"
    warning_count: Annotated[
        int | None, typer.Option("--warning-count", min=1, metavar="N", help="Warn at N pending transactions")
    ] = None
    critical_count: Annotated[
        int | None, typer.Option("--critical-count", min=1, metavar="N", help="Critical at N pending transactions")
    ] = None
    deadline: Annotated[
        str | None,
        typer.Option(
            "--deadline", metavar="DURATION",
            help="Critical if the broker discards a pending transaction within this time, like 5m",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCommand(Command):
    """Monitor a store or live brokers: one line, and an exit status from 0 to 3, for cron, Nagios and Prometheus.

    Tests the age and the number of pending transactions, and whether the broker's check is stopped. Compared with the
    previous run also: newly lost or discarded transactions, a check cursor that does not move, commits without an op
    message, and a commit log that ends earlier.
    --deadline warns before the broker discards unanswered transactions, which it does without notice.
    What is discarded soonest leads. Names the most frequent cause of the transactions that it alerts about (rmqtx
    diagnose shows all causes).
    If evidence is missing, a number that would be 0 is unknown: U in performance data, null in JSON, absent from FILE
    of --textfile; other numbers are then lower bounds.
    """

    NAME = "check"
    MODULE = "reading.check"
    EXAMPLES = (
        Example("rmqtx check STORE", "warning from 10m, critical from 1h"),
        Example("rmqtx check STORE --warning 5m --critical 30m --critical-count 1000", "other thresholds"),
        Example("rmqtx check -n 10.0.0.1:9876", "live brokers; UNKNOWN if one cannot be reached"),
        Example(
            "rmqtx check -n 10.0.0.1:9876 --deadline 5m", "critical 5 minutes before the broker discards the first"
        ),
        Example("rmqtx check STORE --textfile /var/lib/node_exporter/rmqtx.prom", "for Prometheus"),
    )

    store: OptionalStoreArguments = None
    limits: ThresholdOptions
    state_directory: Annotated[
        Path | None,
        typer.Option(
            "--state-dir", metavar="DIR",
            help="Directory of the state that one run leaves for the next; default: $RMQTX_STATE_DIR or "
            "$XDG_STATE_HOME/rmqtx",
        ),
    ] = None
    textfile: TextfileOption = None
    output_format: Annotated[
        CheckFormat, typer.Option("--format", help="One Nagios line, or one JSON object")
    ] = CheckFormat.NAGIOS
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="DURATION", help="Exit with UNKNOWN after this time")
    ] = "60s"
    files: TracedStoreOptions
    rate: RateOption = None
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing if the status is 0, for cron")] = False
    live: LiveOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchCommand(Command):
    """Show pending transactions live: by producer group, with ages, deadlines, rates, changes and causes.

    Keys: arrows move, Return opens a group and then the timeline of a transaction, Esc goes back, s changes the order,
    / filters, t starts rmqtx triage for the group, q quits. Reads what pending reads, every few seconds, and changes
    nothing. Changes are of transactions that are pending for 10 seconds or longer.
    """

    NAME = "watch"
    MODULE = "reading.watch"
    EXAMPLES = (
        Example("rmqtx watch -n 10.0.0.1:9876", "live brokers"),
        Example("rmqtx watch STORE --interval 10s", "the files of a store, read every 10 seconds"),
        Example("rmqtx watch STORE --plain >> changes.log", "one line for each change, for logs and screen readers"),
    )

    context: typer.Context
    store: OptionalStoreArguments = None
    interval: IntervalOption = "5s"
    plain: Annotated[
        bool, typer.Option("--plain", help="Print one line for each change; the default if stdout is not a terminal")
    ] = False
    files: TracedStoreOptions
    rate: RateOption = None
    live: LiveOptions


@dataclass(frozen=True, slots=True)
class StepOptions:
    """How a store that grows is read step by step.

    Raises: BadRequest if the directory for temporary files does not exist.
    """

    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="FILE", help="Keep what was read and printed in FILE, for the next run"),
    ] = None
    interval: Annotated[
        str, typer.Option("--interval", metavar="DURATION", help="Time between two readings")
    ] = "10s"
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Exit when nothing is new, for cron")] = False
    processes: ProcessesOption = None
    temporary: TemporaryOption = None

    def __post_init__(self) -> None:
        checked_temporary(self.temporary)

    @property
    def temporary_directory(self) -> str | None:
        """Directory for temporary files."""
        return None if self.temporary is None else str(self.temporary)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowCommand(Command):
    """Print each transaction that is new or has changed, while the stores grow, until it is stopped.

    The rows are those of rmqtx audit, without what the broker does next. The first step reads the whole log, each later
    one what was appended. With --checkpoint a restart continues where the last run ended.
    """

    NAME = "follow"
    MODULE = "reading.follow"
    EXAMPLES = (
        Example("rmqtx follow STORE", "all transactions, then each new or changed one"),
        Example(
            "rmqtx follow STORE --checkpoint orders.sqlite --format jsonl >> verdicts.jsonl",
            "for days; a restart continues",
        ),
        Example(
            "rmqtx follow STORE --checkpoint orders.sqlite --until-idle", "what changed since the last run, for cron"
        ),
        Example("rmqtx follow STORE --where 'state = LOST'", "only those that become lost"),
    )

    store: StoreArguments
    where: WhereOption = None
    flagged: FlaggedOption = False
    fail_on: FailOnOption = None
    steps: StepOptions
    fields: FieldsOption = None
    output_format: Annotated[
        OutputFormat | None,
        typer.Option("--format", show_default=False, help="Format of the rows: table, jsonl or csv; default: table"),
    ] = None
    form: RowForm
    files: TracedStoreOptions
    voice: VoiceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterCommand(Command):
    """Serve metrics of stores or live brokers for Prometheus, until it is stopped.

    Reads what check reads, one reading after the other, each in a process of its own. A scrape never reads a store: it
    gets the numbers of the last reading. If a reading fails, rmqtx_up is 0 and the numbers of stores are absent. A
    number of 0 that missing evidence may hide is absent too. /healthz answers 200 while readings begin and end.
    """

    NAME = "exporter"
    MODULE = "reading.exporter"
    EXAMPLES = (
        Example("rmqtx exporter STORE", "of a store: http://127.0.0.1:9560/metrics"),
        Example("rmqtx exporter -n 10.0.0.1:9876 --interval 30s", "of live brokers, read every 30 seconds"),
        Example("rmqtx exporter STORE --listen 0.0.0.0:9560 --web-config web.yml", "with TLS and users, for a network"),
    )

    store: OptionalStoreArguments = None
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Address to serve on; :PORT is every address")
    ] = "127.0.0.1:9560"
    interval: IntervalOption = "60s"
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="DURATION", help="End a reading that takes longer; it counts as failed")
    ] = "5m"
    web_config: Annotated[
        Path | None,
        typer.Option("--web-config", metavar="FILE", help="YAML file with TLS and users, as node_exporter has it"),
    ] = None
    files: TracedStoreOptions
    rate: RateOption = None
    live: LiveOptions


_WHERE = "-n 10.0.0.1:9876 --topic rmqtx-probe --group rmqtx-probe"


class ProbeFormat(StrEnum):
    """Format of the outcome."""

    TABLE = "table"
    NAGIOS = "nagios"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeCommand(Command):
    """Send test transactions through every broker and prove each step: half, decision, delivery, op message, check.

    One transaction is committed at once, one is rolled back, and one is decided only when the broker checks it. No
    transaction stays open, even after an interruption. Consumers of the topic get two marked messages per run: use a
    topic and a group that nothing else uses. Each step may take as long as the broker's settings allow (the
    check: timeout and interval); --warning and --critical are added to that.
    """

    NAME = "probe"
    MODULE = "settling.probe"
    EXAMPLES = (
        Example(f"rmqtx probe {_WHERE}", "all steps with their times and proofs"),
        Example(f"rmqtx probe {_WHERE} --without-check --format nagios", "without waiting for the check, for Nagios"),
        Example(f"rmqtx probe {_WHERE} --textfile /var/lib/node_exporter/rmqtx_probe.prom", "for Prometheus"),
    )

    topic: Annotated[
        str,
        typer.Option(
            "--topic", parser=stored_text, metavar="TOPIC",
            help="Topic that only the probe uses; it must exist, and its consumers get the committed messages",
        ),
    ]
    group: Annotated[
        str,
        typer.Option("--group", parser=stored_text, metavar="GROUP", help="Producer group that only the probe uses"),
    ]
    without_check: Annotated[
        bool,
        typer.Option(
            "--without-check", help="Do not wait for the broker's check, which takes its timeout and interval"
        ),
    ] = False
    warning: Annotated[
        str, typer.Option("--warning", metavar="DURATION", help="Warn if a step takes this much longer than allowed")
    ] = "2s"
    critical: Annotated[
        str,
        typer.Option(
            "--critical", metavar="DURATION",
            help="Critical if a step takes this much longer; stop waiting for the step"
        ),
    ] = "30s"
    textfile: TextfileOption = None
    output_format: Annotated[
        ProbeFormat, typer.Option("--format", help="A table of the steps, one Nagios line, or one JSON object")
    ] = ProbeFormat.TABLE
    voice: VoiceOptions
    live: LiveOptions


COMMANDS: tuple[type[Command], ...] = (
    CheckCommand,
    WatchCommand,
    FollowCommand,
    ExporterCommand,
    ProbeCommand,
)
