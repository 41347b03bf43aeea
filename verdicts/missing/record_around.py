"""The sound record that contains a place of the log: no record can begin there, and none is missing there."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from rmqtx.readers.log.segment_scan import SegmentScan
from rmqtx.readers.storage.segments import Segment, SegmentedLog

#: How far before a place its record is searched for: at first, and at most (records are at most 4 MiB by default).
_BACK_BYTES = (64 << 10, 8 << 20)
_CRC_MASK = 0x7FFFFFFF
#: After this number of slots in a row that the log refutes, the next ones are of an older log too: a broker writes the
#: slots of a queue in order, and would have replaced them.
STALE_RUN_MIN = 2


def record_around(segment: Segment, position: int) -> int | None:
    """Return where the record begins that contains a place, and does not begin there; None if no sound record does.

    A record with a body that contradicts its CRC is not sound: its lengths may be damaged too.
    Units: bytes in the file.
    Raises: UnreadableFile.
    """
    for back in _BACK_BYTES:
        begin = max(0, position - back)
        for block in SegmentScan(segment, from_position=begin, to_position=position + 1):
            begins = block.commit_log_offsets - segment.base_offset
            ends = begins + block.header("length_bytes")
            for row in np.flatnonzero((begins < position) & (position < ends)).tolist():
                body = block.bodies()[row].as_py()
                is_whole = body is not None and zlib.crc32(body) & _CRC_MASK == int(block.header("body_crc")[row])
                return int(begins[row]) if is_whole else None
        if begin == 0:
            break
    return None


def are_refuted(log: SegmentedLog, offsets: Sequence[int]) -> bool:
    """Whether the last slots of a queue, STALE_RUN_MIN in number, all point into sound records.

    `offsets`: their places, as commit-log offsets.
    """
    if len(offsets) < STALE_RUN_MIN:
        return False
    for offset in offsets:
        segment = log.segment_at(offset)
        if segment is None or record_around(segment, offset - segment.base_offset) is None:
            return False
    return True
