"""Starts `rmqtx` as a fork of the server of tests/cli/warm_server.py, and stands for it as its caller sees it.

It gives the server its streams, environment, limits and arguments, passes signals on, and ends as the command ends.
What a fork cannot do, it does as a process of its own: closed streams, other settings of Python, another user. A fork
of the leader of a session leads one too; its terminal's signals come to this process, which passes them on.
"""

from __future__ import annotations

import array
import marshal
import os
import resource
import signal
import socket
import struct
import sys

TYPE_CHECKING = False  # `typing` takes longer to load than all the others
if TYPE_CHECKING:
    from typing import Any, NoReturn

PASSED = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
    signal.SIGWINCH,
)
LIMITS = (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_CORE)


def who() -> tuple[Any, ...]:
    """What the caller and the server must have in common: the user, and the settings of Python."""
    names = (b"PYTHON", b"LC_", b"LANG", b"MALLOC", b"LD_", b"ARROW", b"OPENBLAS", b"TZ")
    given = os.environb | {b"PYTHONUNBUFFERED": b""}  # the fork heeds it
    shared = sorted((name, value) for name, value in given.items() if value and name.startswith(names))
    return os.geteuid(), os.getegid(), sorted(os.getgroups()), _capabilities(), shared


def _capabilities() -> list[bytes]:
    try:
        with open("/proc/self/status", "rb") as status:
            return [line for line in status if line.startswith(b"Cap")]
    except OSError:
        return []


def _place() -> tuple[int, int]:
    """Its session, 0 if it leads one, and its process group."""
    session = os.getsid(0)
    return 0 if session == os.getpid() else session, os.getpgid(0)


def main() -> NoReturn:
    """Run the command line after the path of the server's socket and the program's own."""
    place, program, *words = sys.argv[1:]
    try:
        for stream in (0, 1, 2):
            os.fstat(stream)
        wire = socket.socket(socket.AF_UNIX)
        wire.connect(place)
    except OSError:
        os.execv(sys.executable, [sys.executable, program, *words])
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED)
    ignored = [int(one) for one in signal.valid_signals() if signal.getsignal(one) == signal.SIG_IGN]
    mask = os.umask(0)
    os.umask(mask)
    asked = marshal.dumps((
        who(), [program, *words], dict(os.environb), os.getcwdb(), mask, _place(), ignored,  # noqa: PTH109
        [resource.getrlimit(one) for one in LIMITS],
    ))
    wire.sendmsg(
        [struct.pack("=I", len(asked))],
        [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", (0, 1, 2)))],
    )
    wire.sendall(asked)
    child = _number(wire)
    if not child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED)
        os.execv(sys.executable, [sys.executable, program, *words])
    for one in PASSED:
        if int(one) not in ignored:
            signal.signal(one, lambda number, _frame: os.kill(child, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED)
    code = os.waitstatus_to_exitcode(_number(wire))
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)


def _number(wire: socket.socket) -> int:
    found = b""
    while len(found) < 4:
        part = wire.recv(4 - len(found))
        if not part:  # the server is gone
            os._exit(70)
        found += part
    (number,) = struct.unpack("=I", found)
    return int(number)


if __name__ == "__main__":
    main()
