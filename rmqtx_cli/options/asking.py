"""The confirmation before a change, on a terminal only."""

from __future__ import annotations

import sys

from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.words import say


def agreed(question: str, *, advice: str = "--yes acts without asking, --dry-run changes nothing") -> bool:
    """Ask for confirmation; return whether the answer is yes.

    Raises: BadRequest with the advice if standard input is not a terminal.
    """
    no_terminal = BadRequest("cannot ask for confirmation: standard input is not a terminal", advice=advice)
    return answered(f"rmqtx: {question}? [y/N]\n", no_terminal)


def answered(prompt: str, no_terminal: BadRequest) -> bool:
    """Print a prompt; return whether the answer is yes. Raises: `no_terminal` if standard input is not a terminal."""
    if not sys.stdin.isatty():
        raise no_terminal
    say.prompt(prompt)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
