"""A process that has loaded the commands of `rmqtx`, and forks for each one that tests/cli/warm_start.py asks for.

Each is a process of its own, with the streams, environment, directory and limits of its caller, that begins with the
modules of an ordinary run: loading them is nine tenths of the time of most commands. None has run when it forks. The
server ends when its standard input ends, so with the tests.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import io
import marshal
import os
import pkgutil
import resource
import selectors
import shutil
import signal
import socket
import struct
import sys
import types
from pathlib import Path
from typing import Any, NoReturn

from tests.cli.warm_start import LIMITS, PASSED, who

#: As `run` has it, which sets it before Arrow and numpy are loaded.
SET = {"OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}


def load() -> None:
    """Load the modules of all commands."""
    from rmqtx.verdicts.evidence import store_facts
    from tests.moment import moment_of

    store_facts.moment_ms = moment_of  # before the modules that import it by name
    import rmqtx_cli

    for module in pkgutil.walk_packages(rmqtx_cli.__path__, "rmqtx_cli."):
        importlib.import_module(module.name)


class Server:
    """Takes command lines from a socket."""

    def __init__(self, place: str, listening: int) -> None:
        self._who, self._place = who(), place
        self._listening = socket.socket(fileno=listening)
        self._waiting = selectors.DefaultSelector()
        self._waiting.register(self._listening, selectors.EVENT_READ, self._begin)
        self._waiting.register(0, selectors.EVENT_READ, self._end)

    def serve(self) -> NoReturn:
        """Fork for each command line; tell each caller how its command ended, and kill what has no caller any more."""
        while True:
            for key, _ in self._waiting.select():
                key.data()

    def _end(self) -> NoReturn:
        shutil.rmtree(Path(self._place).parent, ignore_errors=True)
        os._exit(0)

    def _begin(self) -> None:
        wire, _ = self._listening.accept()
        try:
            streams, (whose, *asked) = _received(wire)
        except (OSError, EOFError, ValueError):
            wire.close()
            return
        session, _ = asked[4]
        if whose != self._who or session not in (0, os.getsid(0)):
            wire.sendall(struct.pack("=I", 0))
            wire.close()
        elif (child := os.fork()) == 0:
            _become(streams, *asked)
        else:
            self._watch(child, wire)
        for stream in streams:
            os.close(stream)

    def _watch(self, child: int, wire: socket.socket) -> None:
        ended = os.pidfd_open(child)

        def end(has_caller: bool) -> None:
            if ended not in self._waiting.get_map():  # both came at once
                return
            for one in (ended, wire):
                self._waiting.unregister(one)
            if not has_caller:
                signal.pidfd_send_signal(ended, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            with contextlib.suppress(OSError):  # the caller was killed
                wire.sendall(struct.pack("=I", status))
            wire.close()
            os.close(ended)

        with contextlib.suppress(OSError):
            wire.sendall(struct.pack("=I", child))
        self._waiting.register(ended, selectors.EVENT_READ, lambda: end(has_caller=True))
        self._waiting.register(wire, selectors.EVENT_READ, lambda: end(has_caller=False))


def _received(wire: socket.socket) -> tuple[list[int], Any]:
    streams = array.array("i")
    head, others, _, _ = wire.recvmsg(4, socket.CMSG_SPACE(3 * streams.itemsize))
    for _, _, data in others:
        streams.frombytes(data)
    rest, (size_bytes,) = bytearray(), struct.unpack("=I", head)
    while len(rest) < size_bytes:
        part = wire.recv(size_bytes - len(rest))
        if not part:
            raise EOFError
        rest += part
    return list(streams), marshal.loads(bytes(rest))


def _become(
    streams: list[int], words: list[str], environment: dict[bytes, bytes], directory: bytes, mask: int,
    place: tuple[int, int],
    ignored: list[int], limits: list[tuple[int, int]],
) -> NoReturn:
    """Run a command line in this fork."""
    status = 70
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, 1024)
        session, group = place
        if session:
            with contextlib.suppress(OSError):  # the group is gone
                os.setpgid(0, group)
        else:
            os.setsid()
        os.chdir(directory)
        os.umask(mask)
        for name, limit in zip(LIMITS, limits, strict=True):
            resource.setrlimit(name, limit)
        for one in PASSED:
            signal.signal(one, signal.SIG_IGN if int(one) in ignored else signal.SIG_DFL)
        if int(signal.SIGINT) not in ignored:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environb.clear()
        os.environb.update(environment)
        sys.argv = words
        sys.modules["__main__"] = types.ModuleType("__main__")  # which further processes load
        sys.modules["__main__"].__file__ = words[0]
        _open_streams(is_unbuffered=bool(environment.get(b"PYTHONUNBUFFERED")))
        try:
            sys.modules["rmqtx_cli.main"].run()
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1 if ended.code else 0
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            status = 1
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        atexit._run_exitfuncs()
    finally:
        os._exit(status)


def _open_streams(is_unbuffered: bool) -> None:
    """As Python opens them when it starts."""
    buffering = 0 if is_unbuffered else -1
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - open until the process ends
    for name, number, errors in (("stdout", 1, "strict"), ("stderr", 2, "backslashreplace")):
        stream: Any = open(number, "wb", buffering, closefd=False)  # noqa: SIM115
        is_by_line = number == 2 or os.isatty(number)
        setattr(sys, name, io.TextIOWrapper(stream, "utf-8", errors, "\n", is_by_line, write_through=is_unbuffered))


def main() -> NoReturn:
    """Serve the socket that is named, which is open as the descriptor that is named."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the tests, which Ctrl-C interrupts
    server = Server(sys.argv[1], int(sys.argv[2]))
    os.environ.update(SET)
    gc.disable()
    load()
    gc.freeze()
    gc.enable()
    server.serve()


if __name__ == "__main__":
    main()
