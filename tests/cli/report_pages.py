"""Reads a page of `rmqtx report` as a browser does: tables by caption, drawings by section, and every start tag."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

_VOID = {"meta", "link", "img", "br", "hr", "input", "wbr"}
_MARKS = {"rect", "line"}


@dataclass
class Figure:
    """A drawing. Shape: `marks`: number by class; `labels`: of its lanes, with their notes."""

    section: str
    caption: str = ""
    description: str = ""
    labels: list[str] = field(default_factory=list)
    marks: Counter[str] = field(default_factory=Counter)


@dataclass
class Page(HTMLParser):
    """What a page contains. Shape: `tables`: section, caption and rows, the head first; `texts`: by element."""

    tables: list[tuple[str, str, list[list[str]]]] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)
    headings: list[str] = field(default_factory=list)
    _open: list[str] = field(default_factory=list)
    _sections: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See HTMLParser."""
        given = dict(attrs)
        self.tags.append((tag, given))
        if tag not in _VOID:
            self._open.append(tag)
            self.texts.append((tag, ""))
        name = given.get("class") or ""
        if tag == "section":
            self._sections.append(given.get("id") or "")
        elif tag == "table":
            self.tables.append((self._sections[-1], "", []))
        elif tag == "tr":
            self.tables[-1][2].append([])
        elif tag in ("td", "th"):
            self.tables[-1][2][-1].append("")
        elif tag == "figure":
            self.figures.append(Figure(self._sections[-1]))
        elif tag in _MARKS and "figure" in self._open and name != "base":
            self.figures[-1].marks[name] += 1
        elif tag == "li" and "figure" in self._open:
            self.figures[-1].labels.append("")
        elif tag in ("h1", "h2", "h3"):
            self.headings.append("")

    def handle_endtag(self, tag: str) -> None:
        """See HTMLParser. An element that is not closed, or closed twice, is an error."""
        assert self._open.pop() == tag, tag
        if tag == "section":
            self._sections.pop()

    def handle_data(self, data: str) -> None:
        """See HTMLParser."""
        if not self._open:
            return
        inner = self._open[-1]
        self.texts.append((inner, data))
        if inner == "caption":
            section, caption, rows = self.tables[-1]
            self.tables[-1] = (section, caption + data, rows)
        elif inner in ("td", "th"):
            self.tables[-1][2][-1][-1] += data.strip()
        elif inner == "desc":
            self.figures[-1].description += data
        elif inner == "figcaption":
            self.figures[-1].caption += data
        elif "figure" in self._open and "li" in self._open:
            self.figures[-1].labels[-1] += data
        elif inner in ("h1", "h2", "h3"):
            self.headings[-1] += data

    def table(self, caption: str) -> list[list[str]]:
        """The rows of a table without its head; none without the table."""
        return next((rows[1:] for _, found, rows in self.tables if found == caption), [])

    def figure(self, section: str, caption: str = "") -> Figure | None:
        """The first drawing of a section whose caption begins so; None without one."""
        found = (one for one in self.figures if one.section == section and one.caption.startswith(caption))
        return next(found, None)

    @property
    def text(self) -> str:
        """All texts, those of the style sheet left out."""
        return "\n".join(text for tag, text in self.texts if tag != "style")


def read_page(file: Path) -> Page:
    """The page in a file; every element that it opens is closed."""
    page = Page()
    page.feed(file.read_text(encoding="utf-8"))
    page.close()
    assert not page._open, page._open
    return page
