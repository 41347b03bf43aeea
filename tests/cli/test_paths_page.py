"""The tables of docs/paths.md are what the declarations say, and know every file of every store."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

import pytest

from rmqtx.readers.store.paths import CURSOR_FILES, PATHS
from rmqtx.readers.store.version_signs import VERSION_MARKS
from tests.brokers import corpus
from tests.forge.stores import opened
from tests.pages.list_pages import filled
from tests.representatives import each_store

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "paths.md"
#: Files of a broker below what is declared as a directory, and backups that no path helper names.
OTHERS = ("abort.bak", "commitlog-*/*", "dledger-*/checkpoint", "dledger-*/currterm")


def test_the_page_is_what_is_declared() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text == filled("paths.md", text), "make man"


def declared(path: str) -> bool:
    patterns = [
        re.sub(r"SELF|NAME", "*", part) for one in PATHS for part in one.path.split(", ")
    ]
    names = (path, path.removesuffix(".bak"))
    return any(
        fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(name, f"{pattern.rstrip('/')}/*")
        for pattern in (*patterns, *OTHERS) for name in names
    )


@pytest.mark.parametrize("name", each_store(corpus.all_names()))
def test_every_file_of_every_store_is_declared(name: str) -> None:
    root = Path(opened(name).root)
    files = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
    assert [path for path in files if not declared(path)] == []


def test_a_mark_is_declared_with_the_version_that_first_made_it() -> None:
    since = {one.path.rstrip("/"): one.since for one in PATHS}
    assert {name for name in VERSION_MARKS if not name.startswith("consumequeue/")} <= set(since)
    for name in corpus.all_names():
        recipe = corpus.recipe(name)
        if recipe.get("earlier") or "upgrade" in recipe:
            continue
        version = tuple(map(int, str(recipe["version"]).split(".")))
        there = [path for path, first in since.items() if first > version and opened(name).has(*path.split("/"))]
        assert there == [], name
    assert {f"config/{one.name}" for one in CURSOR_FILES} <= set(since)
