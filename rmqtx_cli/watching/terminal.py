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
from enum import Enum, auto
from types import FrameType
from typing import Any

from rich.console import Console, RenderableType

_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_READ_BYTES = 1024


class Key(Enum):
    """What a key does. A printable character is returned as text, for the filter."""

    UP = auto()
    DOWN = auto()
    PAGE_UP = auto()
    PAGE_DOWN = auto()
    ENTER = auto()
    BACK = auto()
    ERASE = auto()


_SEQUENCES = {
    b"\x1b[A": Key.UP, b"\x1bOA": Key.UP, b"\x1b[B": Key.DOWN, b"\x1bOB": Key.DOWN, b"\x1b[5~": Key.PAGE_UP,
    b"\x1b[6~": Key.PAGE_DOWN, b"\r": Key.ENTER, b"\n": Key.ENTER, b"\x7f": Key.ERASE, b"\x08": Key.ERASE,
}


def keys(data: bytes) -> Iterator[Key | str]:
    """Return the keys in what was read from a terminal. An escape alone is BACK; unknown sequences are ignored."""
    place = 0
    while place < len(data):
        known = next((text for text in _SEQUENCES if data.startswith(text, place)), None)
        if known is not None:
            yield _SEQUENCES[known]
            place += len(known)
        elif data[place] == 0x1B:
            end = _end_of_sequence(data, place)
            if end == place + 1:
                yield Key.BACK
            place = end
        else:
            size = _utf8_size(data[place])
            text = data[place : place + size].decode("utf-8", "ignore")
            if text.isprintable() and text:
                yield text
            place += size


def _end_of_sequence(data: bytes, place: int) -> int:
    """Where an escape sequence ends: after its first letter or tilde."""
    if data[place + 1 : place + 2] not in (b"[", b"O"):
        return place + 1
    end = place + 2
    while end < len(data) and not 0x40 <= data[end] <= 0x7E:
        end += 1
    return end + 1


def _utf8_size(first: int) -> int:
    return 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4


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
