"""Halves that the check passes without reading them: what real brokers did with these stores (docs/deadlines.md)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.store.store import HALF_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.simulation.simulation import Simulated, outcomes
from rmqtx.verdicts.simulation.simulation_setup import SimulatedConfiguration, simulated_checks
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
])
def test_a_half_that_the_check_passes_is_said_to_be_skipped(
    name: str, first: int, slot: bytes, state: str, places: list[int], tmp_path: Path
) -> None:
    root = copy_of(name, tmp_path)
    count = 2 if slot == FILLER else len(places)
    damage.write_bytes(damage.queue_files(root, HALF_TOPIC)[0], first * SLOT.size, slot * count)
    assert skipped(name, root) == [(place, state) for place in places]


def test_rounds_that_meet_no_further_half_copy_are_played_once(tmp_path: Path) -> None:
    """Behind a filler no copy gets a slot: a half message that is put back has no end, whatever the time."""
    root = copy_of("common-5.3.3", tmp_path)
    file = damage.queue_files(root, HALF_TOPIC)[0]
    count = len(file.read_bytes().rstrip(b"\0")) // SLOT.size
    damage.write_bytes(file, count * SLOT.size, FILLER)
    store = open_store(root)
    rows = audit([store], settings_of("common-5.3.3")).table().to_pylist()
    now_ms = max(copy["store_time_ms"] for row in rows for copy in row["half_copies"]) + 60_000
    configuration = SimulatedConfiguration("as is", settings_of("common-5.3.3")(store))
    check = simulated_checks(store, [configuration], check_cursors(store), now_ms)[0][0]
    assert isinstance(check, Simulated)
    assert any(outcome.is_open and outcome.checks_to_come_count for outcome in outcomes(check).values())
    assert check.last is not None
    assert check.last.repeats_itself
    assert (check.last.begin_ms - check.begin_ms) // check.settings.interval_ms < 1_000  # of 10,000
