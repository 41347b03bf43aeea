"""The parts of a report, independent of their form: the templates render each part by its `kind`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from rmqtx_cli.words.text import cut, escaped

#: Characters of a text from a store that a report shows.
STORED_TEXT_MAX = 160


def stored(text: str | None) -> str:
    """Return a text from a store: unprintable characters as backslash escapes, the end of a long text cut."""
    return "" if text is None else cut(escaped(text), STORED_TEXT_MAX)


@dataclass(frozen=True, slots=True)
class Mark:
    """One mark of a drawing. Units: `x` and `width` in thousandths of the drawing's width, `height` of its lane's.

    Shape: `kind`: half, check, op, commit, rollback, discard, cursor, pending, span or median; the style sheet has a
           colour for each. A mark without a width is a tick.
    """

    x: float
    width: float
    height: float
    kind: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Lane:
    """Marks along one axis. `label`: what they are; `note`: what they add up to."""

    label: str
    note: str
    marks: Sequence[Mark]


@dataclass(frozen=True, slots=True)
class Drawing:
    """Lanes over one axis. Shape: `ticks`: texts below the axis, at equal distances from its begin to its end.

    Units: `lane_px`: height of a lane with its distance to the next, CSS pixels.
    """

    title: str
    description: str
    lanes: Sequence[Lane]
    ticks: Sequence[str]
    lane_px: int = 48
    kind: ClassVar[str] = "drawing"


Cell = str | Lane


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a column."""

    text: str
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first cell of a row names the row. `note`: what was left out.

    `is_prose`: cells are sentences: on a narrow screen they stand below each other.
    """

    caption: str
    heads: Sequence[Head]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    is_prose: bool = False
    kind: ClassVar[str] = "table"


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A text. `is_small`: a remark."""

    text: str
    is_small: bool = False
    kind: ClassVar[str] = "paragraph"


@dataclass(frozen=True, slots=True)
class Items:
    """A list of texts."""

    texts: Sequence[str]
    kind: ClassVar[str] = "items"


@dataclass(frozen=True, slots=True)
class Commands:
    """Command lines to type; each with a comment, or without."""

    lines: Sequence[tuple[str, str]]
    kind: ClassVar[str] = "commands"


@dataclass(frozen=True, slots=True)
class Facts:
    """Labels with their values."""

    pairs: Sequence[tuple[str, str]]
    kind: ClassVar[str] = "facts"


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what is below. Shape: `anchor`: unique in a document, for links; empty without one."""

    title: str
    anchor: str = ""
    parts: list[Part] = field(default_factory=list)
    kind: ClassVar[str] = "section"


Part = Drawing | Table | Paragraph | Items | Commands | Facts | Section


@dataclass(frozen=True, slots=True)
class Document:
    """A report: its title, the lines below the title, and its sections."""

    title: str
    subtitles: Sequence[str]
    sections: Sequence[Section]
