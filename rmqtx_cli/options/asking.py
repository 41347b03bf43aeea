"""The question before a change: asked on a terminal only."""

from __future__ import annotations

import sys

from readers.model.errors import BadRequest
from rmqtx_cli.words import say
from rmqtx_cli.words.text import escaped


def agreed(question: str, *, advice: str = "say --yes to act without asking, or --dry-run to look") -> bool:
    """Whether the answer is yes.

    Raises: BadRequest with the advice if standard input is not a terminal.
    """
    if not sys.stdin.isatty():
        raise BadRequest("there is no terminal to ask on", advice=advice)
    say.line(f"rmqtx: {escaped(question)}? [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
