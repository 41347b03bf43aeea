"""The options of every command that prints rows: `--csv-safe`, `--timestamps`, `--wide`, and `--sort` for listings.

CSV contains values unchanged, for programs. A spreadsheet runs a cell that begins with `=`, `+`, `-` or `@`, and a
producer can write anything into a topic or a business key.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Annotated, Any

import typer

from rmqtx_cli.options import completion

#: Whether cells that a spreadsheet would run as a formula are quoted in this run.
IS_SAFE: ContextVar[bool] = ContextVar("csv_safe", default=False)
#: Whether a table on a terminal has all its columns in full width.
IS_WIDE: ContextVar[bool] = ContextVar("wide", default=False)
#: Whether points in time are written as timestamps instead of epoch milliseconds.
HAS_TIMESTAMPS: ContextVar[bool] = ContextVar("timestamps", default=False)
#: Value of --sort as typed; None: the rows keep their order.
SORT: ContextVar[str | None] = ContextVar("sort", default=None)

_AFTER = "output_format"
#: Parameter of commands that list rows; commands that act print their receipts in order and have no --sort.
_OF_A_LISTING = "where"
_OPTIONS: tuple[tuple[str, ContextVar[Any], Any], ...] = (
    ("sort", SORT, Annotated[
        str | None,
        typer.Option(
            "--sort", metavar="NAME,NAME", autocompletion=completion.sort_fields,
            help="Sort by these columns, named as in --fields or in the table's head: ages, counts and sizes in "
            "descending order, others in ascending order; -NAME reverses the order",
        ),
    ]),
    ("wide", IS_WIDE, Annotated[
        bool,
        typer.Option(
            "--wide", help="Print all columns in full width on a terminal, as in a pipe or a file",
        ),
    ]),
    ("csv_safe", IS_SAFE, Annotated[
        bool,
        typer.Option("--csv-safe", help="In CSV, put ' before text that a spreadsheet would run as a formula"),
    ]),
    ("timestamps", HAS_TIMESTAMPS, Annotated[
        bool,
        typer.Option(
            "--timestamps",
            help="Write times as TIMESTAMP columns (ISO 8601 in CSV and JSON) instead of epoch milliseconds; the "
            "column names lose _ms",
        ),
    ]),
)  # fmt: skip


def with_row_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with these options added, if it prints rows; else the command unchanged."""
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
