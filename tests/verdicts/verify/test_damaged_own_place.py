"""A record of which only the own commit-log offset is damaged: brokers compare it with nothing, and rmqtx reads it."""

from __future__ import annotations

import struct
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.queues.consume_queue import SLOT
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending
from rmqtx.verdicts.simulation.simulation import Simulated
from rmqtx.verdicts.simulation.simulation_setup import SimulatedConfiguration, simulated_checks
from tests.forge import damage
from tests.forge.damage import queue_files
from tests.forge.stores import copy_of, settings_of
from tests.verdicts.verifying import every_finding, worse_than_notes

_OWN_PLACE, _ELSEWHERE = 28, 1 << 40
_NOW_MS = 1_900_000_000_000
_STORES = ("common-4.9.7", "common-5.1.4", "common-5.3.3")


def _slots(root: Path, topic: str) -> list[int]:
    """The place in each slot of a queue."""
    (file,) = queue_files(root, topic, "0")
    data = file.read_bytes().rstrip(b"\0")
    return [place for place, _, _ in struct.iter_unpack(">qiq", data + bytes(-len(data) % SLOT.size_bytes))]


def _place(root: Path, name: str, kind: str) -> int:
    """The place of a half, op or COMMIT record; `last`: of the newest one of the check."""
    if kind == "final":
        rows = _audit(root, name).to_pylist()
        return next(int(row["final_records"][0]["commit_log_offset"]) for row in rows if row["final_records"])
    if kind == "last":
        return max(_slots(root, topic)[-1] for topic in (HALF_TOPIC, OP_TOPIC))
    return _slots(root, HALF_TOPIC if kind == "half" else OP_TOPIC)[3]


def _damaged(root: Path, place: int, own: int = _ELSEWHERE) -> None:
    damage.write_bytes(damage.log_files(root)[0], place + _OWN_PLACE, struct.pack(">q", own))


def _audit(root: Path, name: str) -> pa.Table:
    return audit([open_store(root)], settings_of(name), at_ms=_NOW_MS).table()


def _rounds(root: Path, name: str) -> list[object]:
    """What `simulate` prints of three rounds, and its findings."""
    store = open_store(root)
    as_is = SimulatedConfiguration("as is", settings_of(name)(store), {})
    (check,), findings, _ = simulated_checks(store, [as_is], check_cursors(store), _NOW_MS)
    assert isinstance(check, Simulated)
    rounds = [
        [
            played.state.half_cursor, played.state.op_cursor, played.state.half_end,
            [(step.action, step.half and step.half.queue_offset) for step in played.steps],
        ]
        for played in islice(check.rounds(), 3)
    ]
    return [*rounds, [one.code for one in findings]]


@pytest.mark.parametrize("kind", ["half", "op", "final", "last"])
@pytest.mark.parametrize("name", _STORES)
def test_it_is_read(name: str, kind: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    settings = settings_of(name)
    before, looked_up = _audit(root, name), pending([open_store(root)], settings, at_ms=_NOW_MS).table()
    rounds, known = _rounds(root, name), {row["code"] for row in worse_than_notes(every_finding(root))}
    _damaged(root, _place(root, name, kind))
    report = audit([open_store(root)], settings, at_ms=_NOW_MS)
    assert report.table().equals(before)
    assert "record-damaged" not in {one.code for one in report.findings}
    assert pending([open_store(root)], settings, at_ms=_NOW_MS).table().equals(looked_up)
    assert _rounds(root, name) == rounds
    assert {row["code"] for row in worse_than_notes(every_finding(root))} - known == {"record-header"}


def test_a_record_from_another_place_is_none(tmp_path: Path) -> None:
    """Its own offset is a place of the log: it was copied or moved, and shows nothing about this place."""
    name = _STORES[-1]
    root = copy_of(name, tmp_path)
    first, *_, last = _slots(root, HALF_TOPIC)
    _damaged(root, last, first + 0x0101)
    assert "record-damaged" in {row["code"] for row in every_finding(root)}


def test_a_wrong_body_is_none(tmp_path: Path) -> None:
    """Without its CRC nothing proves the record."""
    name = _STORES[-1]
    root = copy_of(name, tmp_path)
    place = _place(root, name, "half")
    _damaged(root, place)
    damage.flip_byte(damage.log_files(root)[0], place + 88)
    assert "record-damaged" in {row["code"] for row in every_finding(root)}
