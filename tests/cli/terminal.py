"""What a program shows on a terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import termios
import time
from pathlib import Path


def on_terminal(words: list[str], *, with_stderr: bool = True, **environment: str) -> tuple[int, str]:
    """The status, and what is shown; 80 columns unless the environment says otherwise."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        words, stdout=follower, stderr=follower if with_stderr else subprocess.DEVNULL,
        env=os.environ | {"COLUMNS": "80", "PAGER": "cat"} | environment,
    )
    os.close(follower)
    parts = []
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:
            break
        if not part:
            break
        parts.append(part)
    os.close(leader)
    return process.wait(), b"".join(parts).decode().replace("\r\n", "\n")


class Dialogue:
    """A program with which a test talks on a terminal of 80 columns, line by line."""

    def __init__(self, words: list[str], directory: Path | None = None, **environment: str) -> None:
        self._leader, follower = pty.openpty()
        termios.tcsetwinsize(follower, (24, 80))
        self.shown = ""
        self._process = subprocess.Popen(
            words, stdin=follower, stdout=follower, stderr=follower, start_new_session=True, preexec_fn=_take_terminal,
            cwd=directory,
            env={name: value for name, value in os.environ.items() if name != "COLUMNS"} | environment,
        )
        os.close(follower)

    def until(self, text: str, seconds: float = 120) -> str:
        """What is shown until a text; it fails if the text does not come."""
        end, begun = time.monotonic() + seconds, len(self.shown)
        while text not in self.shown[begun:]:
            if time.monotonic() > end or not self._read():
                raise AssertionError(f"{text!r} is not shown: {self.shown[begun:][-3000:]}")
        return self.shown[begun:]

    def type(self, line: str) -> None:
        """Type a line and Return."""
        os.write(self._leader, f"{line}\r".encode())

    def press(self, control: bytes) -> None:
        """Press a control key."""
        os.write(self._leader, control)

    def kill(self) -> None:
        """End the program by SIGKILL."""
        self._process.send_signal(signal.SIGKILL)
        self.end()

    def end(self) -> int:
        """The status, after the program has ended; a program that does not end is killed, and the test fails."""
        end = time.monotonic() + 120
        while self._read():
            if time.monotonic() > end:
                self._process.kill()
                raise AssertionError(f"it does not end: {self.shown[-3000:]}")
        os.close(self._leader)
        return self._process.wait(120)

    def _read(self) -> bool:
        if not select.select([self._leader], [], [], 1)[0]:
            return True
        try:
            part = os.read(self._leader, 65536)
        except OSError:
            return False
        self.shown += part.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(part)


def _take_terminal() -> None:
    """Make stdin the controlling terminal, so that Ctrl-C reaches the program."""
    import fcntl

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
