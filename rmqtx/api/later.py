"""Modules that are loaded when a name of theirs is used, for what few callers need."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Later:
    """A module that is loaded when its first name is used; for type checkers it is imported beside."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)
