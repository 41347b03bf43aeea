"""The answer UNKNOWN of `rmqtx check`, also where the command line is wrong: monitoring reads one line on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import pairwise

from rmqtx_cli.words.text import escaped

#: Status of Nagios.
UNKNOWN = 3


def unknown(message: str, *, is_json: bool = False) -> int:
    """Print UNKNOWN and its reason on stdout, in the form that was asked for; return the status."""
    sys.stdout.write(unknown_text(message, is_json=is_json))
    return UNKNOWN


def unknown_text(message: str, *, is_json: bool) -> str:
    """Return the line."""
    plain = " ".join(message.split())
    if is_json:
        reasons = [{"status": "UNKNOWN", "reason": plain}]
        return json.dumps({"status": "UNKNOWN", "exit_status": UNKNOWN, "reasons": reasons}) + "\n"
    return f"RMQTX UNKNOWN - {escaped(plain).replace('|', '¦')}\n"


def names_json(arguments: Sequence[str]) -> bool:
    """Return whether a command line, which may be a wrong one, has --format json."""
    return "--format=json" in arguments or ("--format", "json") in pairwise(arguments)
