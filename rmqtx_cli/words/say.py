"""Lines on stderr: notes, errors, findings; without control characters from stores.

On a terminal a long line is wrapped between words; elsewhere each message is one line. With --log-json each message
is an object.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqtx.readers.finding_kinds.kind import Severity
from rmqtx.readers.model.errors import RmqtxError
from rmqtx_cli.words import log_json
from rmqtx_cli.words.text import count, escaped, width, wrapped

if TYPE_CHECKING:
    from rmqtx.readers.model.findings import Finding

#: Severities, worst first.
SEVERITIES = tuple(Severity)


#: What begins each line but those of tables, help and prompts.
_PROGRAM = "rmqtx: "
#: What begins the text of a line that is a command to copy: it is not wrapped.
_COMMAND = "next: "
#: A continuation is indented to here.
_INDENT = "  "
_CELLS_MIN = 40


def line(text: str) -> None:
    """Print one line on stderr; errors of stderr are ignored."""
    plain = escaped(text)
    if (log := log_json.current()) is not None:
        _object(log, plain.removeprefix(_PROGRAM))
        return
    room = _room()
    if room is not None and width(plain) > room and _COMMAND not in plain:
        plain = f"\n{_INDENT}".join(wrapped(plain, room, room - len(_INDENT)))
    _write(f"{plain}\n")


def _object(log: log_json.Log, text: str) -> None:
    """Print a note as an object; a command to copy as its arguments."""
    before, found, command = text.rpartition(_COMMAND)
    if not found:
        log.object("note", text=text)
        return
    arguments, comment = log_json.next_command(command)
    log.object("next", arguments=arguments, text=text if before else command, comment=comment)


def prompt(text: str) -> None:
    """Print a text on stderr, without adding a line end."""
    if (log := log_json.current()) is not None:
        if text.strip():
            log.object("question", text=escaped(text.strip()).removeprefix(_PROGRAM))
        return
    end = "\n" if text.endswith("\n") else ""
    _write(f"{escaped(text.removesuffix(end))}{end}")


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


def _room() -> int | None:
    """The width of the terminal that stderr is on; None if it is on none, or too narrow for text."""
    try:
        if not sys.stderr.isatty():
            return None
        columns = os.environ.get("COLUMNS", "")
        cells = int(columns) if columns.isdecimal() else os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return None
    return cells if cells >= _CELLS_MIN else None


def lines(text: str) -> None:
    """Print a text of several lines on stderr."""
    for one in text.splitlines():
        line(one)


def error(text: str, cause: BaseException | None = None) -> None:
    """Print why there is no answer, or only a part of it. `cause`: the error, whose parts an object has."""
    if (log := log_json.current()) is None:
        line(f"{_PROGRAM}{text}")
        return
    known = cause if isinstance(cause, RmqtxError) else None
    trace = "".join(traceback.format_exception(cause)) if cause is not None and os.environ.get("RMQTX_DEBUG") else None
    log.object(
        "error", text=escaped(text), kind=None if cause is None else type(cause).__name__,
        file=None if known is None else known.file,
        position_bytes=None if known is None else known.position_bytes,
        advice=None if known is None else known.advice, traceback=trace,
    )


def _finding(log: log_json.Log, one: Finding, more_places: int) -> None:
    log.object(
        "finding", code=one.code, severity=one.kind.severity, store=one.store, file=one.file,
        position_bytes=one.position_bytes, length_bytes=one.length_bytes, commit_log_offset=one.commit_log_offset,
        expected=one.expected, actual=one.actual, meaning=one.meaning or one.kind.meaning,
        advice=one.advice or one.kind.advice or None, more_places=more_places, text=escaped(one.line()),
    )


@dataclass(frozen=True, slots=True)
class Voice:
    """Prints what is not a result: with `quiet` only errors, with `verbose` everything."""

    verbose: bool = False
    quiet: bool = False

    def note(self, text: str) -> None:
        """Print a note, unless `quiet`."""
        if not self.quiet:
            line(f"rmqtx: {text}")

    def detail(self, text: str) -> None:
        """Print a note only with `verbose`."""
        if self.verbose:
            self.note(text)

    def findings(self, findings: Iterable[Finding]) -> None:
        """Print the first finding of each kind, worst first; with `verbose` every finding, and those that are notes."""
        kinds: dict[str, list[Finding]] = {}
        for finding in findings:
            kinds.setdefault(finding.code, []).append(finding)
        for group in sorted(kinds.values(), key=lambda group: SEVERITIES.index(group[0].kind.severity)):
            self._kind(group)

    def _kind(self, group: list[Finding]) -> None:
        severity = group[0].kind.severity
        is_left_out = self.quiet and not group[0].is_error
        if is_left_out or (severity is Severity.NOTE and not self.verbose):
            return
        from rmqtx_cli.words.of_old_stores import fitted

        log = log_json.current()
        for finding in group if self.verbose else group[:1]:
            if log is None:
                line(f"rmqtx: {fitted(finding).line()}")
            else:
                _finding(log, fitted(finding), 0 if self.verbose else len(group) - 1)
        if log is not None:
            return
        if len(group) > 1 and not self.verbose:
            line(f"rmqtx: {severity}: {group[0].code}: {count(len(group) - 1, 'more place')} (--verbose shows all)")
