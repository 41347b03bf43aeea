"""Options as the fields of dataclasses: the function that Typer calls for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

from rmqtx_cli.words import log_json

#: An option of every command; `main` reads it, before the command is known.
_LogJson = Annotated[bool, typer.Option(log_json.OPTION, help=log_json.HELP)]


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
