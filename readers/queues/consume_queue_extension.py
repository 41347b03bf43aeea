"""The extension of a consume queue: data that does not fit into a slot, at an address in the slot's tags code."""

from __future__ import annotations

import numpy as np

from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.errors import FileChanged, UnreadableFile
from rmqtx.readers.model.layout import Field, Layout, VariablePart
from rmqtx.readers.queues.unit_files import addressable, gaps_as, unreadable
from rmqtx.readers.storage.open_file import OpenFile
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import Store

EXTENSION_UNIT = Layout(
    "extension_unit",
    "Unit of a consume queue's extension file",
    (
        Field("length_bytes", "h", "whole unit; -1 marks the end of the file", "byte"),
        Field("tags_code", "q", "tags code of the slot"),
        Field("store_time_ms", "q", "broker clock at append", "ms"),
        Field("bitmap_length_bytes", "h", "filter bitmap that follows", "byte"),
    ),
    20,
    "store/ConsumeQueueExt.java CqExtUnit, docs/formats/consume_queues.md#extension",
    (VariablePart("bitmap", "bitmap_length_bytes", "which consumer groups' filters match"),),
)

#: Tags codes up to this one are addresses in the extension file, counted from the smallest 64-bit number.
EXTENSION_ADDRESS_MAX = -(2**31) - 1
ADDRESS_BITS = 2**63 - 1
#: Bytes of an extension file held at a time while addresses are looked up in it.
_WINDOW_BYTES = 4 << 20


class Extension:
    """The extension files of one queue (enableConsumeQueueExt=true), read by address."""

    def __init__(self, store: Store, topic: str, queue_id: int) -> None:
        segments, found = store.queue_segments(topic, queue_id, "consumequeue_ext")
        self._store = store.root
        self._segments = addressable(segments)
        self.findings = gaps_as("queue-gap", found)
        self._bases = np.array([segment.base_offset for segment in self._segments], np.int64)

    def resolve(self, tags_codes: Int64s) -> tuple[Int64s, Bools]:
        """Return the tags codes with addresses resolved, and which addresses could not be resolved."""
        rows = np.flatnonzero(tags_codes <= EXTENSION_ADDRESS_MAX)
        lost = np.zeros(len(tags_codes), np.bool_)
        if not len(rows):
            return tags_codes, lost
        resolved = tags_codes.copy()
        lost[rows] = True
        places = tags_codes[rows] & ADDRESS_BITS
        numbers = np.searchsorted(self._bases, places, "right") - 1
        for number in np.unique(numbers[numbers >= 0]).tolist():
            mine = numbers == number
            self._resolve_in(self._segments[number], rows[mine], places[mine], resolved, lost)
        return resolved, lost

    def _resolve_in(self, segment: Segment, rows: Int64s, places: Int64s, resolved: Int64s, lost: Bools) -> None:
        order = np.argsort(places, kind="stable")
        rows, positions = rows[order], places[order] - segment.base_offset
        inside = positions <= segment.size_bytes - EXTENSION_UNIT.size_bytes
        rows, positions = rows[inside], positions[inside]
        try:
            with segment.open() as file:
                done = 0
                while done < len(positions):
                    begin = int(positions[done])
                    upto = int(np.searchsorted(positions, begin + _WINDOW_BYTES))
                    self._resolve_window(file, rows[done:upto], positions[done:upto], resolved, lost)
                    done = upto
        except (UnreadableFile, FileChanged) as error:
            self.findings.append(unreadable(segment.file, self._store, error))

    @staticmethod
    def _resolve_window(file: OpenFile, rows: Int64s, positions: Int64s, resolved: Int64s, lost: Bools) -> None:
        begin = int(positions[0])
        data = np.frombuffer(file.read(begin, int(positions[-1]) - begin + EXTENSION_UNIT.size_bytes), np.uint8)
        cut = np.lib.stride_tricks.sliding_window_view(data, EXTENSION_UNIT.size_bytes)[positions - begin]
        units = np.frombuffer(np.ascontiguousarray(cut), EXTENSION_UNIT.dtype)
        good = units["length_bytes"] == EXTENSION_UNIT.size_bytes + units["bitmap_length_bytes"].astype(np.int32)
        good &= units["bitmap_length_bytes"] >= 0
        resolved[rows[good]] = units["tags_code"][good]
        lost[rows[good]] = False
