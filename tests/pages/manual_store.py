"""The manual page rmqtx-store(5): words, states, flags, findings, tables and structures, from their declarations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from rmqtx.readers.model.findings import KINDS
from rmqtx.readers.model.layout import Layout
from rmqtx.readers.model.tables import ALL_TABLES
from rmqtx.repairs.receipts.act_words import OUTCOMES as RECEIPT_OUTCOMES
from rmqtx.repairs.receipts.act_words import STANDINGS
from rmqtx.verdicts.ledger.reconcile import OUTCOMES, WORDS
from rmqtx.verdicts.model.verdict_words import ADVICE, NONE_YET, STATES
from rmqtx.verdicts.transactions.diff import CHANGES
from rmqtx.verdicts.transactions.flags import FLAGS
from rmqtx.verdicts.transactions.reason_codes import REASONS
from rmqtx_cli.pages.glossary import RESULT_TABLES, TERMS, meaning_of, structures
from tests.pages.roff import heading, item, page, paragraph, subheading, verbatim

_CONVENTIONS = (
    "Names end in their unit: _ms is milliseconds (a point in time: since 1970 UTC), _bytes bytes, _count a number. "
    "commit_log_offset counts bytes of the commit log, queue_offset slots of a queue, position_bytes bytes of one "
    "file. Unknown is null, never -1, empty text or zero. In JSON and CSV each time has a second column without _ms in "
    "ISO 8601; with --timestamps only that one, in Parquet and Arrow a TIMESTAMP. Bytes are base64; lists are "
    "JSON text in CSV."
)


def store_page() -> str:
    """Return the roff of the page."""
    return page("rmqtx-store", 5, _lines())


def _lines() -> Iterator[str]:
    yield from heading("NAME")
    yield from paragraph("rmqtx-store - words, states, findings, tables and structures of rmqtx")
    yield from _word_lists((("WORDS", TERMS), ("STATES", STATES), ("FLAGS", FLAGS)))
    yield from heading("ADVICE")
    for word, meaning in ADVICE.items():
        yet = f" Where the state is UNDECIDABLE: {NONE_YET}." if word == "none" else ""
        yield from item(word, f"{meaning}.{yet}")
    yield from heading("REASONS")
    for code, reason in REASONS.items():
        yield from item(f"{code} ({reason.state})", f"{reason.meaning}.")
    yield from heading("FINDINGS")
    for code, kind in KINDS.items():
        advice = f" Advice: {kind.advice}." if kind.advice else ""
        yield from item(f"{code} ({kind.severity})", f"{kind.title}. For transactions: {kind.meaning}.{advice}")
    yield from _word_lists((
        ("WORDS OF A LEDGER", WORDS), ("OUTCOMES OF RECONCILE", OUTCOMES), ("CHANGES", CHANGES),
        ("OUTCOMES OF ACTS", RECEIPT_OUTCOMES), ("STANDINGS OF RECEIPTS", STANDINGS),
    ))
    yield from heading("TABLES")
    yield from paragraph(_CONVENTIONS)
    for name, schema in {**ALL_TABLES, **RESULT_TABLES}.items():
        yield from subheading(name)
        for field in schema:
            yield from item(f"{field.name}  {_type_name(field.type)}", meaning_of(field))
    yield from heading("STRUCTURES ON DISK")
    yield from paragraph("All integers are signed and big-endian.")
    for layout in structures():
        yield from _structure(layout)
    yield from heading("SEE ALSO")
    yield from paragraph("rmqtx(1), rmqtx-decode(1), rmqtx-explain(1)")


def _word_lists(lists: Iterable[tuple[str, Mapping[str, str]]]) -> Iterator[str]:
    """Sections of words with their meanings, by title."""
    for title, words in lists:
        yield from heading(title)
        for word, meaning in words.items():
            yield from item(word, f"{meaning}.")


def _type_name(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        inner = kind.value_type
        if pa.types.is_struct(inner):
            return f"list of {{{', '.join(inner.field(number).name for number in range(inner.num_fields))}}}"
        return f"list of {inner}"
    return str(kind)


def _structure(layout: Layout) -> Iterator[str]:
    yield from subheading(f"{layout.name}: {layout.title}")
    rows = [
        (
            str(layout.offsets[field.name]),
            field.type_name,
            field.name,
            field.meaning + (f" [{field.unit}]" if field.unit else "")
            + ("" if field.since == "all" else f" (since {field.since})"),
        )
        for field in layout.fields
    ]
    rows += [("+", part.size, part.name, part.meaning) for part in layout.variable]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    yield from verbatim("\n".join(
        f"{at:>{widths[0]}}  {kind:<{widths[1]}}  {name:<{widths[2]}}  {meaning}" for at, kind, name, meaning in rows
    ))
    yield from paragraph(f"{layout.size_bytes} bytes fixed. Source: {layout.source}.")
