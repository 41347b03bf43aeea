"""The page on designs: each command in docs/generations.md is run on real stores, and prints what the page shows."""

from __future__ import annotations

import csv
import importlib.util
import re
from pathlib import Path

import pytest

from tests.brokers import corpus
from tests.cli import transcripts
from tests.cli.conftest import Run
from tests.cli.test_transcripts import ROOT, check
from tests.forge.stores import contents, unpacked

PAGE = ROOT / "docs" / "generations.md"
_STORE = re.compile(r"([a-z]+(?:-[a-z0-9.]+)+)/store")
_MARK = "```console\n"


def headings() -> list[str]:
    """Sections that have commands."""
    parts = re.split(r"^#+ ", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    return [part.splitlines()[0] for part in parts if _MARK in part]


def section(text: str, heading: str) -> str:
    """A section, to the next heading."""
    begin = re.search(rf"^#+ {re.escape(heading)}\n", text, re.MULTILINE)
    assert begin is not None
    return re.split(r"^#+ ", text[begin.end() :], maxsplit=1, flags=re.MULTILINE)[0]


pytestmark = pytest.mark.usefixtures("read_soon_after_they_were_written")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the stores that the page names, and the export of a database."""
    for name in sorted(set(_STORE.findall(PAGE.read_text("utf-8")))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "store").symlink_to(unpacked(name))
    known = corpus.expected("prepared-4.2.0")
    offsets = [
        next(row["half_commit_log_offset"] for row in known if row["state"] == state)
        for state in ("PENDING", "COMMITTED")
    ]
    with open(tmp_path / "t_transaction.csv", "w", newline="") as file:
        rows = [(offset, "shop") for offset in (*offsets, offsets[0] + 1)]
        csv.writer(file).writerows([("offset", "producerGroup"), *rows])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("heading", headings())
def test_commands_print_what_the_page_shows(
    desk: Path, rmqtx: Run, heading: str, request: pytest.FixtureRequest
) -> None:
    text = PAGE.read_text("utf-8")
    body = section(text, heading)
    names = _STORE.findall(body)
    if any(name.startswith("rocksdb") for name in names) and importlib.util.find_spec("rocksdict") is None:
        pytest.skip("rocksdict is not installed: pip install 'rmqtx[rocksdb]'")
    before = [contents(unpacked(name)) for name in names]

    def run(*words: str) -> tuple[int, str, str]:
        result = rmqtx(*words)
        assert "a bug" not in result.err
        return result.status, result.out, result.err

    blocks = body.split("```")
    for number, block in enumerate(blocks):
        if number % 2 and block.startswith("console\n"):
            head, steps = transcripts.parse(block.removeprefix("console\n"))
            for step in steps:
                step.output = transcripts.printed(step.command, run)
            blocks[number] = f"console\n{transcripts.text_of(head, steps)}"
    check(PAGE, text, text.replace(body, "```".join(blocks)), request)
    assert [contents(unpacked(name)) for name in names] == before


def test_each_design_and_each_error_has_its_section() -> None:
    """What the page is for, by its headings; what the tool calls the designs is in its first table."""
    from rmqtx.readers.log.designs import DESIGNS

    text = PAGE.read_text("utf-8")
    assert all(f"| `{word}` |" in text for word in DESIGNS)
    assert len(re.findall(r"^### \"", text, re.MULTILINE)) == 6
