"""`--csv-safe`: CSV that a spreadsheet cannot take for formulas, for every command that can write CSV.

CSV carries values as they are, for programs. A spreadsheet runs a cell that begins with `=`, `+`, `-` or `@`; a topic
or a business key is whatever a producer wrote.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Annotated, Any

import typer

#: Whether cells that a spreadsheet would run are made text in this run.
IS_SAFE: ContextVar[bool] = ContextVar("csv_safe", default=False)
_OPTION = Annotated[
    bool,
    typer.Option(
        "--csv-safe", help="In CSV put ' before text that a spreadsheet would run as a formula."
    ),
]
_AFTER = "output_format"


def with_csv_safe(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with the option --csv-safe, if it is one whose rows can be CSV; else the command."""
    signature = inspect.signature(command, eval_str=True)
    if _AFTER not in signature.parameters:
        return command
    parameters = list(signature.parameters.values())
    place = next(number for number, one in enumerate(parameters) if one.name == _AFTER)
    kind = parameters[place].kind
    parameters.insert(place + 1, inspect.Parameter("csv_safe", kind, default=False, annotation=_OPTION))

    @functools.wraps(command)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        token = IS_SAFE.set(bool(named.pop("csv_safe", False)))
        try:
            return command(*arguments, **named)
        finally:
            IS_SAFE.reset(token)

    wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {one.name: one.annotation for one in parameters}
    return wrapped
