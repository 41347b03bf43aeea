"""A signal as a request to end, for commands that must write a receipt after each request."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from rmqtx.readers.jobs.signals import handled

if TYPE_CHECKING:
    from rmqtx.repairs.acts.orders import Course


@contextmanager
def asked_to_end() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C, SIGTERM or SIGHUP sets; a second one raises KeyboardInterrupt."""
    asked = threading.Event()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    with handled(interrupt):
        yield asked


@contextmanager
def stopping(course: Course) -> Iterator[None]:
    """Within the block a signal to end stops acts after the current one, if the first request may have been sent.

    Before that, and the second time, it raises KeyboardInterrupt.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if course.is_stopped or not course.total_count:
            raise KeyboardInterrupt
        course.is_stopped = True

    with handled(interrupt):
        yield
