"""Suggestions for misspelt words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

_MOST = 3


def near(word: str, known: Iterable[str]) -> list[str]:
    """The known words most similar to the given one, best first; case is ignored."""
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=_MOST, cutoff=0.6)
    parts = [low for low in by_lower if len(word) > 2 and word.lower() in low and low not in close]
    return [by_lower[low] for low in [*close, *parts][:_MOST]]


def nearest_column(word: str, names: Iterable[str], heads: Mapping[str, str]) -> str:
    """The suggestion for a column name; without a similar one all columns. Each column once, the nearest name first.

    `heads`: columns by further names, which are suggested only if they are similar.
    """
    own = list(names)
    close: dict[str, str] = {}
    for name in near(word, [*own, *(head for head in heads if head not in own)]):
        close.setdefault(heads.get(name, name), name)
    return f"did you mean {' or '.join(close.values())}?" if close else f"there are: {', '.join(dict.fromkeys(own))}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The suggestion as a sentence, or all known words if none is similar."""
    names = list(known)
    close = near(word, names)
    return f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(names)}"
