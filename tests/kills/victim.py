"""`python -m tests.kills.victim CALL PART COUNTS rmqtx-arguments...`: `rmqtx` in a process that kills itself.

It sends itself SIGKILL at its CALL-th call of the system that changes files: before it (`before`), after it (`after`)
or, if it writes bytes, after half of them (`half`). The number of calls is written to the file COUNTS.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHANGING = (
    "chmod", "chown", "copy_file_range", "fchmod", "fchown", "fsync", "ftruncate", "link", "mkdir", "pwrite", "remove",
    "rename", "replace", "rmdir", "unlink", "utime",
)
_WRITES = "pwrite"


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Counter:
    """Counts the calls, and ends the process at one of them."""

    def __init__(self, call: int, part: str) -> None:
        self.call, self.part, self.count = call, part, 0

    def watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, counted."""

        def called(*arguments: Any, **named: Any) -> Any:
            self.count += 1
            is_it = self.count == self.call
            if is_it and self.part == "before":
                _die()
            if is_it and self.part == "half" and name == _WRITES:
                descriptor, data, position = arguments
                function(descriptor, memoryview(data)[: len(data) // 2], position)
                _die()
            result = function(*arguments, **named)
            if is_it:
                _die()
            return result

        return called


def main() -> None:
    """Run the command line with the calls watched."""
    call, part, counts, *arguments = sys.argv[1:]
    from rmqtx_cli import main as rmqtx

    counter = Counter(int(call), part)
    for name in CHANGING:
        if hasattr(os, name):
            setattr(os, name, counter.watched(name, getattr(os, name)))
    status = rmqtx.status_of(arguments)
    Path(counts).write_text(str(counter.count))
    sys.exit(status)


if __name__ == "__main__":
    main()
