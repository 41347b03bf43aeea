"""Values of the command line are converted as Typer converts them, and refused with its messages."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from typer import main as typer_main

from rmqtx_cli.commands.by_name import CommandsByName
from rmqtx_cli.options.command_tree import PlainValue

VALUES = (
    "", "0", "7", "-1", "007", "1.5", "1e3", " 5", "10m", "jsonl", "JSONL", "/", "/nowhere/x", "a\0b", "9" * 30, None,
)


def parameters() -> list[Any]:
    """Each kind of parameter that a command has, once."""
    kinds: dict[str, Any] = {}
    commands = [CommandsByName()[name] for name in CommandsByName()]
    for command in commands:
        for one in [*command.params, *(p for sub in getattr(command, "commands", {}).values() for p in sub.params)]:
            info = one.type_descriptor.parameter_info
            kinds.setdefault(f"{one.type_descriptor.annotation} {info.parser} {info.min} {info.max} {one.nargs}", one)
    return list(kinds.values())


@pytest.mark.parametrize("parameter", parameters(), ids=lambda one: one.name)
def test_values_are_those_of_typer(parameter: Any) -> None:
    is_many = parameter.multiple or parameter.nargs == -1
    context = typer_main.get_command(typer.Typer(callback=lambda: None)).make_context("x", [], resilient_parsing=True)

    def outcome(conversion: Any, value: str | None) -> tuple[str, object]:
        given = [value] if is_many and value is not None else value
        try:
            return "value", conversion.coerce(given, parameter, context)
        except Exception as error:
            return type(error).__name__, str(error)

    typers, ours = type(parameter).get_runtime_param(parameter), PlainValue(parameter)
    assert {value: outcome(ours, value) for value in VALUES} == {value: outcome(typers, value) for value in VALUES}
