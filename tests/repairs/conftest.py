"""What tests of acts and of changes in place share: a journal, a small store, and where its undo file goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx.repairs.receipts.journal import Journal
from tests.repairs.small_store import lay_out_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A small store of its own."""
    return lay_out_store(tmp_path / "store")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The undo file, which is not there yet."""
    return tmp_path / "kept.undo"


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A journal without receipts."""
    return Journal(tmp_path / "state" / "receipts.jsonl")
