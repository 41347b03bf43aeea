"""Slots and records that stand in a bundle for what it left out: neither evidence nor damage."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rmqtx.readers.queues.consume_queue import LEFT_OUT_TAGS, PRE_BLANK_LENGTH, SLOT, are_filler, are_sound, open_queue
from rmqtx.readers.queues.consume_queue_scan import scan_slots
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import HALF_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import show
from tests.forge.logs import Forge
from tests.forge.stores import opened


def left_out(place: int) -> bytes:
    return SLOT.pack(commit_log_offset=place, record_length_bytes=PRE_BLANK_LENGTH, tags_code=LEFT_OUT_TAGS)


def test_slots_that_were_left_out_keep_the_queue_in_order(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    places = [forge.half(f"T-{number}") for number in range(9)]
    root = forge.write(half_cursor=0, op_cursor=0)
    file = root / "consumequeue" / HALF_TOPIC / "0" / f"{0:020d}"
    data = bytearray(file.read_bytes())
    for number in (0, 1, 4, 5, 8):
        data[number * 20 : number * 20 + 20] = left_out(places[number])
    file.write_bytes(data)
    store = open_store(root)
    with open_queue(store, HALF_TOPIC, 0) as queue:
        assert (queue.first_offset, queue.min_offset, queue.max_offset) == (0, 0, 9)
        assert queue.read(0, 9)[0].tolist() == [2, 3, 6, 7]
        assert [queue.offset_of(place) for place in places] == list(range(9))
        assert queue.findings == []
    reading = scan_slots(store)
    rows = [row for row in reading.table().to_pylist() if row["topic"] == HALF_TOPIC]
    assert [row["queue_offset"] for row in rows] == [2, 3, 6, 7]
    assert reading.findings == []
    assert sum(part.damaged_bytes + part.unread_bytes for part in reading.coverage) == 0


def test_only_the_whole_mark_makes_a_slot_filler() -> None:
    slots = np.frombuffer(left_out(400), SLOT.dtype).copy()
    assert are_filler(slots).all()
    assert not are_sound(slots).any()
    for byte in range(8, 20):
        raw = bytearray(left_out(400))
        raw[byte] ^= 1
        assert not are_filler(np.frombuffer(bytes(raw), SLOT.dtype)).any()


def test_one_transaction_is_judged_by_the_most_checks_of_all() -> None:
    """Where no version tells how many checks a broker makes, `show` must not know less than `audit`."""
    store = opened("poison-4.4.0")
    rows = {row["transaction_id"]: row for row in audit([store], broker_settings).table().to_pylist()}
    gone = [name for name, row in rows.items() if row["state"] in ("DISCARDED", "LOST")]
    assert gone
    for name in gone:
        assert show([store], broker_settings, name).table().to_pylist() == [rows[name]]
