"""The question before a change: asked on a terminal only."""

from __future__ import annotations

import sys

from readers.model.errors import BadRequest
from rmqtx_cli.words import say


def agreed(question: str, *, advice: str = "say --yes to act without asking, or --dry-run to look") -> bool:
    """Whether the answer to a question is yes.

    Raises: BadRequest with the advice if standard input is not a terminal.
    """
    return answered(f"rmqtx: {question}? [y/N]\n", BadRequest("there is no terminal to ask on", advice=advice))


def answered(prompt: str, nobody: BadRequest) -> bool:
    """Whether the answer to a prompt is yes. Raises: what is given for where nobody can be asked."""
    if not sys.stdin.isatty():
        raise nobody
    say.prompt(prompt)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
