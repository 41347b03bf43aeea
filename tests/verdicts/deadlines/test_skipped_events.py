"""Halves that the check passes without reading them: what real brokers did with these stores (docs/deadlines.md)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.store.store import HALF_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from tests.forge import damage
from tests.forge.stores import copy_of, settings_of

SLOT = struct.Struct(">qiq")
FILLER = SLOT.pack(0, 0x7FFFFFFF, 0)
ZEROS = bytes(SLOT.size)


def skipped(name: str, root: Path) -> list[Any]:
    rows = audit([open_store(root)], settings_of(name)).table().to_pylist()
    found = [row for row in rows if row["next_event"] == "skipped"]
    assert {row["answer_effect"] for row in found} <= {None}
    return sorted((row["half_copies"][-1]["queue_offset"], row["state"]) for row in found)


@pytest.mark.parametrize(("name", "first", "slot", "state", "places"), [
    ("common-5.3.3", 277, FILLER, "LOST", [277, 278, 280, 286, 287, 288]),
    ("common-5.5.0", 276, FILLER, "LOST", [276, 277, 278, 285, 286, 287]),
    ("common-5.1.4", 284, ZEROS, "PENDING", [284, 285, 286, 287]),
])  # fmt: skip
def test_a_half_that_the_check_passes_is_said_to_be_skipped(
    name: str, first: int, slot: bytes, state: str, places: list[int], tmp_path: Path
) -> None:
    root = copy_of(name, tmp_path)
    count = 2 if slot == FILLER else len(places)
    damage.write_bytes(damage.queue_files(root, HALF_TOPIC)[0], first * SLOT.size, slot * count)
    assert skipped(name, root) == [(place, state) for place in places]
