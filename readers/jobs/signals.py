"""The signals that end a program: as KeyboardInterrupt, so that `finally` runs, delayed, or as another handler does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], None]
#: Signals from a shell, a service manager and a closing terminal.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def handled(handler: Handler) -> Iterator[None]:
    """Let a handler get these signals during the block; an ignored signal stays ignored."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread receives signals
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    for number, former in before.items():
        if former is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, former in before.items():
            if former is not None:  # None: not set by Python
                signal.signal(number, former)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP during the block, as on SIGINT; an ignored signal stays ignored."""
    with handled(signal.default_int_handler):
        yield


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay these signals to the end of the block, where the first of them raises KeyboardInterrupt."""
    came: list[int] = []
    with handled(lambda number, _: came.append(number)):
        yield
    if came:
        raise KeyboardInterrupt
