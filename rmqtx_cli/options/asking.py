"""The confirmation before a change, on a terminal only."""

from __future__ import annotations

import sys

from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.words import say


def agreed(question: str) -> bool:
    """Ask for confirmation; return whether the answer is yes.

    Raises: BadRequest if standard input is not a terminal.
    """
    no_terminal = BadRequest(
        "cannot ask for confirmation: standard input is not a terminal",
        advice="--yes acts without asking, --dry-run changes nothing",
    )
    return answered(f"rmqtx: {question}? [y/N]\n", no_terminal)


def answered(prompt: str, no_terminal: BadRequest) -> bool:
    """Print a prompt; return whether the answer is yes. Raises: `no_terminal` if standard input is not a terminal."""
    require_terminal(no_terminal)
    return (typed(prompt) or "").lower() in ("y", "yes")


def require_terminal(no_terminal: BadRequest) -> None:
    """Raise `no_terminal` if standard input is not a terminal."""
    if not sys.stdin.isatty():
        raise no_terminal


def typed(prompt: str) -> str | None:
    """Print a prompt; return the line that is typed, without spaces around it; None at the end of the input."""
    say.prompt(prompt)
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError:
        return ""
    return line.strip() if line else None
