"""Find files of a commit log under other names, and logs without any record."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

from rmqtx.readers.model.errors import FileChanged, UnreadableFile
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.storage.opening import open_file
from rmqtx.readers.storage.places import FileSystem
from rmqtx.readers.storage.segments import Segment

#: Length, magic code and own offset at the begin of a record.
_RECORD_HEAD = struct.Struct(">iI20xq")
_RECORD_MAGICS = (0xDAA320A7, 0xDAA320AB)
_RECORD_BYTES_MIN = 91
#: Files whose first bytes are read to find out whether a log has any record.
_PROBED_FILES = 3


def misnamed_segments(
    skipped: Iterable[str], segments: Sequence[Segment], store: str, files: FileSystem
) -> Iterator[Finding]:
    """Return a finding for each skipped file of a log that begins with a record of a range that no other file has.

    `skipped`: the files that are not in `segments` because of their names.
    """
    for file in skipped:
        size = _size_bytes(files, file)
        head = _head(file, size)
        if len(head) < _RECORD_HEAD.size:
            continue
        length, magic, offset = _RECORD_HEAD.unpack(head)
        is_record = magic in _RECORD_MAGICS and _RECORD_BYTES_MIN <= length <= size and offset >= 0
        if is_record and not any(one.base_offset <= offset < one.end_offset for one in segments):
            yield Finding(
                store, "segment-misnamed", file, 0, size, offset, expected=f"the name {offset:020d}",
                actual=file.rpartition("/")[2],
            )


def is_without_data(segments: Sequence[Segment]) -> bool:
    """Whether no file of a log begins with anything but zeros; a file that cannot be read may contain data."""
    return not any(_may_have_data(one) for one in segments[:_PROBED_FILES])


def _size_bytes(files: FileSystem, file: str) -> int:
    try:
        entry = files.entry(file)
    except OSError:
        return 0
    return entry.size_bytes if entry is not None and entry.is_file else 0


def _head(file: str, size_bytes: int) -> bytes:
    """Return the first bytes of a file; none if it cannot be read, which its reader reports."""
    if not size_bytes:
        return b""
    try:
        with open_file(file, size_bytes) as opened:
            return opened.read(0, _RECORD_HEAD.size)
    except (UnreadableFile, FileChanged):
        return b""


def _may_have_data(segment: Segment) -> bool:
    try:
        with segment.open() as file:
            return bool(file.read(0, _RECORD_HEAD.size).strip(b"\0"))
    except (UnreadableFile, FileChanged):
        return True
