"""A store's lock as a broker takes it, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: What a broker does: a POSIX lock on byte 0, kept until it is told to end.
BROKER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
except OSError:
    print("refused", flush=True)
else:
    print("locked", flush=True)
    sys.stdin.read()
"""


@contextmanager
def locked_by_a_broker(store: Path) -> Iterator[str]:
    """A process that locks a store as a broker does; gives whether it could."""
    command = [sys.executable, "-c", BROKER, str(store / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate()
