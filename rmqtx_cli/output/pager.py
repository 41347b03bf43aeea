"""A pager for what is read rather than piped, as git has one: on a terminal only, and never in the way."""

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
from typing import IO, Annotated

import typer

from rmqtx_cli.output.streams import OnTerminal, is_stdout, open_stream

NoPagerOption = Annotated[
    bool,
    typer.Option(
        "--no-pager",
        help="Print at once. Without it a page on a terminal goes through $RMQTX_PAGER, $PAGER or less; none if that "
        "is empty or cat.",
    ),
]
#: As git sets it, where the user has not: end at once if all fits, pass colours on, leave the screen as it is.
_LESS = {"LESS": "FRX", "LV": "-c"}
_NOT_FOUND = 127


@contextmanager
def paged(output: Path | None, *, is_wanted: bool) -> Iterator[IO[bytes]]:
    """A stream whose bytes a pager shows when the block ends, on a terminal; else stdout, or the file.

    Raises: UnreadableFile if the file cannot be written.
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
    """What will appear on the terminal."""


def _command() -> str | None:
    """What the user wants for a pager; None where that is none."""
    for name in ("RMQTX_PAGER", "PAGER"):
        if name in os.environ:
            command = os.environ[name].strip()
            return None if command in ("", "cat") else command
    return "less" if shutil.which("less") else None


def _show(command: str, text: bytes) -> bool:
    """Have a pager show it, until its user has seen enough; gives whether there is such a pager."""
    environment = _LESS | dict(os.environ)
    with subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, env=environment) as process:
        # Ctrl-C is the pager's: less goes back to its prompt. It ends what it shows, not who is shown.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process.communicate(text)  # a pipe that its user closed, having seen enough, is no error
        finally:
            signal.signal(signal.SIGINT, before)
    return process.returncode != _NOT_FOUND
