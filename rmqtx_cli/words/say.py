"""Lines on stderr: notes, errors, findings; without control characters from stores.

On a terminal a long line is wrapped between words; elsewhere each message is one line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqtx.readers.finding_kinds.kind import Severity
from rmqtx_cli.words.text import count, escaped, width, wrapped

if TYPE_CHECKING:
    from rmqtx.readers.model.findings import Finding

#: Severities, worst first.
SEVERITIES = tuple(Severity)


#: What begins the text of a line that is a command to copy: it is not wrapped.
_COMMAND = "next: "
#: A continuation is indented to here.
_INDENT = "  "
_CELLS_MIN = 40


def line(text: str) -> None:
    """Print one line on stderr; errors of stderr are ignored."""
    plain, room = escaped(text), _room()
    if room is not None and width(plain) > room and _COMMAND not in plain:
        plain = f"\n{_INDENT}".join(wrapped(plain, room, room - len(_INDENT)))
    _write(f"{plain}\n")


def prompt(text: str) -> None:
    """Print a text on stderr, without adding a line end."""
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


def error(text: str) -> None:
    """Print why there is no answer, or only a part of it."""
    line(f"rmqtx: {text}")


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

        for finding in group if self.verbose else group[:1]:
            line(f"rmqtx: {fitted(finding).line()}")
        if len(group) > 1 and not self.verbose:
            line(f"rmqtx: {severity}: {group[0].code}: {count(len(group) - 1, 'more place')} (--verbose shows all)")
