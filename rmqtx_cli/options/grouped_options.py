"""Groups of options: a dataclass whose fields are options, passed to a command as one argument."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, get_type_hints


def with_option_groups(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with each argument that is a dataclass replaced by the options of its fields.

    A field gives the option's parameter name, its annotation and its default; a field that is a dataclass is replaced
    by its own fields. If the command has its own option with the name of a field, that option is used only by the
    command and the field keeps its default.
    """
    signature = inspect.signature(command, eval_str=True)
    taken = {one.name for one in signature.parameters.values() if not _is_group(one.annotation)}
    groups: dict[str, _Group] = {}
    parameters: list[inspect.Parameter] = []
    for one in signature.parameters.values():
        if _is_group(one.annotation):
            groups[one.name] = _group(one.annotation, taken, parameters)
        else:
            parameters.append(one.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def wrapped(**named: Any) -> Any:
        gathered = {name: group.made(named) for name, group in groups.items()}
        return command(**{one: named[one] for one in taken if one in named}, **gathered)

    wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapped


@dataclass(frozen=True, slots=True)
class _Group:
    """A dataclass: the names of its fields that are options, and its fields that are dataclasses."""

    kind: Callable[..., Any]
    options: tuple[str, ...]
    groups: Mapping[str, _Group]

    def made(self, named: Mapping[str, Any]) -> Any:
        values = {name: named[name] for name in self.options if name in named}
        return self.kind(**values, **{name: group.made(named) for name, group in self.groups.items()})


def _is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and is_dataclass(annotation)


def _group(kind: Any, taken: set[str], parameters: list[inspect.Parameter]) -> _Group:
    """Return how a dataclass is built from options; add its options to the parameters."""
    annotations = get_type_hints(kind, include_extras=True)
    options, groups = [], {}
    for one in fields(kind):
        annotation = annotations[one.name]
        if _is_group(annotation):
            groups[one.name] = _group(annotation, taken, parameters)
        elif one.name not in taken:
            options.append(one.name)
            default = inspect.Parameter.empty if one.default is MISSING else one.default
            parameters.append(
                inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            )
    return _Group(kind, tuple(options), groups)
