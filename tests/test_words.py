"""The words that docs/style.md rules out: their number in strings, docstrings, comments and pages may only fall."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
STYLE = ROOT / "docs" / "style.md"

_ROW = re.compile(r"^\| ([^|]+) \| [^|]+ \| (\d+) \|$", re.MULTILINE)


_WORD = re.compile(r"\w+")

#: A string literal, or a comment, which is the group: one pass takes a tenth of the tokenizer's time.
_LITERAL_OR_COMMENT = re.compile(
    r'''"""(?:[^\\]|\\.)*?"""|'{3}(?:[^\\]|\\.)*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|(#[^\n]*)''',
    re.DOTALL,
)


class Row(NamedTuple):
    """Phrases that are not written, and how often they still are."""

    phrases: tuple[str, ...]
    left: int


def rows() -> list[Row]:
    """The rows of the page's table."""
    table = STYLE.read_text(encoding="utf-8").partition("| not | say | left |")[2]
    return [Row(tuple(phrases.split(", ")), int(left)) for phrases, left in _ROW.findall(table)]


def _python_texts(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    for literal in _LITERAL_OR_COMMENT.finditer(source):
        if literal[1] is not None:
            yield literal[1]


@functools.cache
def texts() -> dict[str, str]:
    """Texts of the product and its pages by file, without code samples, names in backquotes and the list itself."""
    found = {}
    listing = ["git", "ls-files", "-co", "--exclude-standard"]
    for name in subprocess.check_output(listing, cwd=ROOT, text=True).splitlines():
        path = ROOT / name
        # Pages in Chinese have no English but names, which tests/man/test_translated_pages.py compares.
        if not path.is_file() or name.startswith("tests/") or "zh-CN" in name:
            continue
        if path.suffix == ".py":
            text = "\n".join(_python_texts(path.read_text(encoding="utf-8")))
        elif path.suffix == ".md" and path != STYLE:
            text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        else:
            continue
        found[name] = re.sub(r"`[^`\n]*`", "", text)
    return found


@functools.cache
def words() -> dict[str, list[tuple[str, int]]]:
    """Where each word stands in the texts: the file, and the place in its text. One pass finds all of them."""
    found: dict[str, list[tuple[str, int]]] = {}
    for name, text in texts().items():
        for match in _WORD.finditer(text):
            found.setdefault(match[0].lower(), []).append((name, match.start()))
    return found


def places(phrases: tuple[str, ...]) -> list[str]:
    """Where phrases stand, with the words around each."""
    either = "|".join(r"\s+".join(map(re.escape, phrase.split())) for phrase in phrases)
    pattern = re.compile(rf"\b(?:{either})\b", re.IGNORECASE)
    begins = {_WORD.findall(phrase)[0].lower() for phrase in phrases}
    found, end = [], dict.fromkeys(texts(), 0)
    for name, start in sorted(place for begin in begins for place in words().get(begin, [])):
        text = texts()[name]
        match = pattern.match(text, start) if start >= end[name] else None
        if match:
            end[name] = match.end()
            found.append(f"{name}: …{' '.join(text[max(0, start - 40) : match.end() + 40].split())}…")
    return found


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.phrases[0].replace(" ", "_"))
def test_words_not_written_do_not_come_back(row: Row) -> None:
    found = places(row.phrases)
    assert len(found) <= row.left, f"{len(found)} in place of {row.left}; see docs/style.md\n" + "\n".join(found)
    assert len(found) == row.left, f"{len(found)} are left, docs/style.md has {row.left}: lower it"


def test_the_page_has_its_list() -> None:
    assert len(rows()) >= 30
    assert "verdicts/model/verdict_inputs.py" in texts()
    assert "docs/runbook.md" in texts()
