"""Options that several commands share, and that a command is given together as one argument."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

#: The argument that stays behind all others: the options of live brokers end every help text.
_LAST = "live"


def with_grouped_options(
    command: Callable[..., Any], name: str, options: Mapping[str, Any], gathered: Callable[[dict[str, Any]], Any]
) -> Callable[..., Any]:
    """A command with options after its own, which it is given together as its argument `name`.

    `options`: annotations by the options' names; one that the command has itself stays its own. `gathered`: makes the
    argument of their values.
    """
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != name]
    taken = {one: options[one] for one in options if one not in {parameter.name for parameter in own}}
    added = [
        inspect.Parameter(
            one, inspect.Parameter.KEYWORD_ONLY, default=False if annotation.__origin__ is bool else None,
            annotation=annotation,
        )
        for one, annotation in taken.items()
    ]

    @functools.wraps(command)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        values = {one: named.pop(one, None) for one in taken}
        return command(*arguments, **named, **{name: gathered(values)})

    last = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own if parameter.name == _LAST]
    parameters = [*(parameter for parameter in own if parameter.name != _LAST), *added, *last]
    wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapped
