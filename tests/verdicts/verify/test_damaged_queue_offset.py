"""A record whose own queue offset is damaged: the queue is right, and no advice makes the store worse."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rmqtx.readers.queues.consume_queue import SLOT
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC
from tests.forge import damage
from tests.forge.damage import queue_files
from tests.forge.stores import copy_of
from tests.verdicts.verifying import every_finding, findings, the_one, worse_than_notes

#: Place of the queue offset in a record.
_QUEUE_OFFSET = 20


def _damaged(root: Path, topic: str, number: int, value: int) -> int:
    """Give the record of a slot another queue offset; return its commit-log offset."""
    (file,) = queue_files(root, topic)
    offset: int = SLOT.unpack(file.read_bytes()[number * 20 :][:20])["commit_log_offset"]
    damage.write_bytes(sorted((root / "commitlog").iterdir())[0], offset + _QUEUE_OFFSET, struct.pack(">q", value))
    return offset


@pytest.mark.parametrize("name", ["common-5.3.3", "common-4.9.7", "common-5.1.4"])
@pytest.mark.parametrize("topic", [HALF_TOPIC, OP_TOPIC])
@pytest.mark.parametrize("value", [0x5858585858585858, 2])
def test_the_slot_stays(name: str, topic: str, value: int, tmp_path: Path) -> None:
    """Nothing says that the check does not reach it, or that a rebuilt queue helps."""
    root = copy_of(name, tmp_path)
    offset = _damaged(root, topic, 1, value)
    rows = [row for row in worse_than_notes(every_finding(root)) if row["code"].startswith(("slot", "start"))]
    row = the_one(rows)
    assert (row["code"], row["position_bytes"]) == ("slot-mismatch", 20)
    assert row["advice"].startswith("do not rebuild the queues"), (row, offset)


def test_two_slots_are_swapped(tmp_path: Path) -> None:
    """There the queue is wrong."""
    root = copy_of("common-5.3.3", tmp_path)
    (file,) = queue_files(root, HALF_TOPIC)
    data = file.read_bytes()
    damage.write_bytes(file, 20, data[40:60] + data[20:40])
    row = the_one(findings(root))
    assert row["advice"].startswith("rmqtx rebuild queues")
