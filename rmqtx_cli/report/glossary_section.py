"""The words that a report uses, with the descriptions that `rmqtx explain` prints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rmqtx.readers.model.findings import KINDS
from rmqtx.verdicts.causes.cause import STRENGTHS
from rmqtx.verdicts.model.verdict_words import ADVICE, STATES
from rmqtx.verdicts.transactions.flags import FLAGS
from rmqtx_cli.pages.glossary import TERMS
from rmqtx_cli.report.document import Drawing, Facts, Head, Items, Lane, Paragraph, Part, Section, Table


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
