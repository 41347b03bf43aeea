"""Everything that is not a result: one line each, on stderr, with nothing in it that a terminal would obey."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqtx_cli.words.text import count, escaped

if TYPE_CHECKING:
    from readers.model.findings import Finding

#: Severities, worst first.
SEVERITIES = ("error", "warning", "note")


def line(text: str) -> None:
    """One line on stderr; a closed or failing stderr is no reason to stop."""
    prompt(f"{text}\n")


def prompt(text: str) -> None:
    """The same without its end, unless the text has one."""
    end = "\n" if text.endswith("\n") else ""
    try:
        sys.stderr.write(f"{escaped(text.removesuffix(end))}{end}")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


def lines(text: str) -> None:
    """A text of several lines on stderr."""
    for one in text.splitlines():
        line(one)


def error(text: str) -> None:
    """Why there is no answer, or only a part of it."""
    line(f"rmqtx: {text}")


@dataclass(frozen=True, slots=True)
class Voice:
    """What a command says beside its results: `quiet` leaves errors only, `verbose` leaves nothing out."""

    verbose: bool = False
    quiet: bool = False

    def note(self, text: str) -> None:
        """Something the reader of the results should know."""
        if not self.quiet:
            line(f"rmqtx: {text}")

    def detail(self, text: str) -> None:
        """Something that only `--verbose` asks for."""
        if self.verbose:
            self.note(text)

    def findings(self, findings: Iterable[Finding]) -> None:
        """What was wrong, worst first: the first of each kind, with `--verbose` each one; notes only then."""
        kinds: dict[str, list[Finding]] = {}
        for finding in findings:
            kinds.setdefault(finding.code, []).append(finding)
        for group in sorted(kinds.values(), key=lambda group: SEVERITIES.index(group[0].kind.severity)):
            self._kind(group)

    def _kind(self, group: list[Finding]) -> None:
        severity = group[0].kind.severity
        if (self.quiet and severity != "error") or (severity == "note" and not self.verbose):
            return
        for finding in group if self.verbose else group[:1]:
            line(f"rmqtx: {finding.line()}")
        if len(group) > 1 and not self.verbose:
            line(f"rmqtx: {severity}: {group[0].code}: {count(len(group) - 1, 'more place')} (--verbose shows all)")
