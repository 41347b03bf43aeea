"""The commands by name, and the functions that Typer calls for them: their options are the fields of dataclasses.

Declarations are imported for help and completion, what runs a command when it runs. Building all of them takes longer
than importing Typer, and a command line needs one.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer
import typer.main

from rmqtx.readers.model.own_process import loaded
from rmqtx_cli.commands import Command, Example
from rmqtx_cli.options.command_tree import CommandTree
from rmqtx_cli.words import log_json
from rmqtx_cli.words.command_names import LINES, SECTIONS

#: Section of the help → modules of `rmqtx_cli.commands.declared`, the most used first.
_DECLARED = {
    "Look": ("look", "survey"), "Verify and repair": ("repair",), "Settle": ("settle",), "Watch": ("watch",),
    "Data": ("data",), "Installation": ("installation",),
}
#: Groups: commands of commands. Group → module of its declarations.
GROUPS = {"decode": "decode", "cursor": "repair", "case": "case"}
#: Columns of an example in a help page, which has 80; two are the page's indent.
_COLUMNS = 76
_UNIT = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")
#: An option of every command; `main` reads it, before the command is known.
_LogJson = Annotated[bool, typer.Option(log_json.OPTION, help=log_json.HELP)]


def declared(name: str, group: str = "") -> type[Command]:
    """Return the declaration of a command, or of one in a group. Raises: KeyError for an unknown name."""
    section = next((title for title, names in SECTIONS.items() if name in names), "")
    modules = (GROUPS[group],) if group else _DECLARED[section]
    return next(one for module in modules for one in _commands_of(module) if name == one.NAME)


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
    tree.command(name, command.OWN_STORE, short_help=line, epilog=_epilog(command.EXAMPLES))(function)


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


def typer_function(kind: type[Any], call: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a function with an argument for each field of a dataclass, which makes the dataclass and calls `call`.

    A field gives the argument's name, its annotation, which is the option, and its default. A field that is a dataclass
    itself is replaced by its own fields; if the outer one has a field of the same name, only the outer one is an
    option, and the inner one keeps its default. The help is the docstring of the dataclass.
    """
    parameters: list[inspect.Parameter] = []
    group = _group(kind, (), parameters)
    parameters.append(
        inspect.Parameter("log_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_LogJson)
    )

    def function(**named: Any) -> Any:
        return call(group.made(named))

    function.__doc__ = kind.__doc__
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function


@dataclass(frozen=True, slots=True)
class _Group:
    """A dataclass: the names of its fields that are options, and its fields that are dataclasses."""

    kind: Callable[..., Any]
    options: tuple[str, ...]
    groups: Mapping[str, _Group]

    def made(self, named: Mapping[str, Any]) -> Any:
        values = {name: named[name] for name in self.options if name in named}
        return self.kind(**values, **{name: group.made(named) for name, group in self.groups.items()})


def _group(kind: Any, taken: Collection[str], parameters: list[inspect.Parameter]) -> _Group:
    """Return how a dataclass is built from options; add its options to the parameters."""
    annotations = get_type_hints(kind, include_extras=True)
    inner = {one.name for one in fields(kind) if is_dataclass(annotations[one.name])}
    own = {one.name for one in fields(kind)} - inner
    options, groups = [], {}
    for one in fields(kind):
        annotation = annotations[one.name]
        if one.name in inner:
            groups[one.name] = _group(annotation, {*taken, *own}, parameters)
        elif one.name not in taken:
            options.append(one.name)
            default = inspect.Parameter.empty if one.default is MISSING else one.default
            parameters.append(
                inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            )
    return _Group(kind, tuple(options), groups)


def _epilog(examples: tuple[Example, ...]) -> str:
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
