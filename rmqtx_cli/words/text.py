"""Text from a store, made safe for a terminal: it must not run control sequences that a producer wrote."""

from __future__ import annotations

from itertools import groupby

#: From this length on a run of one unprintable character is written once, with its count.
_RUN_MIN = 8


def stored_text(argument: str) -> str:
    """An argument in the form of text from a store: bytes that are not UTF-8 as backslash escapes."""
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def escaped(text: str) -> str:
    r"""The text for people: unprintable characters as backslash escapes, a long run of one of them once with its count.

    A page of zeros that tears an id becomes `FD00\x00…(269 times)`.
    """
    if text.isprintable():
        return text
    return "".join(_run(character, len(list(same))) for character, same in groupby(text))


def _run(character: str, length: int) -> str:
    if character.isprintable():
        return character * length
    return _escape(character) * length if length < _RUN_MIN else f"{_escape(character)}…({length} times)"


def fully_escaped(text: str) -> str:
    """The text for programs, with every unprintable character as a backslash escape.

    Covers C0 and C1 controls, ESC, DEL, line and paragraph separators, bidi overrides, zero-width characters and lone
    surrogates; the ordinary space stays.
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escape(character) for character in text)


def _escape(character: str) -> str:
    number = ord(character)
    short = {9: "\\t", 10: "\\n", 13: "\\r"}.get(number)
    if short is not None:
        return short
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def width(text: str) -> int:
    """The number of terminal cells of a printable text; wide East Asian characters take two."""
    if text.isascii():
        return len(text)
    import wcwidth

    return max(0, wcwidth.wcswidth(text))


def cut(text: str, cells: int, *, keeps_end: bool = False) -> str:
    """The text, cut to a number of terminal cells; an ellipsis replaces its end, or its beginning with `keeps_end`."""
    if width(text) <= cells:
        return text
    if keeps_end:
        while text and width(text) > cells - 1:
            text = text[max(1, len(text) - cells + 1):]
        return "…" + text
    while text and width(text) > cells - 1:
        text = text[: min(len(text) - 1, cells - 1)]
    return text + "…"


def wrapped(text: str, cells: int, cells_of_more: int | None = None) -> list[str]:
    """The text in lines of at most this number of terminal cells, broken between words, or inside longer words.

    `cells_of_more`: the cells of all lines after the first, if these are others.
    """
    lines, more = [""], cells if cells_of_more is None else cells_of_more
    for word in text.split(" "):
        if lines[-1] and width(lines[-1]) + 1 + width(word) <= (cells if len(lines) == 1 else more):
            lines[-1] += f" {word}"
            continue
        if lines[-1]:
            lines.append("")
        for character in word:
            if width(lines[-1]) + width(character) > (cells if len(lines) == 1 else more) and lines[-1]:
                lines.append("")
            lines[-1] += character
    return lines


def count(number: int, noun: str, plural: str | None = None) -> str:
    """A number and its noun: 1 store, 2 stores, 1 234 567 bytes."""
    return f"{grouped(number)} {noun if number == 1 else plural or noun + 's'}"


def grouped(number: int) -> str:
    """A number with spaces between groups of three digits."""
    return f"{number:,}".replace(",", " ")


def size(count_bytes: int) -> str:
    """A number of bytes in a readable unit: 512 B, 3.2 MiB."""
    value = float(count_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{count_bytes} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError


def group_words(name: str | None) -> str:
    """Return a producer group in words."""
    return "unknown group" if name is None else f"group {name}"


def of_group(group: str | None, topic: str | None) -> str:
    """Return the producer group and the topic of a transaction in words."""
    return f"{group_words(group)}, {topic_words(topic)}"


def topic_words(name: str | None) -> str:
    """Return a topic in words."""
    return "unknown topic" if name is None else f"topic {name}"
