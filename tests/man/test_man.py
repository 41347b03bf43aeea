"""The manual pages: current, complete, and sound roff."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rmqtx.readers.model.exit_status import CHECK_MEANINGS, MEANINGS
from rmqtx.readers.model.findings import KINDS
from rmqtx.readers.model.tables import ALL_TABLES
from rmqtx.verdicts.model.verdict_words import ADVICE, STATES
from rmqtx.verdicts.transactions.flags import FLAGS
from rmqtx.verdicts.transactions.reason_codes import REASONS
from rmqtx_cli.pages.glossary import LAYOUT_MODULES
from tests.pages.manual import pages
from tests.pages.roff import escape

MAN = Path(__file__).resolve().parents[2] / "man"


def test_pages_are_current() -> None:
    current = pages()
    assert {path.name for path in MAN.iterdir()} == set(current), "run make man"
    for name, text in current.items():
        assert (MAN / name).read_text("utf-8") == text, f"{name}: run make man"


def test_every_exit_status_is_in_the_first_page() -> None:
    text = (MAN / "rmqtx.1").read_text("utf-8")
    for meanings in (MEANINGS, CHECK_MEANINGS):
        for number, meaning in meanings.items():
            assert f"\\fB{number}\\fR\n{escape(meaning)}." in text


def test_every_word_is_in_the_store_page() -> None:
    text = (MAN / "rmqtx-store.5").read_text("utf-8")
    findings = [f"{code} ({kind.severity})" for code, kind in KINDS.items()]
    for word in [*STATES, *FLAGS, *ADVICE, *REASONS, *ALL_TABLES, *findings]:
        assert escape(word) in text, word


def test_every_declared_structure_is_documented() -> None:
    root = MAN.parent
    declaring = {
        ".".join(path.relative_to(root).with_suffix("").parts)
        for path in (root / "rmqtx" / "readers").rglob("*.py") if "= Layout(" in path.read_text("utf-8")
    }
    assert declaring == {module.__name__ for module in LAYOUT_MODULES}


@pytest.mark.parametrize("page", sorted(MAN.iterdir()), ids=lambda path: path.name)
def test_pages_are_sound_roff(page: Path) -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", str(page)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
