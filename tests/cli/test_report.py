"""`rmqtx report`: its numbers are those of audit, its drawings have a mark for each thing, no text becomes markup."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from rmqtx.readers.model.exit_status import DONE, INCOMPLETE
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import HALF_TOPIC, open_store
from rmqtx_cli.report.number_sections import GROUPS_MAX
from rmqtx_cli.words.text import escaped
from rmqtx_cli.words.times import parse_duration_ms
from tests.brokers import corpus
from tests.cli.conftest import Run
from tests.cli.report_pages import Page, read_page
from tests.forge.damage import log_files
from tests.forge.logs import Forge
from tests.forge.records import Message
from tests.remoting.fake import FakeServer
from tests.remoting.store_broker import StoreBroker

STATES = ("PENDING", "COMMITTED", "ROLLED_BACK", "DISCARDED", "LOST", "UNDECIDABLE")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
ELEMENTS = {
    "html", "head", "meta", "title", "style", "body", "header", "p", "h1", "h2", "h3", "h4", "nav", "ul", "li", "a",
    "main", "section", "dl", "div", "dt", "dd", "table", "caption", "thead", "tbody", "tr", "th", "td", "svg", "rect",
    "line", "desc", "figure", "figcaption", "ol", "b", "span", "code", "footer", "wbr",
}
SIZE_MAX = 500_000
Row = dict[str, Any]


@pytest.fixture
def reported(rmqtx: Run, tmp_path: Path) -> Callable[..., Page]:
    """Writes the page of a source and reads it."""

    def page(*arguments: object, status: int = 0) -> Page:
        file = tmp_path / "page.html"
        result = rmqtx("report", *arguments, "-o", file)
        assert result.status == status, result.err
        assert file.stat().st_size <= SIZE_MAX
        return read_page(file)

    return page


def audited(rmqtx: Run, *arguments: object) -> list[Row]:
    """All rows of an audit."""
    rows: list[Row] = json.loads(rmqtx("audit", *arguments, "--format", "json").out)
    return rows


def put_back(row: Row) -> list[tuple[Row, int | None]]:
    """The copies that the check put back, each with the end of what it had read at least."""
    found = []
    for place, copy in enumerate(row["half_copies"]):
        checks = copy["checks_count"] or 0
        if place and checks > 0:
            read = [one for one in row["half_copies"][:place] if (one["checks_count"] or 0) == checks - 1]
            found.append((copy, read[0]["queue_offset"] + 1 if read else None))
    return found


def event_times(rows: list[Row]) -> dict[str, list[int]]:
    """The times of all events, by the kinds of the timeline."""
    return {
        "half": [row["half_store_time_ms"] for row in rows if row["half_store_time_ms"] is not None],
        "commit": [
            row["decided_time_ms"] for row in rows
            if row["decided_time_ms"] is not None and row["state"] != "DISCARDED"
        ],
        "check": [copy["store_time_ms"] for row in rows for copy, _ in put_back(row)],
        "discard": [copy["store_time_ms"] for row in rows for copy in row["discard_copies"]],
    }


def check_numbers(page: Page, rows: list[Row]) -> None:
    """The numbers by state, flag and group, the ages, and the kinds that are shown in full."""
    states = Counter(row["state"] for row in rows)
    assert {cells[0]: int(cells[1]) for cells in page.table("Transactions by state")} == states
    flags = Counter(flag for row in rows for flag in row["flags"])
    assert {cells[0]: int(cells[1]) for cells in page.table("Flags: what is unusual")} == flags
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["producer_group"] or "unknown group", row["topic"] or ""), []).append(row)
    found_groups = {(cells[0], cells[1]): cells[2:] for cells in page.table("Transactions by producer group and topic")}
    assert len(found_groups) == min(len(groups), GROUPS_MAX)
    for name, cells in found_groups.items():
        mine = groups[name]
        counts = [sum(row["state"] == state for row in mine) for state in STATES if states[state]]
        flagged, copies = sum(bool(row["flags"]) for row in mine), sum(len(row["half_copies"]) for row in mine)
        assert [int(cell) for cell in cells] == [len(mine), *counts, flagged, copies], name
    pending = Counter(row["producer_group"] or "unknown group" for row in rows if row["state"] == "PENDING")
    ages = page.table("Pending transactions by producer group and age")
    assert {cells[0]: int(cells[1]) for cells in ages} == pending
    assert all(sum(map(int, cells[4:])) == int(cells[1]) for cells in ages)
    kinds = {
        "pending": states["PENDING"], "lost": states["LOST"],
        "delivered-twice": sum("duplicate_commit" in row["flags"] for row in rows),
    }
    for kind, number in kinds.items():
        sections = [given["id"] for tag, given in page.tags if tag == "section" and given.get("id")]
        assert sum(str(one).startswith(f"{kind}-") for one in sections) == min(number, 5), kind


def check_drawings(page: Page, rows: list[Row]) -> None:
    """A mark for each step that has events, and for each record of a transaction that is shown."""
    times = event_times(rows)
    timeline = page.figure("timeline")
    assert timeline is not None
    step = re.search(r"In steps of (\w+);", timeline.description)
    assert step is not None
    step_ms = parse_duration_ms(step[1])
    assert timeline.marks == Counter({kind: len({time // step_ms for time in of}) for kind, of in times.items() if of})
    assert [label.split()[1].rstrip(",") for label in timeline.labels[:4]] == [str(len(of)) for of in times.values()]
    by_id = {row["transaction_id"]: row for row in rows}
    shown = [heading.partition(": ")[0] for heading in page.headings if heading.partition(": ")[0] in by_id]
    drawn = [figure for figure in page.figures if figure.caption == "Records along the commit log"]
    assert len(shown) == len(drawn)
    for name, figure in zip(shown, drawn, strict=True):
        row = by_id[name]
        checks = sum((copy["checks_count"] or 0) > 0 for copy in row["half_copies"])
        counts = {
            "half": len(row["half_copies"]) - checks, "check": checks, "op": len(row["op_marks"]),
            "commit": len(row["final_records"]), "discard": len(row["discard_copies"]),
        }
        assert figure.marks == Counter({kind: count for kind, count in counts.items() if count}), name


def check_way(page: Page, rows: list[Row]) -> None:
    """A mark for each step of the way, and one for each step in which the check put a copy back."""
    ends = [copy["store_time_ms"] for row in rows for copy in row["half_copies"]]
    checks = [(copy["store_time_ms"], read) for row in rows for copy, read in put_back(row) if read is not None]
    way = page.figure("cursors", "The way of the check")
    assert (way is None) == (not checks)
    if way is not None:
        first, last = min(ends) // 1_000, max(ends) // 1_000
        steps = {time // 1_000 for time, _ in checks}
        assert way.marks == Counter({"span": last - first + 1, "check": len(steps)})
        assert f"read {max(read for time, read in checks if time // 1_000 == max(steps))}" in way.labels[0]


def check_all(rmqtx: Run, reported: Callable[..., Page], store: Path, status: int = 0) -> Page:
    """Compare a page with the audit of its store."""
    rows, page = audited(rmqtx, store), reported(store, status=status)
    check_numbers(page, rows)
    check_drawings(page, rows)
    return page


def test_the_page_has_the_numbers_of_the_audit(rmqtx: Run, reported: Callable[..., Page], common: Path) -> None:
    page = check_all(rmqtx, reported, common)
    check_way(page, audited(rmqtx, common))
    policies = [given["content"] for tag, given in page.tags if given.get("http-equiv") == "Content-Security-Policy"]
    assert policies == [POLICY]
    assert {tag for tag, _ in page.tags} <= ELEMENTS
    ids = [given["id"] for _, given in page.tags if given.get("id")]
    assert len(ids) == len(set(ids))
    links = [given["href"] for tag, given in page.tags if tag == "a"]
    assert {f"#{name}" for name in ids} >= set(links)
    assert [rows for _, _, rows in page.tables if len({len(row) for row in rows}) != 1] == []
    cursors = {cells[1]: cells[2:] for cells in page.table("Queues of the check, in queue offsets")}
    assert cursors["half"] == ["0", "269", "289", "20"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["acting-5.3.3", "killed-5.5.0", "busystop-5.3.3", "poison-4.5.0", "statetable-lossy-3.1.4", "rocksdb-5.5.0",
     "cursorback-5.3.3", "rocksdb-queues-5.5.0", "dledger-5.1.4"],
)
def test_numbers_of_other_stores(
    rmqtx: Run, reported: Callable[..., Page], corpus_store: Callable[[str], Path], name: str
) -> None:
    # Some possible releases stop at the half message of poison-4.5.0, others do not.
    status = INCOMPLETE if name == "poison-4.5.0" else DONE
    page = check_all(rmqtx, reported, corpus_store(name), status)
    if page.figure("cursors") is not None:
        check_way(page, audited(rmqtx, corpus_store(name)))


def test_lost_transactions_are_shown_with_their_records(
    rmqtx: Run, reported: Callable[..., Page], tmp_path: Path
) -> None:
    forge = Forge(tmp_path / "store")
    for number in range(7):
        forge.half(f"id{number}")
    page = check_all(rmqtx, reported, forge.write(half_cursor=7))
    assert "7 LOST (not delivered)" in page.text
    assert "5 of 7, the oldest first." in page.text
    shown = [heading for heading in page.headings if heading.endswith(": LOST")]
    assert shown == [f"id{number}: LOST" for number in range(5)]


@pytest.mark.slow
def test_a_live_broker(rmqtx: Run, reported: Callable[..., Page], common: Path) -> None:
    store = open_store(common)
    settings = broker_settings(store, conf=corpus.recipe("common-5.3.3")["broker_conf"], version="5.3.3")
    with FakeServer(StoreBroker(store, settings, "5.3.3")) as server:
        rows = audited(rmqtx, "--broker", server.address)
        page = reported("--broker", server.address)
    check_numbers(page, rows)
    check_drawings(page, rows)
    check_way(page, rows)
    assert "A live broker was read over the network: its records have no digest." in page.text


@pytest.mark.slow
def test_a_damaged_store(rmqtx: Run, reported: Callable[..., Page], common: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(common, tmp_path / "store"))
    log = log_files(store)[0]
    data = bytearray(log.read_bytes())
    data[30_000:36_000] = b"\xff" * 6_000
    log.write_bytes(data)
    page = check_all(rmqtx, reported, store, status=3)
    found = {cells[0]: cells for cells in page.table("Findings by kind")}
    assert found["record-damaged"][1] == "error"
    assert "evidence is missing or damaged" in page.text
    assert f"rmqtx verify {store}" in page.text
    total = re.search(r": ([\d ]+) decoded \+ ([\d ]+) filler \+ ([\d ]+) damaged \+ ([\d ]+) unread = ([\d ]+)\.",
                      page.text)
    assert total is not None
    *parts, whole = (int(number.replace(" ", "")) for number in total.groups())
    assert sum(parts) == whole
    assert parts[2] > 0


def test_one_transaction(rmqtx: Run, reported: Callable[..., Page], common: Path, tmp_path: Path) -> None:
    row = max(audited(rmqtx, common), key=lambda row: len(row["half_copies"]))
    page = reported(common, "--transaction", row["transaction_id"])
    assert page.headings[0] == f"Transaction {row['transaction_id']}"
    check_drawings_of_one = page.figure("transaction-1")
    assert check_drawings_of_one is not None
    assert check_drawings_of_one.marks["half"] + check_drawings_of_one.marks["check"] == len(row["half_copies"])
    offsets = {cells[4] for cells in page.table("Events and the records that prove them")}
    assert offsets >= {str(copy["commit_log_offset"]) for copy in row["half_copies"]}
    result = rmqtx("report", common, "--transaction", row["transaction_id"], "-o", tmp_path / "one.md")
    assert result.status == 0
    assert row["transaction_id"] in (tmp_path / "one.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_an_earlier_store_and_an_earlier_audit(
    rmqtx: Run, reported: Callable[..., Page], common: Path, tmp_path: Path
) -> None:
    later = Path(shutil.copytree(common, tmp_path / "later"))
    rows = audited(rmqtx, common)
    pending = sum(row["state"] == "PENDING" for row in rows)
    file = tmp_path / "yesterday.parquet"
    assert rmqtx("audit", common, "-o", file).status == 0
    for earlier in (common, file):
        page = reported(later, "--compare", earlier)
        found = {cells[0]: cells[1:] for cells in page.table("States before and now")}
        assert found["all"] == [str(len(rows)), str(len(rows)), "0"]
        assert found["PENDING"] == [str(pending), str(pending), "0"]
        drawn = [page.figure("compared", word) for word in ("Before", "Now")]
        assert [one is not None for one in drawn] == [earlier is common] * 2
        assert len({str(one and one.marks) for one in drawn}) == 1


def test_what_is_refused(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    pdf = rmqtx("report", common, "-o", tmp_path / "page.pdf")
    assert pdf.status == 2
    assert ".html" in pdf.err
    both = rmqtx("report", common, "--transaction", "X", "--compare", common, "-o", tmp_path / "page.html")
    assert both.status == 2
    inside = rmqtx("report", common, "-o", common / "page.html")
    assert inside.status != 0
    assert not list(tmp_path.glob("page*"))
    assert not (common / "page.html").exists()


HOSTILE = (
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "'><svg onload=alert(1)>", "</title><script>x",
    "</style><b>x", "</svg><a href=//x>x", "<!--", "-->", "<![CDATA[x", "&lt;script&gt;&amp;", "{{ 7 * 7 }}",
    "{% include 'x' %}", "javascript:alert(1)", "[x](https://evil.example)", "![x](https://evil.example/x.png)",
    "`x` | **b** | _i_", "```\n# heading", "a\u202eb\u2066c\u200fd", "a\x1b[31m\x00\x07\u0085b",
    "\n- item\n\n<b>x</b>\n",
)
INVISIBLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
VISIBLE = (r"\u202e", r"\u2066", r"\x1b", r"\x07", r"\n")


def hostile_store(root: Path) -> Path:
    """A store whose every id, group, topic, key and body is hostile; some are delivered twice."""
    forge = Forge(root, segment_bytes=16_384)
    for text in HOSTILE:
        plain = text.replace("\x00", "")
        properties = (
            ("REAL_TOPIC", plain), ("TRAN_MSG", "true"), ("UNIQ_KEY", plain), ("PGROUP", plain), ("REAL_QID", "1"),
            ("KEYS", plain),
        )
        half = forge.append(Message(topic=HALF_TOPIC, body=text.encode(), properties=properties))
        if len(text) % 2:
            forge.commit(half)
            forge.commit(half)
    return forge.write()


def test_no_text_of_a_store_becomes_markup(
    rmqtx: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(HOSTILE) == 20
    monkeypatch.setattr("rmqtx_cli.report.gathering.SHOWN_MAX", len(HOSTILE))
    store = hostile_store(tmp_path / "st<img src=x onerror=alert(1)>`ore\u202eb\x1b[31m\n# c")
    file = tmp_path / "page.html"
    assert rmqtx("report", store, "--compare", store, "-o", file).status in (0, 3)
    page = read_page(file)
    assert {tag for tag, _ in page.tags} <= ELEMENTS
    names = {name for _, given in page.tags for name in given}
    assert not [name for name in names if name.startswith("on") or name in ("src", "xlink:href", "action")]
    assert all(tag == "a" and str(given["href"]).startswith("#") for tag, given in page.tags if "href" in given)
    for text in HOSTILE:
        plain = escaped(text.replace("\x00", ""))
        facts = {place for tag, place in page.texts if tag == "dd"}
        assert f"{plain}, queue 1" in facts, "topic"
        assert plain in facts, "group and keys"
        assert any(heading.startswith(f"{plain}: ") for heading in page.headings), "id"
    assert all(text in page.text for text in VISIBLE)
    assert not INVISIBLE.search(file.read_text(encoding="utf-8"))
    check_markdown(rmqtx, store, tmp_path / "page.md")


def check_markdown(rmqtx: Run, store: Path, file: Path) -> None:
    """Markdown of a hostile store has our headings, tables and lists, and no link, image, emphasis, code or HTML."""
    assert rmqtx("report", store, "-o", file).status in (0, 3)
    text = file.read_text(encoding="utf-8")
    assert len(text.encode()) <= SIZE_MAX
    assert not INVISIBLE.search(text)
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    found = {token.type for token in tokens} | {
        child.type for token in tokens for child in token.children or ()
    }
    assert found <= {
        *(f"{name}_{side}" for name in ("heading", "paragraph", "table", "thead", "tbody", "tr", "th", "td",
                                        "bullet_list", "list_item", "strong") for side in ("open", "close")),
        "inline", "text", "text_special", "softbreak", "fence",
    }
    bold = [token.content for token in tokens if token.type == "inline" and "**b**" in token.content]
    assert all(r"\*\*b\*\*" in content for content in bold)


@pytest.mark.slow
def test_a_page_stays_small(rmqtx: Run, reported: Callable[..., Page], tmp_path: Path) -> None:
    """Many groups, topics, copies and commits of each transaction, long texts that escapes make longer, many stores."""
    stores = []
    for name in range(12):
        forge = Forge(tmp_path / f"{'&' * 150}{name}", segment_bytes=1 << 20)
        for number in range(30):
            group, topic = f"g{number}-{name}" + "<" * 200, f"t{number}-" + "&" * 100
            halves = [
                forge.half(f"id{number}-{name}-" + '"' * 150, checks=checks, group=group, topic=topic)
                for checks in range(70)
            ]
            for half in halves[: number % 2 * 70]:
                forge.now_ms += 60_000
                forge.commit(half)
                forge.op(half)
                forge.discard(half)
        stores.append(forge.write())
    page = reported(*stores, status=0)
    states = Counter(row["state"] for row in audited(rmqtx, *stores))
    assert {cells[0]: int(cells[1]) for cells in page.table("Transactions by state")} == states
    assert "to keep the page small" in page.text
