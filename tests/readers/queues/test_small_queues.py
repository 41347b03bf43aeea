"""Consume queues of a few slots: tags that look like addresses, places without a slot, and the last finding of many."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rmqtx.readers.model.findings import FINDINGS_MAX, Finding
from rmqtx.readers.queues.consume_queue_extension import Extension
from rmqtx.readers.queues.slot_files import SlotFiles, places_by_offset
from rmqtx.readers.queues.unit_files import UnitRuns
from rmqtx.readers.store.store import HALF_TOPIC, open_store
from tests.forge.logs import Forge, java_hash


def test_the_lowest_hash_of_a_tag_is_no_address_in_an_extension_file(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    forge.half("A")
    lowest = java_hash("polygenelubricants")
    assert lowest == -(1 << 31)
    codes, lost = Extension(open_store(forge.write()), HALF_TOPIC, 0).resolve(np.array([lowest, lowest - 1], np.int64))
    assert codes.tolist() == [lowest, lowest - 1]
    assert lost.tolist() == [False, True]


def test_a_place_behind_the_last_slot_has_no_slot(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    places = [forge.half(name) for name in ("A", "B")]
    files = SlotFiles(open_store(forge.write()), ("consumequeue", HALF_TOPIC.encode(), 0))
    assert places_by_offset(files, np.array([*places, places[-1] + 1], np.int64)).tolist() == [0, 1, -1]


def test_only_the_last_finding_of_a_file_covers_what_is_not_listed() -> None:
    findings: list[Finding] = []
    runs = UnitRuns("store", "file", "slot-invalid", "a slot", findings)
    for number in range(FINDINGS_MAX + 5):
        runs.add_range(40 * number, 40 * number + 20)
    runs.close()
    words = "more damage from here on, not listed one by one"
    assert [one.actual for one in findings] == [*[None] * (FINDINGS_MAX - 1), words]
    assert findings[-1].length_bytes == 40 * 5 + 20
