"""The pages in Chinese have the commands, tables, screens and links of the English ones."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = {ROOT / "README.md": ROOT / "README.zh-CN.md"} | {
    ROOT / "docs" / page.name: page for page in sorted((ROOT / "docs" / "zh-CN").glob("*.md"))
}
_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
_NAMED = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^(#+) ", re.MULTILINE)


def parts(page: Path) -> dict[str, object]:
    """What a translation keeps: screens, shapes of tables, names in backquotes, targets of links, headings."""
    text = page.read_text("utf-8")
    plain = _BLOCK.sub("", text)
    other = {*PAGES, *PAGES.values()}
    links = [(page.parent / name.partition("#")[0] if name[0] != "#" else page, name.partition("#")[2])
             for name in _LINK.findall(plain) if "://" not in name]
    english = {chinese: one for one, chinese in PAGES.items()}
    targets = Counter((english.get(one.resolve(), one.resolve()), anchor) for one, anchor in links)
    for one in other:  # the line with the other language
        targets.pop((english.get(one, one), ""), None)
    return {
        "screens": _BLOCK.findall(text),
        "tables": [[line.count("|") for line in table.splitlines()] for table in _TABLE.findall(plain)],
        "names": Counter(_NAMED.findall(plain)),
        "links": targets,
        "headings": _HEADING.findall(plain),
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@pytest.mark.parametrize("part", ["screens", "tables", "names", "links", "headings"])
def test_both_pages_have_the_same(page: Path, part: str) -> None:
    assert parts(PAGES[page])[part] == parts(page)[part], f"change {PAGES[page].name} as {page.name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_page_names_the_other(page: Path) -> None:
    assert f"({PAGES[page].relative_to(page.parent)})" in page.read_text("utf-8")
    assert f"[English]({'../' if page.parent != ROOT else ''}{page.name})" in PAGES[page].read_text("utf-8")


@pytest.mark.parametrize("page", PAGES.values(), ids=lambda page: page.name)
def test_chinese_words_and_marks(page: Path) -> None:
    plain = _BLOCK.sub("", page.read_text("utf-8"))
    terms = (ROOT / "docs/style.md").read_text("utf-8").partition("## Chinese terms\n")[2].partition("\n## ")[0]
    avoided = ", ".join(re.findall(r"^\| .* \| (.+) \|$", terms, re.MULTILINE)).split(", ")
    assert len(avoided) > 15
    assert [word for word in avoided if word in _NAMED.sub("", plain)] == [], "docs/style.md, Chinese terms"
    assert re.findall(r"[，。；：）”]\*+[\u4e00-\u9fff].*", plain) == [], "emphasis that is not rendered"
    assert re.findall(r"[\u4e00-\u9fff]\n *[\u4e00-\u9fff].*", plain) == [], "a line break inside a sentence is a blank"


def test_a_change_of_one_page_is_found(tmp_path: Path) -> None:
    text = (ROOT / "docs/zh-CN/triage.md").read_text("utf-8")
    english = parts(ROOT / "docs/triage.md") | {"links": None}
    for before, after in (("-o plan.json", "-o p.json"), ("| s | `skip` |", "| s |"), ("`--plain`", "`--plane`")):
        changed = tmp_path / "page.md"
        changed.write_text(text.replace(before, after), "utf-8")
        assert parts(changed) | {"links": None} != english
