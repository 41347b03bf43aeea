"""A pager for pages on a terminal, as git has one."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rmqtx_cli.output.streams import OnTerminal, is_stdout, open_stream

#: As git sets it, unless the user has: end at once if all fits, pass colours on, do not clear the screen.
_LESS = {"LESS": "FRX", "LV": "-c"}
_NOT_FOUND = 127


@contextmanager
def paged(output: Path | None, *, is_wanted: bool) -> Iterator[IO[bytes]]:
    """A stream whose bytes a pager shows when the block ends, on a terminal; else stdout, or the file.

    Raises: UnwritableFile if the file cannot be written.
    """
    with open_stream(output) as stream:
        command = _command() if is_wanted and is_stdout(output) and sys.stdout.isatty() else None
        if command is None:
            yield stream
            return
        page = _PagedBytes()
        yield page
        if not _show(command, page.getvalue()):
            stream.write(page.getvalue())


class _PagedBytes(io.BytesIO, OnTerminal):
    """Bytes for the pager on the terminal."""


def _command() -> str | None:
    """The command of the pager; None for no pager."""
    for name in ("RMQTX_PAGER", "PAGER"):
        if name in os.environ:
            command = os.environ[name].strip()
            return None if command in ("", "cat") else command
    return "less" if shutil.which("less") else None


def _show(command: str, text: bytes) -> bool:
    """Show the text in a pager until the user leaves it; returns whether the pager could be started."""
    environment = _LESS | dict(os.environ)
    with subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, env=environment) as process:
        # Ctrl-C is for the pager: less returns to its prompt, and rmqtx must not end before it.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process.communicate(text)  # a pipe that the user closed early is not an error
        finally:
            signal.signal(signal.SIGINT, before)
    return process.returncode != _NOT_FOUND
