"""The loop of the live screen: readings in a thread, keys and drawing in another, so that keys answer at once."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqtx.readers.model import clock
from rmqtx.readers.model.errors import RmqtxError
from rmqtx_cli.output.streams import require_reader
from rmqtx_cli.watching.drawing import View, change_text, screen
from rmqtx_cli.watching.model import Change, Model, Snapshot, take, timeline
from rmqtx_cli.watching.terminal import Key, Terminal, full_screen

if TYPE_CHECKING:
    from rmqtx_cli.sources.source import SourceOpener

#: The clock and the ages on the screen move this often.
_TICK_SECONDS = 1.0
_PAGE_ROWS = 10


@dataclass(frozen=True, slots=True)
class _Failure:
    message: str


class Readings:
    """Reads in a thread, every `interval_seconds`; `wake` is called after each result."""

    def __init__(
        self, opener: SourceOpener, model: Model, interval_seconds: float, wake: Callable[[], None]
    ) -> None:
        self.results: queue.SimpleQueue[Snapshot | _Failure] = queue.SimpleQueue()
        self._opener = opener
        self._model = model
        self._interval_seconds = interval_seconds
        self._wake = wake
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="readings", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no other reading. A reading that runs is left behind: it ends with the process, and writes nothing."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            begun = time.monotonic()
            try:
                self.results.put(take(self._opener, self._model.awaited))
            except Exception as error:
                self.results.put(_Failure(_message(error)))
            self._wake()
            self._stopped.wait(max(0.0, self._interval_seconds - (time.monotonic() - begun)))

    def into_model(self) -> list[Change]:
        """Add what was read to the model; return the changes."""
        found: list[Change] = []
        while not self.results.empty():
            result = self.results.get()
            if isinstance(result, _Failure):
                self._model.failure = result.message
            else:
                found += self._model.add(result)
        return found


def _message(error: Exception) -> str:
    """Return what the screen shows of an error, which does not end it."""
    return str(error) if isinstance(error, RmqtxError) else f"a bug: {type(error).__name__}: {error}"


def watch(opener: SourceOpener, title: str, model: Model, interval_seconds: float) -> tuple[str, str] | None:
    """Show the live screen until q, t, a signal, or the end of the terminal.

    Return the group and topic for which t asks for a triage.
    """
    reader, writer = os.pipe()
    for descriptor in (reader, writer):
        os.set_blocking(descriptor, False)
    readings = Readings(opener, model, interval_seconds, lambda: _wake(writer))
    try:
        with full_screen(reader, writer) as terminal:
            readings.start()
            return _Loop(opener, title, model, readings, terminal).run()
    finally:
        readings.stop()


def _wake(writer: int) -> None:
    with suppress(BlockingIOError):  # it is awake
        os.write(writer, b"\0")


class _Loop:
    def __init__(
        self, opener: SourceOpener, title: str, model: Model, readings: Readings, terminal: Terminal
    ) -> None:
        self._opener = opener
        self._title = title
        self._model = model
        self._readings = readings
        self._terminal = terminal
        self._view = View()

    def run(self) -> tuple[str, str] | None:
        while not self._terminal.is_ended:
            self._readings.into_model()
            self._draw()
            for key in self._terminal.wait(_TICK_SECONDS):
                if self._view.typing is None and key in ("q", "Q"):
                    return None
                if self._view.typing is None and key == "t" and (chosen := self._chosen()) is not None:
                    return chosen
                self._press(key)
        return None

    def _chosen(self) -> tuple[str, str] | None:
        """The selected or opened group, with its topic."""
        groups = self._model.groups()
        if self._view.group is not None or not groups:
            return self._view.group
        row = groups[min(self._view.selected, len(groups) - 1)]
        return row.group, row.topic

    def _draw(self) -> None:
        columns, rows = self._terminal.console.size
        now_ms = clock.now_ms()
        self._terminal.show(screen(self._model, self._view, columns, rows, self._title, now_ms))

    def _press(self, key: Key | str) -> None:
        view = self._view
        view.notice = ""
        if view.typing is not None:
            self._type(key)
        elif key in (Key.UP, "k"):
            self._move(-1)
        elif key in (Key.DOWN, "j"):
            self._move(1)
        elif key is Key.PAGE_UP:
            self._move(-_PAGE_ROWS)
        elif key in (Key.PAGE_DOWN, " "):
            self._move(_PAGE_ROWS)
        elif key == "s" and view.identity is None:
            self._model.next_sort()
        elif key == "/" and view.identity is None:
            view.typing = self._model.filter
        elif key is Key.ENTER:
            self._open()
        elif key is Key.BACK:
            self._back()

    def _type(self, key: Key | str) -> None:
        view = self._view
        if key is Key.ENTER:
            self._model.filter, view.typing, view.selected = view.typing or "", None, 0
        elif key is Key.BACK:
            view.typing = None
        elif key is Key.ERASE:
            view.typing = (view.typing or "")[:-1]
        elif isinstance(key, str):
            view.typing = (view.typing or "") + key

    def _move(self, rows: int) -> None:
        if self._view.identity is None:
            self._view.selected = max(0, self._view.selected + rows)
        else:
            self._view.top = max(0, self._view.top + rows)  # the drawing keeps it below the end

    def _open(self) -> None:
        view = self._view
        if view.identity is not None:
            return
        if view.group is None:
            groups = self._model.groups()
            if groups:
                row = groups[min(view.selected, len(groups) - 1)]
                self._view = View((row.group, row.topic), before=[view.selected])
            return
        found = self._model.transactions(*view.group)
        if not found:
            return
        identity = found[min(view.selected, len(found) - 1)].transaction_id
        view.notice = f"reading {identity} ..."
        self._draw()
        try:
            lines = timeline(self._opener, identity)
        except Exception as error:
            view.notice = _message(error)
            return
        self._view = View(view.group, identity, lines, before=[*view.before, view.selected])

    def _back(self) -> None:
        view = self._view
        if view.identity is not None:
            self._view = View(view.group, selected=view.before[-1], before=view.before[:-1])
        elif view.group is not None:
            self._view = View(selected=view.before[-1])


def print_changes(
    opener: SourceOpener, title: str, model: Model, interval_seconds: float, say: Callable[[str], None],
    ended: threading.Event,
) -> None:
    """Print one line for each change, and one for each new failure, until `ended` is set.

    Raises: BrokenPipeError when stdout no longer has a reader.
    """
    woken = threading.Event()
    readings = Readings(opener, model, interval_seconds, woken.set)
    readings.start()
    is_first, failure = True, ""
    try:
        while not ended.is_set():
            if not woken.wait(0.2):
                require_reader()
                continue
            woken.clear()
            changes = readings.into_model()
            if model.failure != failure:
                failure = model.failure
                say(f"reading failed: {failure}" if failure else "reading succeeds again")
            if is_first and model.last is not None:
                is_first = False
                say(f"watching {title}: {len(model.last.pending)} pending")
            for change in changes:
                say(change_text(change))
    finally:
        readings.stop()
