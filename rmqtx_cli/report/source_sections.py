"""The sections of a report about damage, about what was read, and about its words, as `rmqtx explain` prints them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rmqtx.readers.model.findings import KINDS
from rmqtx.verdicts.audit.provenance import tool
from rmqtx.verdicts.causes.cause import STRENGTHS
from rmqtx.verdicts.model.verdict_words import ADVICE, STATES
from rmqtx.verdicts.transactions.flags import FLAGS
from rmqtx_cli.pages.glossary import TERMS
from rmqtx_cli.report.document import (
    Commands,
    Drawing,
    Facts,
    Head,
    Items,
    Lane,
    Paragraph,
    Part,
    Section,
    Table,
    stored,
)
from rmqtx_cli.words.say import SEVERITIES
from rmqtx_cli.words.text import count, grouped, size
from rmqtx_cli.words.times import time_text

if TYPE_CHECKING:
    from rmqtx.readers.model.findings import Finding
    from rmqtx_cli.report.gathering import Facts as SourceFacts

#: Kinds of findings, stores, and files of a store that are listed.
_KINDS_MAX, _STORES_MAX, _FILES_MAX = 30, 10, 12


def damage_section(facts: SourceFacts) -> Section:
    """Return the findings by kind, and how the bytes of the commit logs were read."""
    kinds: dict[str, list[Finding]] = {}
    for finding in facts.findings:
        kinds.setdefault(finding.code, []).append(finding)
    groups = sorted(kinds.values(), key=lambda group: SEVERITIES.index(group[0].kind.severity))
    parts: list[Part] = []
    if groups:
        rows = [
            [group[0].code, group[0].kind.severity, str(len(group)), _place(group[0]),
             group[0].meaning or group[0].kind.meaning, group[0].advice or group[0].kind.advice or ""]
            for group in groups[:_KINDS_MAX]
        ]
        heads = [Head("finding"), Head("severity"), Head("places", True), Head("first place"),
                 Head("for transactions"), Head("advice")]
        parts.append(Table("Findings by kind", heads, rows, is_prose=True))
    else:
        parts.append(Paragraph("No damage found in what was read; rmqtx verify compares all files of a store."))
    if facts.coverage:
        parts.append(Paragraph(_coverage_text(facts)))
    return Section("Damage found", "damage", parts)


def _place(finding: Finding) -> str:
    where = finding.file or finding.store
    return stored(where) + ("" if finding.position_bytes is None else f" at byte {finding.position_bytes}")


def _coverage_text(facts: SourceFacts) -> str:
    parts = {
        "decoded": sum(one.decoded_bytes for one in facts.coverage),
        "filler": sum(one.filler_bytes for one in facts.coverage),
        "damaged": sum(one.damaged_bytes for one in facts.coverage),
        "unread": sum(one.unread_bytes for one in facts.coverage),
    }
    total = sum(one.size_bytes for one in facts.coverage)
    texts = " + ".join(f"{grouped(value)} {name}" for name, value in parts.items())
    return f"Bytes of {count(len(facts.coverage), 'file')}: {texts} = {grouped(total)}."


def read_section(facts: SourceFacts, command_line: str, now_ms: int) -> Section:
    """Return what was read: stores with digests, version, options and the command line."""
    parts: list[Part] = [Commands([(command_line, "")])]
    given = facts.provenance
    if given is None:
        parts.append(Items([stored(name) for name in facts.names]))
        parts.append(Paragraph("A live broker was read over the network: its records have no digest."
                               if facts.live else "No digest was taken."))
        parts.append(Facts(_made_pairs(now_ms)))
    else:
        parts.append(Facts(_run_pairs(given)))
        parts += [_store_section(store, number) for number, store in enumerate(given["stores"][:_STORES_MAX], 1)]
        if len(given["stores"]) > _STORES_MAX:
            parts.append(Paragraph(f"{len(given['stores']) - _STORES_MAX} more stores were read."))
    if facts.notes:
        parts += [Paragraph("Notes of the reading:"), Items([stored(note) for note in facts.notes[:_KINDS_MAX]])]
    return Section("What was read", "read", parts)


def _made_pairs(now_ms: int) -> list[tuple[str, str]]:
    return [("made by", tool()), ("made at", time_text(now_ms))]


def _run_pairs(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    engine = given["engine"]
    splits = ""
    if engine["splits_count"]:
        splits = f", {count(engine['splits_count'], 'split')} of {size(engine['split_bytes'] or 0)}"
    options = ", ".join(f"{name} = {_option_text(value)}" for name, value in given["options"].items())
    return [
        ("made by", given["made_by"]), ("made at", time_text(given["made_time_ms"])),
        ("engine", f"{engine['name']}{splits}"), ("options", stored(options)),
    ]


def _option_text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _store_section(store: Mapping[str, Any], number: int) -> Section:
    files = [*store["segments"], *store["files"]]
    shown = files if len(files) <= _FILES_MAX else [*files[: _FILES_MAX // 2], *files[-_FILES_MAX // 2:]]
    rows = [
        [stored(one["file"]), "unknown" if one["size_bytes"] is None else grouped(one["size_bytes"]),
         stored(one["digest"]) if one["digest"] else f"unreadable: {stored(one['unreadable'])}", one["digest_of"]]
        for one in shown
    ]
    left = len(files) - len(shown)
    note = f"{left} files between these are not shown; the digest of the store includes them." if left else ""
    pairs = [
        ("store", stored(store["store"])), ("as of", time_text(store["taken_time_ms"])),
        ("commit log", count(store["commit_log_bytes"], "byte")), ("digest", store["digest"]),
    ]
    heads = [Head("file"), Head("bytes", True), Head("digest"), Head("digest of")]
    table = Table("Files", heads, rows, note, is_prose=True)
    return Section(f"Store {number}", f"store-{number}", [Facts(pairs), table])


def _words() -> dict[str, str]:
    findings = {code: f"{kind.title}." for code, kind in KINDS.items()}
    strengths = {word.replace("_", " "): text for word, text in STRENGTHS.items()}
    return {**STATES, **FLAGS, **strengths, **findings, **TERMS}


def glossary_section(sections: Sequence[Section]) -> Section:
    """Return the words that occur in some sections.

    Order: advice, states, flags, strengths of causes, findings, terms. Advice is a word only where it is given.
    """
    texts = [text for section in sections for text in texts_of(section)]
    advised = {text.partition(": ")[0] for text in texts if ": " in text}
    used = {word: meaning for word, meaning in ADVICE.items() if word in advised}
    whole = "\n".join(texts)
    used |= {word: meaning for word, meaning in _words().items() if word not in used and _occurs(word, whole)}
    rows = [[word, meaning] for word, meaning in used.items()]
    heads = [Head("word"), Head("meaning")]
    table = Table("Words on this page (rmqtx explain WORD describes all)", heads, rows, is_prose=True)
    return Section("Words", "words", [table])


def _occurs(word: str, text: str) -> bool:
    """Whether a text has a word, also as a plural."""
    plain = re.escape(word[:-1] if word.endswith("y") else word)
    return re.search(rf"(?<![\w-]){plain}(?:s|ies|y)?(?![\w-])", text) is not None


def texts_of(part: Part) -> Iterator[str]:
    """Return the texts of a part and the parts below it."""
    if isinstance(part, Section):
        yield part.title
        for one in part.parts:
            yield from texts_of(one)
    elif isinstance(part, Paragraph):
        yield part.text
    elif isinstance(part, Items):
        yield from part.texts
    elif isinstance(part, Facts):
        yield from (text for pair in part.pairs for text in pair)
    elif isinstance(part, Table):
        yield from (head.text for head in part.heads)
        yield from (cell for row in part.rows for cell in row if not isinstance(cell, Lane))
    elif isinstance(part, Drawing):
        yield from (part.title, *(lane.label for lane in part.lanes))
