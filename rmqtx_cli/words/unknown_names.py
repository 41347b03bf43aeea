"""Names of topics and groups that nothing bears: an empty list must not hide that a name was mistyped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rmqtx_cli.words.near import near
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import escaped

if TYPE_CHECKING:
    import pyarrow as pa

_NAMES_MAX = 8


def say_unknown_names(rows: pa.Table, named: Mapping[str, tuple[str, str | None]], voice: Voice) -> None:
    """Say of each option whose name no row has that this is so, and which names there are.

    `rows`: before anything was chosen by these names. `named`: column and name by option; None where none is given.
    """
    import pyarrow.compute as pc

    for option, (column, name) in named.items():
        if name is None:
            continue
        known = sorted(one for one in pc.unique(rows[column]).to_pylist() if one is not None)
        if name in known or not known:
            continue
        close = near(name, known)
        shown = known[:_NAMES_MAX]
        more = f", and {len(known) - len(shown)} more" if len(known) > len(shown) else ""
        advice = f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(shown)}{more}"
        voice.note(escaped(f"{option} {name}: no open transaction has it - {advice}"))
