"""`rmqtx explain`: explain a word of the output."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.commands import Example
from rmqtx_cli.options import completion
from rmqtx_cli.output.pager import NoPagerOption
from rmqtx_cli.words import exit_status, say

if TYPE_CHECKING:
    from rmqtx_cli.pages.glossary import WordEntry

NAME = "explain"
EXAMPLES = (
    Example("rmqtx explain", "list all words, by kind"),
    Example("rmqtx explain open_after_decision", "a flag"),
    Example("rmqtx explain decided-twice", "a cause"),
    Example("rmqtx explain transactionCheckMax", "a setting of the broker"),
    Example("rmqtx explain 16", "an exit status"),
)

WordArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="WORD", autocompletion=completion.words,
        help="State, flag, advice, reason, cause, finding, guard, term, setting of the broker, table, column, "
        "structure, response code or exit status",
    ),
]


def command(words: WordArgument = None, no_pager: NoPagerOption = False) -> int:
    """Explain words of the output, and name their pages of the documentation.

    Without a word, lists all words by kind.
    """
    from rmqtx_cli.commands.all_views import all_views
    from rmqtx_cli.pages.doc_pages import page_of
    from rmqtx_cli.pages.glossary import entries

    known = entries(all_views())
    if not words:
        _print(_by_kind(known), is_paged=not no_pager)
        return 0
    word = " ".join(words)
    parts = [_of_word(known, part) for part in words]
    whole = _of_word(known, word)
    found = whole or [entry for part in parts for entry in part]
    unknown = [] if whole else [part for part, entries_of_it in zip(words, parts, strict=True) if not entries_of_it]
    if not found:
        raise _unknown(known, word)
    lines = []
    for entry in found:
        lines += [f"{entry.word} ({entry.kind})", *(f"  {line}" for line in entry.lines)]
        if (page := page_of(entry.word, entry.kind)) is not None:
            lines.append(f"  page: {page}")
    _print(lines, is_paged=not no_pager)
    for part in unknown:
        say.error(str(_unknown(known, part)))
    return exit_status.USAGE if unknown else exit_status.DONE


def _unknown(known: Iterable[WordEntry], word: str) -> BadRequest:
    """Return the error for a word that is not explained, with the words that are like it."""
    from rmqtx_cli.words.near import near
    from rmqtx_cli.words.text import escaped

    close = near(word, dict.fromkeys(entry.word for entry in known))
    advice = f"did you mean {' or '.join(close)}?" if close else "list all words: rmqtx explain"
    return BadRequest(f"unknown word {escaped(word)!r}", advice=advice)


def _of_word(known: Iterable[WordEntry], word: str) -> list[WordEntry]:
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
    import shutil
    import textwrap

    from rmqtx_cli.output.pager import paged

    room = min(shutil.get_terminal_size((100, 24)).columns, 120)
    with paged(None, is_wanted=is_paged) as stream:
        for line in lines:
            indent = line[: len(line) - len(line.lstrip())] + "    "
            text = "\n".join(textwrap.wrap(line, room, subsequent_indent=indent, break_on_hyphens=False))
            stream.write(f"{text}\n".encode())
