"""docs/formats/: diagrams are what the declarations say, and each section that is named anywhere is there."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from pathlib import Path

import pytest

from rmqtx.readers.log.record_layout import RECORD
from rmqtx.readers.model.findings import KINDS
from rmqtx.readers.model.releases import DEFAULTS
from rmqtx.readers.queues.consume_queue import SLOT
from rmqtx_cli.commands.all_views import all_views
from rmqtx_cli.pages.doc_pages import FINDING_PAGES, page_of
from rmqtx_cli.pages.glossary import entries
from tests.pages.formats_page import BLOCK, drawing, filled, layouts

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted((DOCS / "formats").glob("*.md"))
#: Where code and pages are: all that names a section.
NAMING = ("readers", "verdicts", "remoting", "repairs", "spark_tasks", "rmqtx_cli", "tests", "benchmarks", "man")
_ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
_CITED = re.compile(r"docs/formats/(\w+\.md)(?:#([\w-]+))?")
_LINK = re.compile(r"\]\(([^)\s:#]*\.md)?(?:#([\w-]+))?\)")
_FINDINGS = re.compile(r"^Findings: (.*?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)
#: Findings that no file has: of live brokers, and of rmqtx's own journal.
_OF_NO_FILE = {
    "dispatch-behind", "dispatch-ahead", "rocksdb-transactions", "prepared-unlisted", "prepared-unwalked", "index-off",
    "key-incomplete", "index-unproven", "ops-unreadable", "entries-unread", "copies-missing", "foreign-unsearched",
    "receipt-torn", "receipt-unreadable",
}
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchors(page: Path) -> list[str]:
    return _ANCHOR.findall(page.read_text("utf-8"))


def cited() -> dict[tuple[str, str], list[Path]]:
    """Page and section → the files that name it."""
    found: dict[tuple[str, str], list[Path]] = {}
    named = (path for folder in NAMING for path in (ROOT / folder).rglob("*"))
    files = [path for path in named if path.suffix in (".py", ".1", ".5") and path.is_file()]
    for path in [*files, *DOCS.rglob("*.md"), *ROOT.glob("*.md")]:
        for page, anchor in _CITED.findall(path.read_text("utf-8").replace("\\-", "-")):
            found.setdefault((page, anchor), []).append(path)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_diagrams_are_current(page: Path) -> None:
    text = page.read_text("utf-8")
    assert filled(text) == text, "run make man"


def test_each_structure_is_drawn_once() -> None:
    drawn = Counter(found["name"] for page in PAGES for found in BLOCK.finditer(page.read_text("utf-8")))
    assert drawn == Counter(layouts().keys())


def test_each_field_is_named_in_its_drawing() -> None:
    for layout in layouts().values():
        text = "\n".join(drawing(layout))
        for field in layout.fields:
            assert re.search(rf"\| {field.name} *\|", text), (layout.name, field.name)


def test_whatever_is_cited_is_there() -> None:
    found = cited()
    assert len(found) > 50
    there = {(page.name, anchor) for page in PAGES for anchor in [*anchors(page), ""]}
    assert {name: files for name, files in found.items() if name not in there} == {}


def test_a_section_has_a_name_of_its_own() -> None:
    for page in PAGES:
        assert [name for name, count in Counter(anchors(page)).items() if count > 1] == [], page.name


@pytest.mark.parametrize("page", [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md"))], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for name, anchor in _LINK.findall(page.read_text("utf-8")):
        target = (page.parent / name).resolve() if name else page
        assert target.is_file(), name
        titles = _HEADING.findall(target.read_text("utf-8"))
        headings = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
        assert not anchor or anchor in {*anchors(target), *headings}, f"{name}#{anchor}"


def test_each_page_is_in_the_index() -> None:
    named = Counter(name for name, _ in _LINK.findall((DOCS / "README.md").read_text("utf-8")))
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} - {"README.md"}
    assert {name for name in named if not name.startswith("..")} == pages
    assert max(count for name, count in named.items()) == 1


def test_the_readme_stays_short() -> None:
    assert (ROOT / "README.md").stat().st_size <= 9 * 1024, "move it to a page of docs/"


def test_each_page_is_in_the_menu_of_the_site() -> None:
    menu = (ROOT / "deploy" / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    named = Counter(re.findall(r"[\w/-]+\.md", menu))
    assert set(named) == {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert set(named.values()) == {1}


def test_each_finding_is_on_the_page_of_its_structure() -> None:
    named = {
        code for page in PAGES for line in _FINDINGS.findall(page.read_text("utf-8"))
        for code in re.findall(r"`([a-z-]+)`", line)
    }
    wanted = set(KINDS) - _OF_NO_FILE
    assert named == wanted, "name it on the line `Findings:` of its structure's page, or in _OF_NO_FILE"


def test_explain_names_the_page_that_lists_a_finding() -> None:
    lines = {page.stem: "".join(_FINDINGS.findall(page.read_text("utf-8"))) for page in PAGES}
    listed = {name: set(re.findall(r"`([a-z-]+)`", text)) for name, text in lines.items()}
    for page, codes in FINDING_PAGES.items():
        assert set(codes) <= listed[page], page
    assert {code for codes in FINDING_PAGES.values() for code in codes} == set(KINDS) - _OF_NO_FILE


def test_each_page_that_explain_names_is_there() -> None:
    named = {page_of(entry.word, entry.kind) for entry in entries(all_views())} - {None}
    assert len(named) > 15
    assert [page for page in named if page is not None and not (ROOT / page).is_file()] == []


def test_settings_have_the_defaults_of_the_table() -> None:
    text = (DOCS / "formats" / "cursors.md").read_text("utf-8")
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    rows = {name: line.split("|")[2] for line in lines for name in DEFAULTS if f"`{name}`" in line}
    assert len(rows) > 4
    for name, newest in rows.items():
        assert re.search(rf"\b{DEFAULTS[name][-1][1]}\b", newest), f"{name}: docs/formats/cursors.md#settings"


def test_the_example_is_a_record() -> None:
    text = (DOCS / "formats" / "half_and_op.md").read_text("utf-8")
    lines = text.partition('<a id="example"></a>')[2].split("```")[1].strip().splitlines()
    data = bytes.fromhex("".join(re.match(r"(?:[0-9A-F]{2,} ?)+(?=  |$)", line)[0] for line in lines))  # type: ignore[index]
    values = RECORD.unpack(data)
    body = data[RECORD.size_bytes :][: values["body_length_bytes"]]
    assert (values["length_bytes"], values["queue_offset"], body) == (len(data), 17, b"42,")
    assert values["body_crc"] == zlib.crc32(body) & 0x7FFFFFFF
    slot = SLOT.pack(commit_log_offset=12_288, record_length_bytes=len(data), tags_code=ord("d"))
    begin = values["body_length_bytes"] + RECORD.size_bytes
    assert data[begin + 1 :][: data[begin]] == b"RMQ_SYS_TRANS_OP_HALF_TOPIC"
    assert slot.hex().upper() in text.replace(" ", "")
