"""The commands by name. Their declarations are imported for help and completion, what runs them when they run.

Building all of them takes longer than importing Typer, and a command line needs one.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import typer.main

from rmqtx.readers.model.own_process import loaded
from rmqtx_cli.commands import Command, epilog
from rmqtx_cli.options.command_tree import CommandTree
from rmqtx_cli.options.grouped_options import typer_function
from rmqtx_cli.words.command_names import LINES, SECTIONS

#: Section of the help → module of `rmqtx_cli.commands.declared`.
_DECLARED = {
    "Look": "look", "Verify and repair": "repair", "Settle": "settle", "Watch": "watch", "Data": "data",
    "Installation": "installation",
}  # fmt: skip
#: Groups: commands of commands. Group → module of its declarations.
GROUPS = {"decode": "decode", "cursor": "repair", "case": "case"}


def declared(name: str, group: str = "") -> type[Command]:
    """Return the declaration of a command, or of one in a group. Raises: KeyError for an unknown name."""
    section = next((title for title, names in SECTIONS.items() if name in names), "")
    module = GROUPS[group] if group else _DECLARED[section]
    return next(one for one in _commands_of(module) if name == one.NAME)


def in_group(group: str) -> tuple[type[Command], ...]:
    """Return the declarations of the commands of a group, in the order of its help."""
    commands: tuple[type[Command], ...] = _module(GROUPS[group]).IN_GROUP
    return commands


def run_by_its_module(options: Command) -> int:
    """Run a command; import the module that does."""
    module = importlib.import_module(f"rmqtx_cli.commands.{options.MODULE}")
    loaded()
    status: int = getattr(module, options.FUNCTION)(options)
    return status


def _module(name: str) -> Any:
    return importlib.import_module(f"rmqtx_cli.commands.declared.{name}")


def _commands_of(module: str) -> tuple[type[Command], ...]:
    commands: tuple[type[Command], ...] = _module(module).COMMANDS
    return commands


@functools.cache
def _built(name: str) -> Any:
    tree = CommandTree(add_completion=False)
    if name in GROUPS:
        group = CommandTree(help=_module(GROUPS[name]).GROUP_HELP)
        for one in in_group(name):
            _add(group, one, one.NAME, one.SHORT)
        tree.add_typer(group, name=name, short_help=LINES[name])
        return typer.main.get_group(tree).commands[name]
    _add(tree, declared(name), name, LINES[name])
    return typer.main.get_command(tree)


def _add(tree: CommandTree, command: type[Command], name: str, line: str) -> None:
    function = typer_function(command, run_by_its_module)
    tree.command(name, command.OWN_STORE, short_help=line, epilog=epilog(command.EXAMPLES))(function)


class CommandsByName(Mapping[str, Any]):
    """The commands of `rmqtx` as Typer expects them in a group, in the order of the help page."""

    def __getitem__(self, name: str) -> Any:
        """Return the command, its declaration imported and built. Raises: KeyError for an unknown name."""
        if name not in LINES:
            raise KeyError(name)
        return _built(name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names; nothing is imported."""
        return iter(LINES)

    def __len__(self) -> int:
        """Return the number of commands."""
        return len(LINES)

    def __contains__(self, name: object) -> bool:
        """Whether a command has this name; nothing is imported."""
        return name in LINES
