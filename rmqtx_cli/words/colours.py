"""States in colour, on a terminal only; NO_COLOR switches it off (https://no-color.org)."""

from __future__ import annotations

import os

from rmqtx.verdicts.model.state import State

#: SGR colours by state: LOST in red, PENDING in yellow, UNDECIDABLE in cyan.
_STATES: dict[str, str] = {
    State.PENDING: "33", State.COMMITTED: "32", State.ROLLED_BACK: "34", State.DISCARDED: "35",
    State.LOST: "1;31", State.UNDECIDABLE: "36",
}  # fmt: skip


def is_coloured() -> bool:
    """Whether to colour: TERM supports colours, and NO_COLOR is not set."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def coloured(cell: str) -> str:
    """The text of a cell, coloured if it is a state."""
    colour = _STATES.get(cell)
    return cell if colour is None else f"\x1b[{colour}m{cell}\x1b[0m"
