"""The terminal of the live screen: keys without Return, the alternate screen, and everything as it was afterwards."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rich.console import Console, RenderableType

from rmqtx_cli.watching.keys import Key, keys

_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_READ_BYTES = 1024


class Terminal:
    """A terminal while the screen is shown. `is_ended`: a signal asked for the end."""

    def __init__(self, console: Console, descriptor: int, wake: int) -> None:
        self.console = console
        self.is_ended = False
        self._descriptor = descriptor
        self._wake = wake
        self._shown = ""

    def show(self, screen: RenderableType) -> None:
        """Write a screen, if it differs from what is shown."""
        with self.console.capture() as capture:
            self.console.print(screen, end="")
        text = capture.get().rstrip("\n")
        if text != self._shown:
            self._shown = text
            sys.stdout.write("\x1b[H" + text.replace("\n", "\x1b[K\n") + "\x1b[K\x1b[J")
            sys.stdout.flush()

    def redraw(self) -> None:
        """Forget what is shown, as after a change of size."""
        self._shown = ""

    def wait(self, seconds: float) -> list[Key | str]:
        """Wait for keys, a signal or the time; return the keys."""
        ready, _, _ = select.select([self._descriptor, self._wake], [], [], max(0.0, seconds))
        if self._wake in ready:
            os.read(self._wake, _READ_BYTES)
        if self._descriptor not in ready:
            return []
        data = os.read(self._descriptor, _READ_BYTES)
        if not data:
            self.is_ended = True  # the terminal is gone
        return list(keys(data))


@contextmanager
def full_screen(wake_reader: int, wake_writer: int) -> Iterator[Terminal]:
    """Show a full screen inside the block; the terminal is as before after it, however it ends but by SIGKILL.

    While the process is stopped (Ctrl-Z), the terminal is as before too.
    """
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    terminal = Terminal(Console(highlight=False, markup=False, emoji=False), descriptor, wake_reader)

    def end(_number: int, _frame: FrameType | None) -> None:
        terminal.is_ended = True

    def resized(_number: int, _frame: FrameType | None) -> None:
        terminal.redraw()

    def stop(_number: int, _frame: FrameType | None) -> None:
        _leave(descriptor, before)
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)  # goes on here after SIGCONT
        signal.signal(signal.SIGTSTP, stop)
        _enter(descriptor)
        terminal.redraw()

    previous = {number: signal.signal(number, end) for number in _ENDING}
    previous[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, resized)
    previous[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, stop)
    woken = signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
    try:
        _enter(descriptor)
        yield terminal
    finally:
        signal.set_wakeup_fd(woken)
        for number, handler in previous.items():
            signal.signal(number, handler)
        _leave(descriptor, before)


def _enter(descriptor: int) -> None:
    tty.setcbreak(descriptor)
    _write("\x1b[?1049h\x1b[?25l\x1b[2J")


def _write(text: str) -> None:
    """Write to the terminal at once: a signal may interrupt a write of `sys.stdout`, which cannot begin another."""
    os.write(sys.stdout.fileno(), text.encode())


def _leave(descriptor: int, before: list[Any]) -> None:
    try:
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)
        _write("\x1b[?25h\x1b[?1049l")
    except (OSError, termios.error):
        pass  # the terminal is gone
