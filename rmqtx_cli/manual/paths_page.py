"""The tables of docs/paths.md: files below the root of a store, since which release, and what moves them."""

from __future__ import annotations

import sys
from pathlib import Path

from rmqtx.readers.model.releases import ALWAYS, Version, dotted
from rmqtx.readers.store.paths import CURSOR_FILES, PATHS, StorePath


def filled(text: str) -> str:
    """Return the page with its tables generated again from the declarations."""
    for name, lines in (("paths", _paths()), ("cursors", _cursors())):
        before, mark, rest = text.partition(f"<!-- {name} -->")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        text = "\n".join([before + mark, "", *lines, "", end + after])
    return text


def _paths() -> list[str]:
    return ["| path | since | what | made by | elsewhere by |", "|---|---|---|---|---|", *map(_row, PATHS)]


def _cursors() -> list[str]:
    lines = ["| where | setting | written since | read at the start since |", "|---|---|---|---|"]
    for file in CURSOR_FILES:
        written, read = _dotted(file.written_since or ALWAYS), _dotted(file.loaded_since)
        lines.append(f"| `config/{file.name}` | `{file.setting}` | {written} | {read} |")
    for one in PATHS:
        if one.is_cursor_database:
            lines.append(f"| `{one.path}` | `{one.setting}` | {_dotted(one.since)} | {_dotted(one.since)} |")
    return lines


def _row(one: StorePath) -> str:
    paths = ", ".join(f"`{path}`" for path in one.path.split(", "))
    since = _dotted(one.since) + ("" if one.until is None else f" to {_dotted(one.until)}")
    return f"| {paths} | {since} | {one.what} | {one.setting or 'every broker'} | {one.moved_by} |"


def _dotted(version: Version) -> str:
    return "all" if version == ALWAYS else dotted(version)


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(filled(document.read_text(encoding="utf-8")), encoding="utf-8")
