"""Arranges what was gathered as a document, and renders documents as HTML or Markdown.

Every text is escaped where it is inserted; templates contain no text of a
store.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from rmqtx_cli.report.document import Commands, Document, Items, Lane, Paragraph, Part, Section, Table, stored
from rmqtx_cli.report.gathering import TOP_KINDS
from rmqtx_cli.report.number_sections import (
    ages_section,
    check_section,
    latency_section,
    states_section,
    timeline_section,
)
from rmqtx_cli.report.source_sections import damage_section, glossary_section, read_section
from rmqtx_cli.report.transaction_sections import causes_section, next_commands, sentences, transaction_section
from rmqtx_cli.words.text import count, cut, escaped
from rmqtx_cli.words.times import time_text

if TYPE_CHECKING:
    from rmqtx_cli.report.comparison import Earlier
    from rmqtx_cli.report.gathering import Facts, Gathered, ShownTransaction


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
    )


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


#: Suffix of the file → template.
TEMPLATES = {".html": "report.html.j2", ".htm": "report.html.j2", ".md": "report.md.j2"}
#: Characters that can begin or end markup within a line; marks of lists and headings at its begin.
_WITHIN = re.compile(r"([\\`*_\[\]#|~$@]|(?<=www)\.|:(?=//))")
_AT_BEGIN = re.compile(r"^\s*(?:([-+=])|(\d+)([.)])(?=\s|$))")
_DATE_THEN_TIME = re.compile(r"(?<=^\d{4}-\d\d-\d\dT)(?=\d\d:)")
_BLANK_LINES = re.compile(r"\n{3,}")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
#: Characters of any text at most.
TEXT_MAX = 4_000
_BLOCKS = " ▁▂▃▄▅▆▇█"
_COLUMNS = 64


def rendered(document: Document, suffix: str) -> bytes:
    """Return a report as UTF-8, at most SIZE_MAX bytes. `suffix`: a key of TEMPLATES."""
    template = _template(suffix)
    content = _filled(template, document)
    for limits in LIMITS:
        if len(content) <= SIZE_MAX:
            break
        content = _filled(template, shortened(document, *limits))
    return content


def _filled(template: Template, document: Document) -> bytes:
    return _BLANK_LINES.sub("\n\n", template.render(document=document)).encode()


@functools.cache
def _template(suffix: str) -> Template:
    environment = Environment(
        loader=PackageLoader("rmqtx_cli.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=StrictUndefined, finalize=_markdown_text if suffix == ".md" else _html_text,
    )
    environment.filters |= {
        "lane_text": lane_text, "code": code_text, "percent": _percent, "decimal": _decimal, "groups": _groups,
        "time_pieces": _time_pieces,
    }
    return environment.get_template(TEMPLATES[suffix])


def _percent(thousandths: float) -> str:
    return f"{_decimal(thousandths / 10)}%"


def _decimal(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _time_pieces(text: str) -> list[str]:
    """Return a date and a time of day, between which a line may end; any other text whole."""
    return _DATE_THEN_TIME.split(text, maxsplit=1)


def _groups(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return pairs that follow each other with the same label together."""
    return [(label, list(group)) for label, group in groupby(pairs, key=itemgetter(0))]


def _html_text(value: Any) -> Any:
    """Return a value for autoescape: control and bidi characters of a text become visible first."""
    return value if hasattr(value, "__html__") or not isinstance(value, str) else _visible(value)


def _visible(text: str) -> str:
    return cut(escaped(text), TEXT_MAX)


def _markdown_text(value: Any) -> Any:
    """Return a text in which no character is markup; what is rendered already stays."""
    if hasattr(value, "__html__") or not isinstance(value, str):
        return value
    plain = _AT_BEGIN.sub(_without_mark, _WITHIN.sub(r"\\\1", _visible(value).strip()))
    return Markup("".join(_ENTITIES.get(character, character) for character in plain))


def _without_mark(match: re.Match[str]) -> str:
    return f"\\{match[1]}" if match[1] else f"{match[2]}\\{match[3]}"


def code_text(text: str) -> Any:
    """Return a text for a fenced code block of Markdown: one line, which cannot end the block."""
    return Markup(_visible(text).replace("```", "`\u200a``"))  # a hair space


def lane_text(lane: Lane) -> str:
    """Return the marks of a lane as one line of block characters."""
    highest = [0.0] * _COLUMNS
    for mark in lane.marks:
        first = min(_COLUMNS - 1, int(mark.x / 1_000 * _COLUMNS))
        last = max(first, min(_COLUMNS, round((mark.x + mark.width) / 1_000 * _COLUMNS)) - 1)
        for column in range(first, last + 1):
            highest[column] = max(highest[column], mark.height)
    return "".join(_BLOCKS[_level(height)] for height in highest)


def _level(height: float) -> int:
    return 0 if height <= 0 else max(1, min(len(_BLOCKS) - 1, round(height * (len(_BLOCKS) - 1))))


def report_of_stores(found: Gathered, command_line: str, earlier: Earlier | None = None) -> Document:
    """Return the report of stores or brokers. `earlier`: what it is compared with."""
    facts = found.facts
    sections = [
        Section("What is the matter", "matter", [*_matter(found)]),
        *([] if earlier is None else [earlier.section(found)]),
        states_section(found), timeline_section(found), check_section(found), ages_section(found),
        latency_section(found), causes_section(found), *_shown_sections(found),
        damage_section(facts), read_section(facts, command_line, found.now_ms),
    ]
    return Document(
        "Transactions of " + names_text(facts), _subtitles(facts, found.now_ms), [*sections, glossary_section(sections)]
    )


def report_of_transactions(
    shown: list[ShownTransaction], facts: Facts, command_line: str, now_ms: int
) -> Document:
    """Return the report of one transaction; of several if they share a business key."""
    sections = [transaction_section(one, facts, now_ms, f"transaction-{number}") for number, one in enumerate(shown, 1)]
    sections += [damage_section(facts), read_section(facts, command_line, now_ms)]
    names = stored(shown[0].row["transaction_id"]) if len(shown) == 1 else count(len(shown), "transaction")
    title = f"Transaction {names}" if len(shown) == 1 else f"{names} with the same key"
    return Document(title, _subtitles(facts, now_ms), [*sections, glossary_section(sections)])


def names_text(facts: Facts) -> str:
    """Return the stores or brokers in a few words."""
    names = [stored(name) for name in facts.names]
    return names[0] if len(names) == 1 else count(len(names), "broker" if facts.live else "store")


def _subtitles(facts: Facts, now_ms: int) -> list[str]:
    return [f"Read at {time_text(now_ms)}. Times are UTC.", *facts.store_lines]


def _matter(found: Gathered) -> Iterator[Part]:
    yield from (Paragraph(sentence) for sentence in sentences(found))
    if commands := next_commands(found):
        yield Commands(commands)


def _shown_sections(found: Gathered) -> Iterator[Section]:
    for name, kind in TOP_KINDS.items():
        rows, total = found.shown[name], found.top.counts[name]
        text = f"{total}, {kind.note}." if total == len(rows) else f"{len(rows)} of {total}, {kind.note}."
        shown = [
            transaction_section(one, found.facts, found.now_ms, f"{name}-{number}")
            for number, one in enumerate(rows, 1)
        ]
        yield Section(kind.title, name, [Paragraph(text if rows else "None found."), *shown])
