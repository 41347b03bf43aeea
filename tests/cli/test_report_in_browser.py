"""The page of `rmqtx report` in a real browser: narrow and wide, light and dark, printed, and for a screen reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.cli.chromium import Browser, browser
from tests.cli.conftest import Run
from tests.cli.report_pages import read_page
from tests.cli.test_report import hostile_store
from tests.forge.logs import Forge

pytestmark = pytest.mark.slow

_WIDTHS = (380, 1600)
#: Elements outside of tables (which scroll) and drawings that reach over the right edge.
_TOO_WIDE = """[...document.querySelectorAll('body *')]
    .filter(one => !one.closest('.wide') && !one.closest('svg') && one.getBoundingClientRect().right > innerWidth + 1)
    .map(one => one.tagName + ' ' + one.textContent.slice(0, 40))"""
#: Texts whose contrast to the paper is under 4.5 (WCAG AA), of all colours that texts have.
_FAINT = """(() => {
    const parts = colour => colour.match(/[\\d.]+/g).slice(0, 3).map(Number)
    const light = colour => parts(colour).map(value => value / 255)
        .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
        .reduce((sum, value, place) => sum + value * [0.2126, 0.7152, 0.0722][place], 0)
    const paper = light(getComputedStyle(document.documentElement).backgroundColor)
    const ratio = colour => (Math.max(light(colour), paper) + 0.05) / (Math.min(light(colour), paper) + 0.05)
    const colours = new Set([...document.querySelectorAll('body *')].map(one => getComputedStyle(one).color))
    return [...colours].filter(colour => ratio(colour) < 4.5)
})()"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.mark.parametrize("name", ["common-5.3.3", "poison-4.5.0", "statetable-3.1.4", "rocksdb-5.5.0"])
def test_a_page_in_chromium(
    rmqtx: Run, tab: Browser, corpus_store: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    file = tmp_path / "page.html"
    version = ["--broker-version", "4.5.0"] if name == "poison-4.5.0" else []
    assert rmqtx("report", corpus_store(name), *version, "-o", file).status == 0
    check_page(tab, file)


def test_long_names_and_large_offsets_in_chromium(rmqtx: Run, tab: Browser, tmp_path: Path) -> None:
    forge = Forge(tmp_path / ("long" * 50), begin_offset=7 << 40)
    for number in range(3):
        half = forge.half(f"{number}" + "i" * 100, group="g" * 200, topic="t" * 120)
        forge.commit(half)
        forge.commit(half)
        forge.half(f"{number}" + "j" * 100, group="g" * 200, topic="t" * 120)
    file = tmp_path / "page.html"
    assert rmqtx("report", forge.write(), "-o", file).status in (0, 3)
    check_page(tab, file)


def check_page(tab: Browser, file: Path) -> None:
    """Nothing is too wide or too faint, and nothing is loaded, at any width and in any scheme."""
    page = read_page(file)
    tab.requests.clear()
    tab.messages.clear()
    for width in _WIDTHS:
        for scheme in ("light", "dark"):
            tab.open(file, width, scheme)
            assert tab.value("document.documentElement.scrollWidth") <= width
            assert tab.value(_TOO_WIDE) == []
            assert tab.value(_FAINT) == []
        check_accessible(tab, page.headings, len(page.tables), [figure.caption for figure in page.figures])
    assert set(tab.requests) == {file.resolve().as_uri()}
    assert tab.messages == []
    assert tab.printed().startswith(b"%PDF-")


def check_accessible(tab: Browser, headings: list[str], tables: int, captions: list[str]) -> None:
    """Headings in order, tables with cells and heads of rows, drawings with a name and a description."""
    nodes = tab.accessible()
    levels = tab.value("[...document.querySelectorAll('h1, h2, h3, h4')].map(one => Number(one.tagName[1]))")
    assert levels[0] == 1
    assert 1 not in levels[1:]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert len([name for role, name, _ in nodes if role == "heading"]) == len(levels) >= len(headings)
    assert len([role for role, _, _ in nodes if role == "table"]) == tables
    assert {"row", "rowheader", "cell", "columnheader", "caption"} <= {role for role, _, _ in nodes}
    drawn = {name: description for role, name, description in nodes if role in ("image", "img")}
    assert all(drawn.get(caption) for caption in captions)


def test_no_text_of_a_store_runs(rmqtx: Run, tab: Browser, tmp_path: Path) -> None:
    store, file = hostile_store(tmp_path / "st<img src=x onerror=alert(1)>ore"), tmp_path / "page.html"
    assert rmqtx("report", store, "-o", file).status in (0, 3)
    tab.requests.clear()
    tab.messages.clear()
    tab.open(file, 1600, "light")
    assert tab.value("document.querySelectorAll('script, img, a:not([href^=\"#\"]), iframe, object').length") == 0
    assert tab.value("document.body.textContent.includes('<script>alert(1)</script>')")
    assert (set(tab.requests), tab.messages) == ({file.resolve().as_uri()}, [])
