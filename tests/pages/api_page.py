"""docs/api_reference.md: the names of `rmqtx` and `rmqtx.spark` with signatures and docstrings."""

from __future__ import annotations

import enum
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import rmqtx
import rmqtx.spark

_HEAD = """# Names of the library

Written by `make man` from the docstrings; do not edit. Examples, and what stays:
[api.md](api.md) and [spark_api.md](spark_api.md).
"""
#: Lines of a docstring that begin a paragraph: `Raises:`, `yes`: ...
_PART = re.compile(r"\n+(?=[A-Z][a-z]+: |`\w+`: )")


class _Text(str):
    """An annotation as it stands in the source: signatures print its `repr`."""

    __slots__ = ()

    __repr__ = str.__str__


def page() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *_module(rmqtx, "rmqtx"), *_module(rmqtx.spark, "rmqtx.spark")]).rstrip() + "\n"


def _module(module: ModuleType, title: str) -> Iterator[str]:
    """Yield functions, classes and errors of a module."""
    found = {name: getattr(module, name) for name in sorted(module.__all__, key=str.lower) if name[0] != "_"}
    errors = {name: one for name, one in found.items() if inspect.isclass(one) and issubclass(one, rmqtx.RmqtxError)}
    yield f"## {title}\n"
    for name, one in found.items():
        if inspect.isfunction(one):
            yield from _function(f"{title}.{name}", one, "###")
    for name, one in found.items():
        if inspect.isclass(one) and name not in errors:
            yield from _class(f"{title}.{name}", one)
    if errors:
        yield f"### Errors of {title}\n"
        yield "| error | below | status | when |\n|---|---|---|---|"
        for name, one in errors.items():
            yield f"| `{name}` | `{one.__mro__[1].__name__}` | {one.status} | {' '.join(_doc(one).split())} |"
        yield ""


def _class(name: str, kind: type[Any]) -> Iterator[str]:
    yield f"### {name}\n"
    yield f"{_doc(kind)}\n"
    if issubclass(kind, enum.Enum):
        yield ", ".join(f"`{one.name}`" for one in kind) + "\n"
    elif is_dataclass(kind):
        yield "| field | type |\n|---|---|"
        for one in fields(kind):
            yield f"| `{one.name}` | `{str(one.type).replace('|', chr(92) + '|')}` |"
        yield ""
    for of in reversed(kind.__mro__[:-1]):
        if not of.__module__.startswith("rmqtx") or (of is not kind and of.__name__ in rmqtx.__all__):
            continue  # inherited members stand with their class
        for member, value in vars(of).items():
            if member.startswith("_") or _doc(value).startswith("See `rmqtx."):
                continue
            if isinstance(value, property) and value.fget is not None:
                returned = inspect.signature(value.fget).return_annotation
                yield f"#### .{member}: `{returned}`\n"
                yield f"{_doc(value)}\n"
            elif callable(inspect.unwrap(getattr(value, "__func__", value))) and not isinstance(value, type):
                yield from _function(f".{member}", getattr(value, "__func__", value), "####")


def _function(name: str, function: Any, level: str) -> Iterator[str]:
    found = inspect.signature(function)
    given = [
        one.replace(annotation=one.empty if one.annotation is one.empty else _Text(one.annotation))
        for one in found.parameters.values() if one.name not in ("self", "cls")
    ]
    yield f"{level} {name}\n"
    signature = found.replace(parameters=given, return_annotation=_Text(found.return_annotation))
    yield f"```python\n{name}{signature}\n```\n"
    yield f"{_doc(function)}\n"


def _doc(of: object) -> str:
    """Return a docstring as Markdown."""
    return _PART.sub("\n\n", inspect.getdoc(of) or "")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
