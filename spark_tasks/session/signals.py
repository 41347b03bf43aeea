"""Signals that end a program, as Python's own interrupt, so that `finally` runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_Handler = Callable[[int, FrameType | None], None]
#: What a shell, a service manager and a closing terminal send.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[None]:
    """In the block SIGTERM and SIGHUP raise KeyboardInterrupt, as SIGINT does; a signal that is ignored stays so."""
    with _handled(signal.default_int_handler):
        yield


@contextmanager
def uninterrupted() -> Iterator[None]:
    """In the block these signals wait for its end; then the first of them is a KeyboardInterrupt."""
    came: list[int] = []
    with _handled(lambda number, _: came.append(number)):
        yield
    if came:
        raise KeyboardInterrupt


@contextmanager
def _handled(handler: _Handler) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only the main thread hears signals
        yield
        return
    before = {number: signal.getsignal(number) for number in _ENDING}
    for number, former in before.items():
        if former is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, former in before.items():
            if former is not None:  # None: set by something that is not Python
                signal.signal(number, former)
