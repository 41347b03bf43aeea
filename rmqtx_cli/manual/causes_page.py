"""The list of docs/causes.md: every cause with its releases, what follows, what to do, and the stores that show it."""

from __future__ import annotations

import sys
from pathlib import Path

from rmqtx.verdicts.causes.cause import STRENGTHS, Cause
from rmqtx.verdicts.causes.register import CAUSES

_BEGIN, _END = "<!-- causes -->", "<!-- /causes -->"


def filled(text: str) -> str:
    """Return the page with its list generated again from the register."""
    before, _, rest = text.partition(_BEGIN)
    after = rest.partition(_END)[2]
    lines = [*_strengths(), *(line for cause in CAUSES.values() for line in _section(cause))]
    return "\n".join([before + _BEGIN, "", *lines, _END + after])


def _strengths() -> list[str]:
    rows = [f"| `{word}` | {text} |" for word, text in STRENGTHS.items()]
    return ["| strength | meaning |", "|---|---|", *rows, ""]


def _section(cause: Cause) -> list[str]:
    rows = {
        "releases": cause.releases,
        "needs": "; ".join(one.text for one in cause.needs),
        "shows in": " or ".join(cause.shows_in),
        "behaviour": "; ".join(f"{one.what} ({one.source})" for one in cause.affected),
        "what follows": cause.consequence,
        "do now": cause.act,
        "change": cause.change,
        "decided by": cause.decides,
        "could also be": ", ".join(f"`{word}`" for word in cause.rivals),
        "seen in the stores": ", ".join(cause.shown_by) or "none of the corpus",
    }
    lines = [f"| {name} | {text.replace('|', chr(92) + '|')} |" for name, text in rows.items() if text]
    return [f"## {cause.word}", "", f"{cause.title[0].upper()}{cause.title[1:]}.", "", "| | |", "|---|---|", *lines, ""]


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(filled(document.read_text(encoding="utf-8")), encoding="utf-8")
