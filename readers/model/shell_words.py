"""Words for a shell: text that a person copies into a command line."""

from __future__ import annotations

import os
import shlex


def quoted(text: str) -> str:
    r"""Return a text as one word of a shell, all of it printable.

    Text that a terminal cannot show (a newline, a byte that is not UTF-8, a control character) is written as $'a\x0ab',
    which bash, zsh and ksh take; quotes alone would end the line, or leave a byte that no keyboard has.
    """
    if text.isprintable():
        return shlex.quote(text)
    return f"$'{''.join(_escaped(character) for character in text)}'"


def _escaped(character: str) -> str:
    if character.isprintable() and character not in "'\\":
        return character
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))
