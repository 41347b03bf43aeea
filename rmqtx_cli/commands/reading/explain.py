"""`rmqtx explain`: explain a word of the output."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable

from rmqtx.readers.model import exit_status
from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.commands.all_views import all_views
from rmqtx_cli.commands.declared.survey import ExplainCommand
from rmqtx_cli.output.page import paged
from rmqtx_cli.pages.doc_pages import page_of
from rmqtx_cli.pages.glossary import WordEntry, entries
from rmqtx_cli.words import say
from rmqtx_cli.words.near import near
from rmqtx_cli.words.text import escaped


def run(options: ExplainCommand) -> int:
    """Run the command; return its exit status."""
    known = entries(all_views())
    if not options.words:
        _print(_by_kind(known), is_paged=not options.no_pager)
        return 0
    word = " ".join(options.words)
    parts = [of_word(known, part) for part in options.words]
    whole = of_word(known, word)
    found = whole or [entry for part in parts for entry in part]
    unknown = [] if whole else [
        part for part, entries_of_it in zip(options.words, parts, strict=True) if not entries_of_it
    ]
    if not found:
        raise unknown_word(known, word)
    lines = []
    for entry in found:
        lines += [f"{entry.word} ({entry.kind})", *(f"  {line}" for line in entry.lines)]
        if (page := page_of(entry.word, entry.kind)) is not None:
            lines.append(f"  page: {page}")
    _print(lines, is_paged=not options.no_pager)
    for part in unknown:
        say.error(str(unknown_word(known, part)))
    return exit_status.USAGE if unknown else exit_status.DONE


def unknown_word(known: Iterable[WordEntry], word: str) -> BadRequest:
    """Return the error for a word that is not explained, with the words that are like it."""
    close = near(word, dict.fromkeys(entry.word for entry in known))
    advice = f"did you mean {' or '.join(close)}?" if close else "list all words: rmqtx explain"
    return BadRequest(f"unknown word {escaped(word)!r}", advice=advice)


def of_word(known: Iterable[WordEntry], word: str) -> list[WordEntry]:
    """Return the entries of one word, which may have several parts."""
    plain = _plain(word)
    return [entry for entry in known if _plain(entry.word) == plain]


def _by_kind(known: Iterable[WordEntry]) -> list[str]:
    """Return the words under a heading for each kind."""
    kinds: dict[str, dict[str, None]] = {}
    for entry in known:
        kinds.setdefault(entry.kind, {})[entry.word] = None
    return [line for kind, words in kinds.items() for line in (f"{kind} ({len(words)})", f"  {', '.join(words)}")]


def _plain(word: str) -> str:
    """Return a word in lower case with underscores for hyphens and blanks."""
    return word.strip().lower().replace("-", "_").replace(" ", "_")


def _print(lines: list[str], *, is_paged: bool) -> None:
    room = min(shutil.get_terminal_size((100, 24)).columns, 120)
    with paged(None, is_wanted=is_paged) as stream:
        for line in lines:
            indent = line[: len(line) - len(line.lstrip())] + "    "
            text = "\n".join(textwrap.wrap(line, room, subsequent_indent=indent, break_on_hyphens=False))
            stream.write(f"{text}\n".encode())
