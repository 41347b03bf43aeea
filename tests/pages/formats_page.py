"""The generated blocks of docs/formats/: a drawing of each declared structure, and the changes by release."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path

from rmqtx.readers.model import releases
from rmqtx.readers.model.layout import Layout
from rmqtx.readers.model.releases import ALWAYS, Change, dotted
from rmqtx_cli.pages.glossary import LAYOUT_MODULES, WIRE_MODULES, structures

#: A block that `filled` writes: name of the structure, drawing, fields.
BLOCK = re.compile(r"<!-- layout: (?P<name>\S+) -->\n.*?<!-- end -->", re.DOTALL)
_RELEASES = re.compile(r"<!-- releases -->\n.*?<!-- end -->", re.DOTALL)
_ROW_BYTES = 8
_CELL_WIDTH = 12


def layouts() -> dict[str, Layout]:
    """Return every declared structure, on disk and on the wire, by name."""
    return {layout.name: layout for layout in structures((*LAYOUT_MODULES, *WIRE_MODULES))}


def filled(text: str) -> str:
    """Return a page with its blocks generated again from the declarations.

    Raises: KeyError if a block names a structure that is not declared.
    """
    declared = layouts()

    def block(found: re.Match[str]) -> str:
        layout = declared[found["name"]]
        lines = ["```", *drawing(layout), "```", "", *_fields(layout)]
        return "\n".join([f"<!-- layout: {layout.name} -->", *lines, "<!-- end -->"])

    text = _RELEASES.sub(lambda _: "\n".join(["<!-- releases -->", *_changes(), "<!-- end -->"]), text)
    return BLOCK.sub(block, text)


def _changes() -> Iterator[str]:
    yield "| releases | what they do | known from |"
    yield "|---|---|---|"
    changes = [value for value in vars(releases).values() if isinstance(value, Change)]
    changes += [
        Change(f"{setting} is {value:_}, not {before:_}".replace("_", " "), "common/BrokerConfig.java", since)
        for setting, defaults in releases.DEFAULTS.items() for (_, before), (since, value) in pairwise(defaults)
    ]
    for change in sorted(changes, key=lambda one: (one.since, one.until or ALWAYS)):
        yield f"| {_span(change)} | {change.what} | {change.source} |"


def _span(change: Change) -> str:
    """Return the range of releases of a change as text."""
    words = "before " + dotted(change.until) if change.until else ""
    if change.since != ALWAYS:
        words = f"from {dotted(change.since)}" + (f", {words}" if words else "")
    return words + "".join(f", but not {dotted(version)}" for version in change.but)


def drawing(layout: Layout) -> Iterator[str]:
    """Yield rows of eight bytes; a field continues in the next row as `…`, parts without a fixed size follow."""
    yield " " * 4 + "".join(f"{number:<{_CELL_WIDTH}}" for number in range(_ROW_BYTES)).rstrip()
    above: list[int] = []
    for begin in range(0, layout.size_bytes, _ROW_BYTES):
        cells = list(_cells(layout, begin))
        edges = [0, *accumulate(width for _, width in cells)]
        yield _border([*above, *edges])
        yield f"{begin:>3} " + "".join(f"| {label}".ljust(width) for label, width in cells) + "|"
        above = edges
    yield _border(above)
    if layout.variable:
        yield "  + " + ", ".join(f"{part.name} ({part.size})" for part in layout.variable)


def _border(edges: list[int]) -> str:
    """Return a line with a corner at each edge of the cells above and below it."""
    return "    " + "".join("+" if column in edges else "-" for column in range(max(edges) + 1))


def _cells(layout: Layout, begin: int) -> Iterator[tuple[str, int]]:
    """Yield label and width of each part of a field in one row."""
    for field in layout.fields:
        first = layout.offsets[field.name]
        low, high = max(first, begin), min(first + field.size_bytes, begin + _ROW_BYTES)
        if low < high:
            yield field.name if low == first else "…", (high - low) * _CELL_WIDTH


def _fields(layout: Layout) -> Iterator[str]:
    yield "| byte | type | field | meaning | since |"
    yield "|---|---|---|---|---|"
    for field in layout.fields:
        unit = f" [{field.unit}]" if field.unit else ""
        at = layout.offsets[field.name]
        yield f"| {at} | {field.type_name} | `{field.name}` | {field.meaning}{unit} | {field.since} |"
    for part in layout.variable:
        yield f"| + | {part.size} | `{part.name}` | {part.meaning} | {part.since} |"


if __name__ == "__main__":
    for document in sorted(Path(sys.argv[1]).glob("*.md")):
        document.write_text(filled(document.read_text(encoding="utf-8")), encoding="utf-8")
