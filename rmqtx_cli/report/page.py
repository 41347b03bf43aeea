"""Arranges what was gathered as a document: what is the matter, numbers, drawings, causes, transactions, sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqtx_cli.report.document import Commands, Document, Paragraph, Part, Section, stored
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
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import time_text

if TYPE_CHECKING:
    from rmqtx_cli.report.comparison import Earlier
    from rmqtx_cli.report.gathering import Facts, Gathered, ShownTransaction


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
