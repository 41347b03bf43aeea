"""Bytes whose change cannot be detected: the list of docs/meaningless_bytes.md, as code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rmqtx.readers.index.index import HEADER
from rmqtx.readers.log.record_layout import COMMIT, TRANSACTION_MASK
from rmqtx.readers.log.segment_scan import SegmentScan
from rmqtx.readers.store.checkpoint import CHECKPOINT_FIELDS
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, Store, open_store
from tests.forge.comparing import parts_of
from tests.forge.damage import records_in

#: Parts of a record without a copy elsewhere and without a checksum.
RECORD_PARTS = frozenset({
    "flag", "born_time_ms", "born_address", "born_port", "store_time_ms", "store_address", "store_port",
    "reconsume_times", "properties",
})


def used_bytes(data: bytes) -> int:
    """Number of bytes up to the last one that is not zero."""
    return len(data.rstrip(b"\0"))


@dataclass(frozen=True)
class Record:
    """The place of a sound record, and its kind: half, op, discard copy or other message."""

    file: str
    position_bytes: int
    length_bytes: int
    commit_log_offset: int
    kind: str


_KINDS = {HALF_TOPIC: "half", OP_TOPIC: "op", DISCARD_TOPIC: "discard copy"}


def records_of(store: Store) -> Iterator[Record]:
    """Every sound record of a log."""
    for number, segment in enumerate(store.commit_log):
        is_last = number + 1 >= len(store.commit_log)
        for block in SegmentScan(segment, is_last=is_last):
            columns = (block.positions.tolist(), block.lengths.tolist(), block.commit_log_offsets.tolist())
            for place, length, offset, topic in zip(*columns, block.topic_texts().to_pylist(), strict=True):
                yield Record(segment.file, place, length, offset, _KINDS.get(topic, "other message"))


def is_meaningless(kind: str, file: Path, before: bytes, after: bytes | None) -> bool:
    """Whether a change of a file is only in bytes of the list. The file must be restored before this is called."""
    if kind == "backup":
        return True
    if after is None:
        return kind in ("checkpoint", "index", "topics")
    if kind in ("cursors", "topics"):
        return _is_still_json(after)
    if kind == "checkpoint":
        is_whole = len(after) == len(before) and used_bytes(after[CHECKPOINT_FIELDS.size_bytes :]) == 0
        size = CHECKPOINT_FIELDS.size_bytes
        return is_whole and _could_be(open_store(file.parent), CHECKPOINT_FIELDS.unpack(after[:size]))
    if len(before) != len(after):
        return False
    places = np.flatnonzero(np.frombuffer(before, np.uint8) != np.frombuffer(after, np.uint8)).tolist()
    if kind == "log":
        return _are_in_parts(file, before, places)
    if kind == "index":
        return all(_is_index_meaningless(before, place) for place in places)
    return False


def _could_be(store: Store, values: dict[str, int]) -> bool:
    """Whether each time and offset of a checkpoint is that of a record, or may be that of an expired record."""
    held: set[int] = set()
    first: tuple[int, int] | None = None
    for segment in store.commit_log:
        for block in SegmentScan(segment):
            offsets, times = block.commit_log_offsets, block.header("store_time_ms")
            first = first or (int(offsets[0]), int(times[0]))
            held |= {*offsets.tolist(), *(offsets + block.lengths).tolist(), *times.tolist()}
    assert first is not None
    return all(
        values[name] in held or 0 <= values[name] <= bound
        for name, bound in (
            ("physic_msg_time_ms", first[1]), ("logics_msg_time_ms", first[1]), ("index_msg_time_ms", first[1]),
            ("logics_offset", first[0]),
        )
    )


def _is_still_json(data: bytes) -> bool:
    """Whether brokers can read the file; its numbers and names have no copy elsewhere."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    from rmqtx.readers.store.fastjson import parse

    try:
        parse(text)
    except Exception:
        return False
    return True


def _are_in_parts(file: Path, data: bytes, places: list[int]) -> bool:
    spans = []
    end = 0
    for place, length in records_in(file):
        parts = parts_of(data[place : place + length])
        sys_flag = int.from_bytes(data[place + parts["sys_flag"].start : place + parts["sys_flag"].stop], "big")
        for name, part in parts.items():
            is_of_final = name == "prepared_transaction_offset" and sys_flag & TRANSACTION_MASK == COMMIT
            if name in RECORD_PARTS or is_of_final:
                spans.append((place + part.start, place + part.stop))
        end = place + length
    spans.append((end + 8, len(data)))  # after the length and the magic code of a blank record
    return all(any(low <= place < high for low, high in spans) for place in places)


def _is_index_meaningless(data: bytes, place: int) -> bool:
    """Whether a byte belongs to the count of used slots, which no other value repeats."""
    return place < HEADER.size_bytes and _part(HEADER.offsets, place) == "used_slots_count"


def _part(offsets: dict[str, int], place: int) -> str:
    return max((offset, name) for name, offset in offsets.items() if offset <= place)[1]
