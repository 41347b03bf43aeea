"""The commands: declared in `declared/`, run by the modules of the other folders.

A running module has `run(options)`: one call into the packages below, and what is printed. It is imported when its
command runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from rmqtx_cli.options.command_tree import OwnStore

#: Columns of an example in a help page, which has 80; two are the page's indent.
_COLUMNS = 76
_UNIT = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")


@dataclass(frozen=True, slots=True)
class Example:
    """A command line and its purpose; help pages and manual pages print it, a test parses it."""

    line: str
    says: str


class Command:
    """A command: the fields of a subclass, which is a dataclass, are its options, and its docstring is its help."""

    __slots__ = ()

    NAME: ClassVar[str]
    #: Line in the list of commands; those of `words/command_names.py` have theirs there.
    SHORT: ClassVar[str] = ""
    EXAMPLES: ClassVar[tuple[Example, ...]]
    #: Module of `rmqtx_cli.commands` and function in it that runs the command.
    MODULE: ClassVar[str]
    FUNCTION: ClassVar[str] = "run"
    OWN_STORE: ClassVar[OwnStore] = OwnStore.AS_ARGUMENT


def epilog(examples: tuple[Example, ...]) -> str:
    """Return the examples as a block of a help page that Typer does not wrap."""
    lines = [line for example in examples for line in (f"  # {example.says}", *wrapped_command(example.line))]
    return "\n".join(["\b", "Examples:", *lines])


def wrapped_command(line: str, columns: int = _COLUMNS) -> list[str]:
    """Return a command line in lines of at most `columns`, continued by backslashes before an option."""
    words = _UNIT.findall(line)
    units: list[str] = []
    for word in words:
        is_value = not word.startswith(("-", "|")) and units and units[-1].startswith("-") and " " not in units[-1]
        if is_value:
            units[-1] += f" {word}"
        else:
            units.append(word)
    lines, room = ["  "], columns - 2
    for unit in units:
        if lines[-1].strip() and len(lines[-1]) + 1 + len(unit) > room:
            lines[-1] += " \\"
            lines.append("     ")
        lines[-1] += f" {unit}" if lines[-1].strip() or len(lines) > 1 else unit
    return lines
