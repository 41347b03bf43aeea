"""Names of the library that go: for one minor release they warn, at run time and in type checkers (PEP 702)."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["deprecated"]

if TYPE_CHECKING:
    from typing_extensions import deprecated
elif sys.version_info >= (3, 13):
    from warnings import deprecated
else:
    from warnings import warn

    _Call = TypeVar("_Call", bound=Callable[..., Any])

    def deprecated(message: str) -> Callable[[_Call], _Call]:
        """Return a decorator for a function or method that goes; the message names its replacement."""

        def decorate(call: _Call) -> _Call:
            @functools.wraps(call)
            def warning(*given: Any, **named: Any) -> Any:
                warn(message, DeprecationWarning, stacklevel=2)
                return call(*given, **named)

            warning.__deprecated__ = message
            return warning

        return decorate
