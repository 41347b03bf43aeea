"""The commands: declared in `declared/`, run by the modules of the other folders.

A running module has `run(options)`: one call into the packages below, and what is printed. It is imported when its
command runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rmqtx_cli.options.command_tree import OwnStore


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
