"""Converts the values of a command line without pydantic, which Typer loads to convert any value: 0.1 s.

Only values that Typer certainly accepts are converted here. All others go to Typer, whose messages describe what is
wrong with them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

_INTEGER, _DECIMAL = re.compile(r"[0-9]{1,18}"), re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")


class _Unusual(Exception):
    """Only Typer can convert this value, or refuse it."""


def use_plain_values(parameters: Iterable[Any]) -> None:
    """Make parameters of a command convert their values here first."""
    for parameter in parameters:
        if hasattr(parameter, "get_runtime_param"):
            parameter.get_runtime_param = PlainValue(parameter).itself


class PlainValue:
    """The conversion of one parameter's values, as Typer calls it."""

    def __init__(self, parameter: Any) -> None:
        self._parameter = parameter
        self._info = parameter.type_descriptor.parameter_info
        self._annotation = parameter.type_descriptor.annotation

    def itself(self) -> PlainValue:
        """Return this conversion: Typer calls `get_runtime_param` of a parameter for each value."""
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return a value as its parameter's type; `param` and `ctx` are for Typer.

        Raises: what Typer raises for a wrong value.
        """
        is_many = param.multiple or param.nargs == -1
        if value is None:
            return () if is_many else None
        try:
            return self._many(value) if get_origin(self._annotation) is list else self._one(self._annotation, value)
        except Exception:  # Typer repeats the conversion and raises its own error
            return type(self._parameter).get_runtime_param(self._parameter).coerce(value, param=param, ctx=ctx)

    def _many(self, value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise _Unusual
        return [self._one(get_args(self._annotation)[0], one) for one in value]

    def _one(self, kind: Any, value: Any) -> Any:
        if not isinstance(value, str):
            if isinstance(value, Enum) and isinstance(value, kind):  # a default
                return value
            raise _Unusual
        parser: Callable[[str], Any] | None = self._info.parser
        if parser is not None:
            return parser(value)
        if kind is str:
            return value
        if kind is Path:
            return self._path(value)
        if kind in (int, float):
            return self._number(kind, value)
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {str(choice.value): choice for choice in kind}[value]
        raise _Unusual

    def _path(self, value: str) -> Path:
        info = self._info
        is_plain = info.file_okay and info.dir_okay and not (info.exists or info.writable or info.resolve_path)
        if not value or "\0" in value or not is_plain or info.allow_dash or info.path_type is not None:
            raise _Unusual
        if info.readable and Path(value).exists() and not os.access(value, os.R_OK):
            raise _Unusual
        return Path(value)

    def _number(self, kind: type[int] | type[float], value: str) -> int | float:
        if not (_INTEGER if kind is int else _DECIMAL).fullmatch(value) or self._info.clamp:
            raise _Unusual
        number = kind(value)
        if (self._info.min is not None and number < self._info.min) or (
            self._info.max is not None and number > self._info.max
        ):
            raise _Unusual
        return number
