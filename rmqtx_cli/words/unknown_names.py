"""Names of topics and groups that nothing bears: an empty list must not hide that a name was mistyped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rmqtx_cli.words.near import near
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import escaped

if TYPE_CHECKING:
    import pyarrow as pa

_NAMES_MAX = 8
#: So many names are kept; of more than that none is said to be missing.
_SEEN_MAX = 10_000


def say_unknown_names(rows: pa.Table, named: Mapping[str, tuple[str, str | None]], voice: Voice) -> None:
    """Say of each option whose name no row has that this is so, and which names there are.

    `rows`: before anything was chosen by these names. `named`: column and name by option; None where none is given.
    """
    seen = NamesSeen(named)
    for batch in rows.to_batches():
        seen.add(batch)
    seen.say("no open transaction has it", voice)


class NamesSeen:
    """What stands in the columns that options choose by, in rows as they pass.

    `named`: column and name by option; None where none is given.
    """

    def __init__(self, named: Mapping[str, tuple[str, str | None]]) -> None:
        self._named = {option: (column, name) for option, (column, name) in named.items() if name is not None}
        self._seen: dict[str, set[str]] = {option: set() for option in self._named}

    def add(self, batch: pa.RecordBatch) -> None:
        """Take note of the names in some rows."""
        import pyarrow.compute as pc

        for option, (column, _) in self._named.items():
            if len(seen := self._seen[option]) < _SEEN_MAX:
                seen.update(one for one in pc.unique(batch[column]).to_pylist() if one is not None)

    def say(self, what: str, voice: Voice) -> None:
        """Say of each option whose name was not seen what that means, and which names there are."""
        for option, (_, name) in self._named.items():
            if len(self._seen[option]) < _SEEN_MAX:
                say_unknown_name(option, name, self._seen[option], what, voice)


def say_unknown_name(option: str, name: str | None, names: Iterable[str], what: str, voice: Voice) -> None:
    """Say of an option that its name is none of those that there are, and which are near; nothing where none is."""
    known = sorted(set(names))
    if name is None or name in known or not known:
        return
    close = near(name, known)
    shown = known[:_NAMES_MAX]
    more = f", and {len(known) - len(shown)} more" if len(known) > len(shown) else ""
    advice = f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(shown)}{more}"
    voice.note(escaped(f"{option} {name}: {what} - {advice}"))
