"""What a program shows on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess


def on_terminal(words: list[str], *, with_stderr: bool = True, **environment: str) -> tuple[int, str]:
    """The status, and what is shown; 80 columns unless the environment says otherwise."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        words, stdout=follower, stderr=follower if with_stderr else subprocess.DEVNULL,
        env=os.environ | {"COLUMNS": "80", "PAGER": "cat"} | environment,
    )  # fmt: skip
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
