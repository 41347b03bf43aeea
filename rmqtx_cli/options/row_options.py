"""The options of every command that prints rows: `--csv-safe`, `--timestamps`, `--wide`, and of a listing `--sort`.

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

from rmqtx_cli.options import completion

#: Whether cells that a spreadsheet would run are made text in this run.
IS_SAFE: ContextVar[bool] = ContextVar("csv_safe", default=False)
#: Whether a table on a terminal has all its columns, each in full.
IS_WIDE: ContextVar[bool] = ContextVar("wide", default=False)
#: Whether points in time are written as timestamps alone, without epoch milliseconds.
HAS_TIMESTAMPS: ContextVar[bool] = ContextVar("timestamps", default=False)
#: What the rows of a listing are sorted by, as it was typed; None where their own order stays.
SORT: ContextVar[str | None] = ContextVar("sort", default=None)

_AFTER = "output_format"
#: What only commands have whose rows are a listing: the others print what they did, in the order in which they did it.
_OF_A_LISTING = "where"
_OPTIONS: tuple[tuple[str, ContextVar[Any], Any], ...] = (
    ("sort", SORT, Annotated[
        str | None,
        typer.Option(
            "--sort", metavar="NAME,NAME", autocompletion=completion.sort_fields,
            help="Sort by these columns, as --fields or the table's head names them: ages, counts and sizes the "
            "largest first, all else the smallest; -NAME the other way round.",
        ),
    ]),
    ("wide", IS_WIDE, Annotated[
        bool,
        typer.Option(
            "--wide", help="On a terminal too all columns, uncut; piped or in a file a table always has them.",
        ),
    ]),
    ("csv_safe", IS_SAFE, Annotated[
        bool,
        typer.Option("--csv-safe", help="In CSV put ' before text that a spreadsheet would run as a formula."),
    ]),
    ("timestamps", HAS_TIMESTAMPS, Annotated[
        bool,
        typer.Option(
            "--timestamps", help="Points in time as TIMESTAMP columns, in CSV and JSON as ISO 8601, instead of epoch "
            "milliseconds; their names lose _ms."
        ),
    ]),
)  # fmt: skip


def with_row_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with these options, if it is one that prints rows; else the command."""
    signature = inspect.signature(command, eval_str=True)
    if _AFTER not in signature.parameters:
        return command
    options = [one for one in _OPTIONS if one[1] is not SORT or _OF_A_LISTING in signature.parameters]
    parameters = list(signature.parameters.values())
    place = next(number for number, one in enumerate(parameters) if one.name == _AFTER)
    kind = parameters[place].kind
    for name, variable, annotation in reversed(options):
        default = False if variable is not SORT else None
        parameters.insert(place + 1, inspect.Parameter(name, kind, default=default, annotation=annotation))

    @functools.wraps(command)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        tokens = [(variable, variable.set(named.pop(name, None) or variable.get())) for name, variable, _ in options]
        try:
            return command(*arguments, **named)
        finally:
            for variable, token in tokens:
                variable.reset(token)

    wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {one.name: one.annotation for one in parameters}
    return wrapped
