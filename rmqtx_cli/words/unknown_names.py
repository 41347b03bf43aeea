"""Hints for topics and groups that do not exist, so that an empty list does not hide a mistyped name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from rmqtx_cli.words.near import near
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import escaped

if TYPE_CHECKING:
    import pyarrow as pa

_NAMES_MAX = 8
#: The maximum of names that are kept; with more, no name is reported as missing.
_SEEN_MAX = 10_000


def say_unknown_names(rows: pa.Table, named: Mapping[str, tuple[str, str | None]], voice: Voice) -> None:
    """Print each option whose name no row has, and the names that exist.

    `rows`: before they were chosen by these names. `named`: option → column and name; None without the option.
    """
    seen = NamesSeen(named)
    for batch in rows.to_batches():
        seen.add(batch)
    seen.say("no open transaction has it", voice)


class NamesSeen:
    """The names in the columns that options choose by, collected from rows as they pass.

    `named`: option → column and name; None without the option.
    """

    def __init__(self, named: Mapping[str, tuple[str, str | None]]) -> None:
        self._named = {option: (column, name) for option, (column, name) in named.items() if name is not None}
        self._seen: dict[str, set[str]] = {option: set() for option in self._named}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the names in some rows."""
        for option, (column, _) in self._named.items():
            if len(seen := self._seen[option]) < _SEEN_MAX:
                seen.update(one for one in pc.unique(batch[column]).to_pylist() if one is not None)

    def say(self, what: str, voice: Voice) -> None:
        """Print each option whose name was not seen, with the text `what`, and the names that exist."""
        for option, (_, name) in self._named.items():
            if len(self._seen[option]) < _SEEN_MAX:
                say_unknown_name(option, name, self._seen[option], what, voice)


def say_unknown_name(option: str, name: str | None, names: Iterable[str], what: str, voice: Voice) -> None:
    """Print an option whose name does not exist, and similar names; nothing if the name exists or no name does."""
    known = sorted(set(names))
    if name is None or name in known or not known:
        return
    close = near(name, known)
    shown = known[:_NAMES_MAX]
    more = f", and {len(known) - len(shown)} more" if len(known) > len(shown) else ""
    advice = f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(shown)}{more}"
    voice.note(escaped(f"{option} {name}: {what} - {advice}"))
