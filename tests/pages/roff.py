"""The roff that manual pages need; arguments are plain text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

#: Fixed, so that a page changes only with its contents.
DATE = "2026-11-21"


def escape(text: str) -> str:
    """Plain text as roff: backslashes, hyphens that must stay hyphens, and no line that looks like a request."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain[:1] in (".", "'") else plain


def bold(text: str) -> str:
    """Plain text as bold roff."""
    return f"\\fB{escape(text)}\\fR"


def heading(text: str) -> Iterator[str]:
    """A section's heading."""
    yield f".SH {text}"


def subheading(text: str) -> Iterator[str]:
    """A heading inside a section."""
    yield f".SS {escape(text)}"


def paragraph(text: str, *, is_roff: bool = False) -> Iterator[str]:
    """A paragraph of plain text, or of roff."""
    yield ".PP"
    yield text if is_roff else escape(text)


def item(term: str, meaning: str) -> Iterator[str]:
    """A term and its meaning."""
    yield ".TP"
    yield bold(term)
    yield escape(meaning) if meaning else "\\&"


def verbatim(text: str) -> Iterator[str]:
    """Lines that are kept as they are."""
    yield ".PP"
    yield ".nf"
    yield ".RS"
    for line in text.splitlines():
        yield escape(line)
    yield ".RE"
    yield ".fi"


def page(title: str, section: int, lines: Iterable[str]) -> str:
    """A whole page."""
    head = [
        '.\\" Made by `make man`; change the command or the layout, not this file.',
        f'.TH "{title.upper()}" "{section}" "{DATE}" "rmqtx" "rmqtx manual"',
        ".nh",
        ".ad l",
    ]
    return "\n".join([*head, *lines]) + "\n"
