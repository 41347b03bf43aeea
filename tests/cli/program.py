"""`rmqtx` as a program of its own that reads stores at the moment of the tests (`tests/moment.py`).

With the real clock, what is pending in the corpus gets other flags as the corpus grows old.
"""

from __future__ import annotations

import atexit
import functools
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RMQTX = [sys.executable, str(Path(__file__).resolve())]


class Warm:
    """The words with which a test starts the program as a fork of a process that has loaded its modules.

    A process of its own as `RMQTX` is, at a tenth of the time; for tests of what it does, not of how it begins or is
    killed. Each process of tests has one server (tests/cli/warm_server.py), which starts with the first of them.
    `before`: gives the words of a command that runs the program, as another user; it has a server of its own.
    """

    def __init__(self, before: Callable[[], list[str]] = list) -> None:
        self._before = before

    def __iter__(self) -> Iterator[str]:
        before = self._before()
        if not hasattr(os, "pidfd_open"):  # not Linux
            return iter([*before, *RMQTX])
        start = str(Path(__file__).with_name("warm_start.py"))
        served = _served(os.getpid(), *before)
        return iter([*before, sys.executable, "-I", "-S", start, served, RMQTX[1]])


WARM = Warm()


@functools.cache
def _served(_process: int, *before: str) -> str:
    """The socket of the server of this process; not that of the process from which it was forked."""
    # Not where temporary files are: beside a Spark session that is a path too long for a socket.
    place = f"{tempfile.mkdtemp(prefix='rmqtx-warm-', dir='/tmp')}/socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place)
        listening.listen(64)
        server = subprocess.Popen(
            [*before, sys.executable, "-m", "tests.cli.warm_server", place, str(listening.fileno())], cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[listening.fileno()],
        )

    def end() -> None:
        assert server.stdin is not None
        server.stdin.close()
        server.wait()

    atexit.register(end)
    return place


if __name__ == "__main__":
    sys.path[0] = str(ROOT)
    from rmqtx.verdicts.evidence import store_facts
    from tests.moment import moment_of

    store_facts.moment_ms = moment_of  # before the modules that import it by name
    from rmqtx_cli.entry import run

    run()
