"""Ctrl-C and SIGTERM as a request to end, for commands that must write a receipt after each request."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqtx.repairs.acts.orders import Course


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or SIGTERM sets; a second one raises KeyboardInterrupt."""
    asked = threading.Event()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    with _handled(interrupt):
        yield asked


@contextmanager
def stopping(course: Course) -> Iterator[None]:
    """Within the block Ctrl-C or SIGTERM stops acts after the current one, if the first request may have been sent.

    Before that, and the second time, it raises KeyboardInterrupt.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if course.is_stopped or not course.total_count:
            raise KeyboardInterrupt
        course.is_stopped = True

    with _handled(interrupt):
        yield


@contextmanager
def _handled(interrupt: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only the main thread gets signals
        yield
        return
    heeded = [one for one in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(one) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
