"""Bytes that may change without anyone being able to tell: the list of docs/meaningless_bytes.md, as code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from readers.checkpoint import CHECKPOINT_FIELDS
from readers.index import ENTRY, HEADER, INDEX_SLOT
from readers.segment_scan import SegmentScan
from readers.store import Store
from tests.forge.comparing import parts_of
from tests.forge.damage import records_in

#: Parts of a record that nothing repeats and no checksum covers.
RECORD_PARTS = frozenset({
    "flag", "born_time_ms", "born_address", "born_port", "store_time_ms", "store_address", "store_port",
    "reconsume_times", "prepared_transaction_offset", "properties",
})
#: The slots of the hash table of an index with 1000 slots, as the stores of the corpus have it.
_INDEX_SLOTS = 1000
_ENTRY_PARTS = frozenset({"seconds_since_begin", "previous_entry_number"})


def used_bytes(data: bytes) -> int:
    """Past the last byte that is not zero."""
    return len(data.rstrip(b"\0"))


def records_of(store: Store) -> Iterator[tuple[str, int, int]]:
    """File, position and length of every sound record."""
    for number, segment in enumerate(store.commit_log):
        is_last = number + 1 >= len(store.commit_log)
        for block in SegmentScan(segment, is_last=is_last):
            for place, length in zip(block.positions.tolist(), block.lengths.tolist(), strict=True):
                yield segment.file, place, length


def is_meaningless(kind: str, file: Path, before: bytes, after: bytes | None) -> bool:
    """Whether a change to a file touched only bytes of the list. The file is whole again when this is asked."""
    if after is None:
        return kind in ("checkpoint", "index", "topics")
    if kind in ("cursors", "topics"):
        return _is_still_json(after)
    if kind == "checkpoint":
        return used_bytes(after[CHECKPOINT_FIELDS.size_bytes :]) == 0 and len(after) == len(before)
    if len(before) != len(after):
        return False
    places = np.flatnonzero(np.frombuffer(before, np.uint8) != np.frombuffer(after, np.uint8)).tolist()
    if kind == "log":
        return _are_in_parts(file, before, places)
    if kind == "index":
        return all(_is_index_meaningless(before, place) for place in places)
    return False


def _is_still_json(data: bytes) -> bool:
    """Whether brokers can read it: numbers and names in it are nowhere else."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    from readers.fastjson import parse

    try:
        parse(text)
    except Exception:
        return False
    return True


def _are_in_parts(file: Path, data: bytes, places: list[int]) -> bool:
    spans = []
    end = 0
    for place, length in records_in(file):
        for name, part in parts_of(data[place : place + length]).items():
            is_empty = name == "body_crc" and not int.from_bytes(data[place + 84 : place + 88], "big")
            if name in RECORD_PARTS or is_empty:
                spans.append((place + part.start, place + part.stop))
        end = place + length
    spans.append((end + 8, len(data)))  # behind the length and the magic code of a blank record
    return all(any(low <= place < high for low, high in spans) for place in places)


def _is_index_meaningless(data: bytes, place: int) -> bool:
    table = HEADER.size_bytes + INDEX_SLOT.size_bytes * _INDEX_SLOTS
    if place < HEADER.size_bytes:
        return _part(HEADER.offsets, place) in ("begin_time_ms", "end_time_ms", "used_slots_count")
    if place < table + ENTRY.size_bytes:
        return True
    count = int.from_bytes(data[36:40], "big")
    number, inside = divmod(place - table, ENTRY.size_bytes)
    return number >= count or _part(ENTRY.offsets, inside) in _ENTRY_PARTS


def _part(offsets: dict[str, int], place: int) -> str:
    return max((offset, name) for name, offset in offsets.items() if offset <= place)[1]
