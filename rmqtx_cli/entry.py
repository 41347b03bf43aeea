"""The console script: an interrupt while the program is still loading ends it as one later does."""

from __future__ import annotations

import sys


def run() -> None:
    """Load the commands and run one."""
    try:
        from rmqtx_cli.main import run as run_command
    except KeyboardInterrupt:
        sys.stderr.write("rmqtx: interrupted\n")
        sys.exit(130)  # exit_status.INTERRUPTED, whose module may not be loaded yet
    run_command()
