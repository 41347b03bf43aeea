"""Keeps a page small: of long tables and lists only the begin is shown, and the rest is counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rmqtx_cli.report.document import Document, Items, Paragraph, Part, Section, Table

#: Size of a page at most. Units: bytes.
SIZE_MAX = 500_000
#: Rows of a table and texts of a list, and sections below a section, that are shown: tried until the page is small.
LIMITS = ((64, 20), (32, 3), (16, 2), (8, 1))


def shortened(document: Document, rows_max: int, sections_max: int) -> Document:
    """Return a document with shorter tables and lists; the words stay."""
    return replace(
        document, subtitles=document.subtitles[:rows_max],
        sections=[section if section.anchor == "words" else _section(section, rows_max, sections_max)
                  for section in document.sections],
    )  # fmt: skip


def _section(section: Section, rows_max: int, sections_max: int) -> Section:
    parts: list[Part] = []
    inner = 0
    for part in section.parts:
        inner += isinstance(part, Section)
        if not isinstance(part, Section) or inner <= sections_max:
            parts += _shorter(part, rows_max, sections_max)
    if inner > sections_max:
        parts.append(Paragraph(f"{inner - sections_max} more are not shown, to keep the page small."))
    return replace(section, parts=parts)


def _shorter(part: Part, rows_max: int, sections_max: int) -> Iterator[Part]:
    if isinstance(part, Section):
        yield _section(part, rows_max, sections_max)
    elif isinstance(part, Table) and len(part.rows) > rows_max:
        note = f"{len(part.rows) - rows_max} more rows are not shown, to keep the page small. {part.note}".strip()
        yield replace(part, rows=part.rows[:rows_max], note=note)
    elif isinstance(part, Items) and len(part.texts) > rows_max:
        yield Items([*part.texts[:rows_max], f"{len(part.texts) - rows_max} more"])
    else:
        yield part
