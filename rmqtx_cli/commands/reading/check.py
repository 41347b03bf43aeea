"""`rmqtx check`: one line for Nagios, Prometheus text or JSON. The exit status is 0 to 3 only."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from rmqtx.readers.model import clock
from rmqtx.readers.model.errors import BadRequest, RmqtxError, UnwritableFile
from rmqtx.repairs.receipts.state_directory import state_directory as default_directory
from rmqtx_cli.commands.declared.watch import CheckCommand, CheckFormat, ThresholdOptions
from rmqtx_cli.monitoring.judge import Outcome, Thresholds, judge
from rmqtx_cli.monitoring.measure import measure
from rmqtx_cli.monitoring.numbers import Memory, Numbers, memory_file, recall, remember
from rmqtx_cli.monitoring.remembered import Became, became_since, gone_since
from rmqtx_cli.monitoring.say_outcome import as_json, nagios_line, outcome_text, performance, prometheus_text
from rmqtx_cli.output.streams import written_whole
from rmqtx_cli.sources.source import AskedSource, Source, chosen_opener
from rmqtx_cli.words.check_unknown import UNKNOWN, unknown, unknown_text
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.times import parse_duration_ms

#: A call that cannot be interrupted (a hanging network file system) is abandoned this long after the timeout.
_GRACE_S = 2.0


class _TimedOut(Exception):
    pass


def run(options: CheckCommand) -> int:
    """Run the command; return its exit status."""
    thresholds = _thresholds(options.limits)
    timeout_ms = parse_duration_ms(options.timeout)
    directory = options.state_directory or default_directory()
    advice = "rmqtx check STORE, or rmqtx check -n HOST:PORT"
    now_ms = clock.now_ms()
    try:
        with (
            _within(timeout_ms, options.timeout, is_json=options.output_format is CheckFormat.JSON),
            chosen_opener(
                AskedSource(options.store or [], options.live, options.files, options.rate), Voice(quiet=True), advice
            ).opened(options.textfile, directory) as source,
        ):
            for line in source.conf_lines():
                Voice(quiet=options.quiet).note(line)
            numbers, outcome = _judged(source, thresholds, directory, now_ms, options.timeout)
            if options.textfile is not None:
                _write_textfile_or_say(options.textfile, now_ms, numbers, outcome)
    except BaseException as error:
        if options.textfile is not None and isinstance(error, Exception) and not isinstance(error, BadRequest):
            _write_failure(options.textfile, now_ms)
        if isinstance(error, _TimedOut):
            return unknown(f"no answer within {options.timeout}", is_json=options.output_format is CheckFormat.JSON)
        raise
    if not options.quiet or outcome.status:
        _print(options.output_format, numbers, thresholds, outcome)
    return outcome.status


def _thresholds(limits: ThresholdOptions) -> Thresholds:
    """Return the thresholds as numbers. Raises: BadRequest."""
    found = Thresholds(
        parse_duration_ms(limits.warning), parse_duration_ms(limits.critical), limits.warning_count,
        limits.critical_count,
        None if limits.deadline is None else parse_duration_ms(limits.deadline),
    )
    _refuse_reversed(found.warning_age_ms, found.critical_age_ms, "--warning", "--critical")
    _refuse_reversed(limits.warning_count, limits.critical_count, "--warning-count", "--critical-count")
    return found


def _judged(
    source: Source, thresholds: Thresholds, directory: Path, now_ms: int, timeout: str
) -> tuple[Numbers, Outcome]:
    """Return the numbers of now and the outcome compared with the previous run; save them for the next run."""
    memory = memory_file(directory, source.names)
    before: Memory | None = None
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
        outcome.add(UNKNOWN, _not_remembered(problem, directory))
    return numbers, outcome


def _not_remembered(error: OSError | UnwritableFile, directory: Path) -> str:
    why = error.strerror if isinstance(error, OSError) else error.message
    return (
        f"cannot keep these numbers for the next run in {directory} ({why}): name a directory with --state-dir or "
        "RMQTX_STATE_DIR"
    )


def _what_became(source: Source, numbers: Numbers, before: Memory | None, timeout: str) -> Became:
    """Return what became of the transactions that were pending in the previous run."""
    try:
        return became_since(source, numbers, before)
    except _TimedOut:
        return Became(unanswered=list(gone_since(numbers, before)), why=f"no answer within {timeout}")


def _print(output_format: CheckFormat, numbers: Numbers, thresholds: Thresholds, outcome: Outcome) -> None:
    if output_format is CheckFormat.JSON:
        sys.stdout.write(as_json(numbers, outcome) + "\n")
        return
    text, numbers_text = outcome_text(numbers, outcome), performance(numbers, thresholds, outcome)
    sys.stdout.write(nagios_line(outcome.status, text, numbers_text) + "\n")


def _refuse_reversed(warning: int | None, critical: int | None, warning_name: str, critical_name: str) -> None:
    if warning is not None and critical is not None and warning > critical:
        raise BadRequest(f"{warning_name} must not be more than {critical_name}")


def _write_textfile(
    textfile: Path, status: int, now_ms: int, numbers: Numbers | None = None, outcome: Outcome | None = None
) -> None:
    with written_whole(textfile) as stream:
        stream.write(prometheus_text(numbers, status, now_ms, outcome).encode())


def _write_textfile_or_say(textfile: Path, now_ms: int, numbers: Numbers, outcome: Outcome) -> None:
    """Write the file; if that fails, the outcome has it as a reason beside all others."""
    try:
        _write_textfile(textfile, outcome.status, now_ms, numbers, outcome)
    except OSError as error:
        outcome.add(UNKNOWN, f"cannot write {textfile}: {error.strerror or error}")
    except UnwritableFile as error:
        outcome.add(UNKNOWN, error.message)


def _write_failure(textfile: Path, now_ms: int) -> None:
    """Write the status UNKNOWN: the numbers of the last good run would hide that this run failed."""
    try:
        _write_textfile(textfile, UNKNOWN, now_ms)
    except (RmqtxError, OSError):
        return  # the line on stdout is UNKNOWN anyway


@contextmanager
def _within(timeout_ms: int, text: str, *, is_json: bool) -> Iterator[None]:
    """Raise _TimedOut in the block after the time; if a read never returns, print UNKNOWN and end the process."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise _TimedOut

    def abandon() -> None:
        os.write(1, unknown_text(f"no answer within {text}", is_json=is_json).encode())
        os._exit(UNKNOWN)

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
