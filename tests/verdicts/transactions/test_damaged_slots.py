"""A damaged slot of the half queue: the half messages whose slots are sound have the states of before."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx.readers.store.store import HALF_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending
from tests.forge.damage import queue_files, write_bytes
from tests.forge.stores import copy_of, settings_of


@pytest.mark.parametrize("other", [0, 25, 40, 42], ids=lambda slot: f"slot {slot}")
@pytest.mark.parametrize("name", ["codecs-5.5.0"])
def test_a_damaged_slot_that_leads_to_another_half_message_loses_none(name: str, other: int, tmp_path: Path) -> None:
    """Its half message has a slot of its own: the number of slot 41 is not taken, and a rebuilt queue leads to it."""
    root = copy_of(name, tmp_path)
    [file] = queue_files(root, HALF_TOPIC)
    slots = file.read_bytes()
    before = pending([open_store(root)], settings_of(name)).table().to_pylist()
    assert 41 in {row["half_copies"][-1]["queue_offset"] for row in before}
    write_bytes(file, 41 * 20, slots[other * 20 : other * 20 + 20])
    reading = pending([open_store(root)], settings_of(name))
    # The check may read what the slot leads to again, whatever was decided there.
    after = [row["transaction_id"] for row in reading.table().to_pylist() if row["state"] == "PENDING"]
    assert sorted(after) == sorted(row["transaction_id"] for row in before)
    assert "slot-mismatch" in {finding.code for finding in reading.findings}


@pytest.mark.parametrize("place", [704650183, 1 << 60], ids=["near", "far"])
@pytest.mark.parametrize(("name", "slot"), [
    ("upgraded-4.2.0-4.3.0", 2), ("dledger-killed-5.1.4", 51), ("busystop-4.9.7", 17),
])
def test_a_slot_that_points_far_away_hides_no_slot_behind_it(
    name: str, slot: int, place: int, tmp_path: Path
) -> None:
    """A binary search by places passed the slots behind it: their half messages were LOST."""
    root = copy_of(name, tmp_path)
    before = audit([open_store(root)], settings_of(name)).table().to_pylist()
    assert any(row["state"] == "PENDING" and row["half_copies"][-1]["queue_offset"] > slot for row in before)
    [file] = queue_files(root, HALF_TOPIC)
    write_bytes(file, slot * 20, place.to_bytes(8, "big"))
    reading = audit([open_store(root)], settings_of(name))
    states = {row["transaction_id"]: row["state"] for row in reading.table().to_pylist()}
    assert states == {row["transaction_id"]: row["state"] for row in before}
    assert "slot-invalid" in {finding.code for finding in reading.findings}
