"""`show` and `audit` agree on a log that is damaged behind a transaction, though queues and index are whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.store.store import OP_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import show
from tests.forge import damage
from tests.forge.stores import copy_of, settings_of

NAME = "common-4.9.7"


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A store whose log lacks an op message in its middle: it may have ended any half before it that no other ended."""
    root = copy_of(NAME, tmp_path)
    ops = [row for row in scan_records(open_store(root)).table().to_pylist() if row["topic"] == OP_TOPIC]
    op = ops[len(ops) // 2]
    damage.zero_bytes(Path(op["file"]), op["position_bytes"], op["length_bytes"])
    return root


def test_what_rests_on_absence_is_the_same_by_show_and_audit(damaged: Path) -> None:
    store, settings = open_store(damaged), settings_of(NAME)
    rows = audit([store], settings).table().to_pylist()
    # A committed one with a copy that the check has not reached depends on where the next start ends the log.
    committed = [row for row in rows if row["state"] == "COMMITTED" and row["next_event"] == "none"]
    chosen = [committed[-1], next(row for row in rows if row["state"] == "UNDECIDABLE")]  # behind the damage, before it
    for row in chosen:
        reading = show([open_store(damaged)], settings, row["transaction_id"])
        assert reading.table().to_pylist()[0]["state"] == row["state"]
        is_scanned = "scanned" in " ".join(note.text for note in reading.notes)
        assert is_scanned  # the damage lies in what the next start reads: it can open decided ones again


def test_a_long_stretch_is_left_and_said_to_be(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqtx.verdicts.audit.lookups._SHOWN_BYTES_MAX", 1)
    settings = settings_of(NAME)
    undecidable = [
        row for row in audit([open_store(damaged)], settings).table().to_pylist() if row["state"] == "UNDECIDABLE"
    ]
    reading = show([open_store(damaged)], settings, undecidable[-1]["transaction_id"])
    assert reading.table().num_rows == 1
    assert any("was not read" in note.text or "scanned" in note.text for note in reading.notes)
