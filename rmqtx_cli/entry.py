"""The console script: an interrupt while the program is still loading ends it as one later does."""

from __future__ import annotations

import sys

#: The last object of a log: the module that writes it (words/log_json.py) may not be loaded yet.
_EXIT = '{"v": 1, "type": "exit", "time": null, "status": 130, "word": "interrupted", "meaning": "interrupted"}\n'


def run() -> None:
    """Load the commands and run one."""
    try:
        from rmqtx_cli.main import run as run_command
    except KeyboardInterrupt:
        sys.stderr.write(_EXIT if "--log-json" in sys.argv else "rmqtx: interrupted\n")
        sys.exit(130)  # exit_status.INTERRUPTED, whose module may not be loaded yet
    run_command()
