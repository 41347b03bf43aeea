"""Whether the files of a commit log join: a look at their ends, where a log that lost a file's content shows it first.

A broker fills a file to its end, with a blank record where the next one does not fit, before it writes into the next
one, and that begins with a record. So a file of zeros or rubbish, or one whose content moved, does not join the others,
and neither does the file after it. What is wrong in the middle of a file does not show here.
"""

from __future__ import annotations

from readers.log.commit_log import last_with_data, written_bytes
from readers.log.segment_scan import SegmentScan, sound_length
from readers.storage.segments import Segment
from readers.store.store import Store

#: So many files are looked at, the newest first: a log may have thousands. Where each look is a request, fewer.
JOINS_MAX = 16
_REMOTE_JOINS_MAX = 2
#: How much of a file's end is read for its last record; more where it is longer, or the blank one behind it is.
_END_BYTES = 64 << 10
_END_BYTES_MAX = 64 << 20


def broken_join(store: Store) -> str | None:
    """Where the files of a log do not join, in words; None where those that were looked at do.

    Shape:  the newest JOINS_MAX files with data are looked at.
    Raises: UnreadableFile, FileChanged.
    """
    last = last_with_data(store.commit_log)
    for segment in _looked_at(store, last):
        with segment.open() as file:
            if sound_length(file, segment.frame_bytes, segment.base_offset) is None:
                return f"{segment.file} does not begin with a record"
        if segment.base_offset < last and not _is_full(segment):
            return f"{segment.file} is not full of records to its end"
    return None


def _looked_at(store: Store, last: int) -> list[Segment]:
    """Newest first; none of a log without data."""
    written = [segment for segment in reversed(store.commit_log) if segment.base_offset <= last]
    if not written or not written_bytes(written[0]):
        return []
    return written[: _REMOTE_JOINS_MAX if store.is_remote else JOINS_MAX]


def _is_full(segment: Segment) -> bool:
    """Whether the last record of a file, or the blank one behind it, reaches the file's end."""
    length = _END_BYTES
    while True:
        begin = max(0, segment.size_bytes - length)
        scan = SegmentScan(segment, from_position=begin, is_last=False)
        if sum(len(block) for block in scan) or scan.spans:
            return all(span.is_filler for span in scan.spans)
        if not begin or length >= _END_BYTES_MAX:
            return False
        length *= 16
