"""`rmqtx check`: one line for Nagios, Prometheus text or JSON. The exit status is 0 to 3 only."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from rmqtx.readers.model.errors import BadRequest, UnwritableFile
from rmqtx_cli.commands import Example
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import OptionalStoreArguments, RateOption, StoreOptions
from rmqtx_cli.words.durations import parse_duration_ms
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import escaped

if TYPE_CHECKING:
    from rmqtx_cli.monitoring.judge import Outcome, Thresholds
    from rmqtx_cli.monitoring.numbers import Numbers
    from rmqtx_cli.monitoring.remembered import Became
    from rmqtx_cli.sources.source import Source

NAME = "check"
EXAMPLES = (
    Example("rmqtx check STORE", "warning from 10m, critical from 1h"),
    Example("rmqtx check STORE --warning 5m --critical 30m --critical-count 1000", "other thresholds"),
    Example("rmqtx check -n 10.0.0.1:9876", "live brokers; UNKNOWN if one cannot be reached"),
    Example("rmqtx check -n 10.0.0.1:9876 --deadline 5m", "critical 5 minutes before the broker discards the first"),
    Example("rmqtx check STORE --textfile /var/lib/node_exporter/rmqtx.prom", "for Prometheus"),
)
_UNKNOWN = 3
#: A call that cannot be interrupted (a hanging network file system) is abandoned this long after the timeout.
_GRACE_S = 2.0


class CheckFormat(StrEnum):
    """Format of the outcome."""

    NAGIOS = "nagios"
    JSON = "json"


WarningOption = Annotated[
    str, typer.Option("--warning", metavar="DURATION", help="Warn if a pending transaction is this old")
]
CriticalOption = Annotated[
    str, typer.Option("--critical", metavar="DURATION", help="Critical if a pending transaction is this old")
]
WarningCountOption = Annotated[
    int | None, typer.Option("--warning-count", min=1, metavar="N", help="Warn at N pending transactions")
]
CriticalCountOption = Annotated[
    int | None, typer.Option("--critical-count", min=1, metavar="N", help="Critical at N pending transactions")
]
DeadlineOption = Annotated[
    str | None,
    typer.Option(
        "--deadline", metavar="DURATION",
        help="Critical if the broker discards a pending transaction within this time, like 5m",
    ),
]
StateDirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--state-dir", metavar="DIR",
        help="Directory of the state that one run leaves for the next; default: $RMQTX_STATE_DIR or "
        "$XDG_STATE_HOME/rmqtx",
    ),
]
TextfileOption = Annotated[
    Path | None,
    typer.Option(
        "--textfile", metavar="FILE",
        help="Also write Prometheus text to FILE, replaced as a whole",
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing if the status is 0, for cron")]
TimeoutOption = Annotated[
    str, typer.Option("--timeout", metavar="DURATION", help="Exit with UNKNOWN after this time")
]
CheckFormatOption = Annotated[CheckFormat, typer.Option("--format", help="One Nagios line, or one JSON object")]


class _TimedOut(Exception):
    pass


@dataclass(frozen=True, slots=True)
class ThresholdOptions:
    """Thresholds for WARNING and CRITICAL."""

    warning: WarningOption = "10m"
    critical: CriticalOption = "1h"
    warning_count: WarningCountOption = None
    critical_count: CriticalCountOption = None
    deadline: DeadlineOption = None

    def thresholds(self) -> Thresholds:
        """Return the thresholds as numbers.

        Raises: BadRequest.
        """
        from rmqtx_cli.monitoring.judge import Thresholds

        found = Thresholds(
            parse_duration_ms(self.warning), parse_duration_ms(self.critical), self.warning_count, self.critical_count,
            None if self.deadline is None else parse_duration_ms(self.deadline),
        )
        _refuse_reversed(found.warning_age_ms, found.critical_age_ms, "--warning", "--critical")
        _refuse_reversed(self.warning_count, self.critical_count, "--warning-count", "--critical-count")
        return found


@with_option_groups
def command(
    store: OptionalStoreArguments = None,
    *,
    limits: ThresholdOptions,
    state_directory: StateDirectoryOption = None,
    textfile: TextfileOption = None,
    output_format: CheckFormatOption = CheckFormat.NAGIOS,
    timeout: TimeoutOption = "60s",
    files: StoreOptions,
    rate: RateOption = None,
    quiet: QuietOption = False,
    live: LiveOptions,
) -> int:
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
    from rmqtx.repairs.receipts.journal import state_directory as default_directory
    from rmqtx_cli.sources.source import chosen_opener

    thresholds = limits.thresholds()
    timeout_ms = parse_duration_ms(timeout)
    directory = state_directory or default_directory()
    advice = "rmqtx check STORE, or rmqtx check -n HOST:PORT"
    now_ms = time.time_ns() // 1_000_000
    try:
        with (
            _within(timeout_ms, timeout, is_json=output_format is CheckFormat.JSON),
            chosen_opener(store or [], live, files, Voice(quiet=True), advice, rate=rate).opened(
                textfile, directory
            ) as source,
        ):
            for line in source.conf_lines():
                Voice(quiet=quiet).note(line)
            numbers, outcome = _judged(source, thresholds, directory, now_ms, timeout)
            if textfile is not None:
                _write_textfile_or_say(textfile, now_ms, numbers, outcome)
    except BaseException as error:
        if textfile is not None and isinstance(error, Exception) and not isinstance(error, BadRequest):
            _write_failure(textfile, now_ms)
        if isinstance(error, _TimedOut):
            return unknown(f"no answer within {timeout}", is_json=output_format is CheckFormat.JSON)
        raise
    if not quiet or outcome.status:
        _print(output_format, numbers, thresholds, outcome)
    return outcome.status


def _judged(
    source: Source, thresholds: Thresholds, directory: Path, now_ms: int, timeout: str
) -> tuple[Numbers, Outcome]:
    """Return the numbers of now and the outcome compared with the previous run; save them for the next run."""
    from rmqtx_cli.monitoring.judge import judge
    from rmqtx_cli.monitoring.measure import measure
    from rmqtx_cli.monitoring.memory import memory_file, recall, remember

    memory = memory_file(directory, source.names)
    before: dict[str, Any] | None = None
    problem: OSError | UnwritableFile | None = None
    try:
        before = recall(memory)
    except OSError as error:
        problem = error
    numbers = measure(source, now_ms)
    became = _what_became(source, numbers, before, timeout)
    outcome = judge(numbers, thresholds, before, became, str(memory))
    if problem is None:
        try:
            remember(memory, numbers.as_memory(before))
        except (OSError, UnwritableFile) as error:
            problem = error
    if problem is not None:
        outcome.add(_UNKNOWN, _not_remembered(problem, directory))
    return numbers, outcome


def _not_remembered(error: OSError | UnwritableFile, directory: Path) -> str:
    why = error.strerror if isinstance(error, OSError) else error.message
    return (
        f"cannot keep these numbers for the next run in {directory} ({why}): name a directory with --state-dir or "
        "RMQTX_STATE_DIR"
    )


def _what_became(source: Source, numbers: Numbers, before: dict[str, Any] | None, timeout: str) -> Became:
    """Return what became of the transactions that were pending in the previous run."""
    from rmqtx_cli.monitoring.remembered import Became, became_since, gone_since

    try:
        return became_since(source, numbers, before)
    except _TimedOut:
        return Became(unanswered=list(gone_since(numbers, before)), why=f"no answer within {timeout}")


def _print(output_format: CheckFormat, numbers: Numbers, thresholds: Thresholds, outcome: Outcome) -> None:
    from rmqtx_cli.monitoring.say_outcome import as_json, nagios_line, outcome_text, performance

    if output_format is CheckFormat.JSON:
        sys.stdout.write(as_json(numbers, outcome) + "\n")
        return
    text, numbers_text = outcome_text(numbers, outcome), performance(numbers, thresholds, outcome)
    sys.stdout.write(nagios_line(outcome.status, text, numbers_text) + "\n")


def unknown(message: str, *, is_json: bool = False) -> int:
    """Print UNKNOWN and its reason on stdout, in the form that was asked for; return the status."""
    sys.stdout.write(_unknown_text(message, is_json=is_json))
    return _UNKNOWN


def _unknown_text(message: str, *, is_json: bool) -> str:
    plain = " ".join(message.split())
    if is_json:
        reasons = [{"status": "UNKNOWN", "reason": plain}]
        return json.dumps({"status": "UNKNOWN", "exit_status": _UNKNOWN, "reasons": reasons}) + "\n"
    return f"RMQTX UNKNOWN - {escaped(plain).replace('|', '¦')}\n"


def names_json(arguments: Sequence[str]) -> bool:
    """Return whether a command line, which may be a wrong one, has --format json."""
    return "--format=json" in arguments or ("--format", "json") in pairwise(arguments)


def _refuse_reversed(warning: int | None, critical: int | None, warning_name: str, critical_name: str) -> None:
    if warning is not None and critical is not None and warning > critical:
        raise BadRequest(f"{warning_name} must not be more than {critical_name}")


def _write_textfile(
    textfile: Path, status: int, now_ms: int, numbers: Numbers | None = None, outcome: Outcome | None = None
) -> None:
    from rmqtx_cli.monitoring.say_outcome import prometheus_text
    from rmqtx_cli.output.streams import written_whole

    with written_whole(textfile) as stream:
        stream.write(prometheus_text(numbers, status, now_ms, outcome).encode())


def _write_textfile_or_say(textfile: Path, now_ms: int, numbers: Numbers, outcome: Outcome) -> None:
    """Write the file; if that fails, the outcome has it as a reason beside all others."""
    try:
        _write_textfile(textfile, outcome.status, now_ms, numbers, outcome)
    except OSError as error:
        outcome.add(_UNKNOWN, f"cannot write {textfile}: {error.strerror or error}")
    except UnwritableFile as error:
        outcome.add(_UNKNOWN, error.message)


def _write_failure(textfile: Path, now_ms: int) -> None:
    """Write the status UNKNOWN: the numbers of the last good run would hide that this run failed."""
    from rmqtx.readers.model.errors import RmqtxError

    try:
        _write_textfile(textfile, _UNKNOWN, now_ms)
    except (RmqtxError, OSError):
        return  # the line on stdout is UNKNOWN anyway


@contextmanager
def _within(timeout_ms: int, text: str, *, is_json: bool) -> Iterator[None]:
    """Raise _TimedOut in the block after the time; if a read never returns, print UNKNOWN and end the process."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise _TimedOut

    def abandon() -> None:
        os.write(1, _unknown_text(f"no answer within {text}", is_json=is_json).encode())
        os._exit(_UNKNOWN)

    watchdog = threading.Timer(timeout_ms / 1000 + _GRACE_S, abandon)
    watchdog.daemon = True
    watchdog.start()
    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, max(timeout_ms, 1) / 1000)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        watchdog.cancel()
