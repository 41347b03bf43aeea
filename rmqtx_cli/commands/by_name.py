"""The commands by name. The module of a command is imported when the command runs or prints its help.

Importing and building all of them takes longer than importing Typer, and a command line needs one.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import typer.main

from rmqtx_cli.commands import epilog
from rmqtx_cli.options.command_tree import CommandTree
from rmqtx_cli.words.command_names import LINES

#: Folder of `rmqtx_cli.commands` → commands in it; `decode` is a folder of its own.
_FOLDERS: dict[str, tuple[str, ...]] = {
    "reading": (
        "producers", "stores", "pending", "show", "audit", "diagnose", "report", "search", "export", "diff",
        "reconcile", "check", "exporter", "watch", "simulate", "verify", "explain",
    ),
    "acting": (
        "commit", "rollback", "discard", "resume", "close", "redeliver", "plan", "triage", "apply", "undo", "hold",
        "drain", "release", "holds", "receipts", "answer", "probe",
    ),
    "repairing": ("salvage", "rebuild", "bundle", "cursor"),
    "installing": ("doctor", "spark-archive"),
}  # fmt: skip
_MODULES = {"decode": "decode"} | {
    name: f"{folder}.{name.replace('-', '_')}" for folder, names in _FOLDERS.items() for name in names
}
#: Commands that print one line for a monitoring system, not rows.
WITHOUT_ROWS = ("check", "probe")


def command_module(name: str) -> ModuleType:
    """Return the module of a command or of a group of commands. Raises: KeyError for an unknown name."""
    return importlib.import_module(f"rmqtx_cli.commands.{_MODULES[name]}")


@functools.cache
def _built(name: str) -> Any:
    module = command_module(name)
    tree = CommandTree(add_completion=False)
    if hasattr(module, "app"):
        tree.add_typer(module.app, name=name, short_help=LINES[name])
        return typer.main.get_group(tree).commands[name]
    tree.command(name, short_help=LINES[name], epilog=epilog(module.EXAMPLES))(module.command)
    return typer.main.get_command(tree)


class CommandsByName(Mapping[str, Any]):
    """The commands of `rmqtx` as Typer expects them in a group, in the order of the help page."""

    def __getitem__(self, name: str) -> Any:
        """Return the command, imported and built. Raises: KeyError for an unknown name."""
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
