"""List and read the segment files of a log, read-only, on this machine or by a URI.

Files are read with positioned reads, not mapped: if another program truncates a mapped file, the operating system kills
this process, and in a store of unknown history that is likely. A short read is an error.
"""

from __future__ import annotations

import bisect
import re
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rmqtx.readers.model.errors import FileChanged, UnreadableFile
from rmqtx.readers.model.findings import Finding, as_text
from rmqtx.readers.storage.open_file import LOCAL, REMOTE, Limits, OpenFile
from rmqtx.readers.storage.places import DirectoryEntry, FileSystem, is_uri, joined

#: Length, magic code and own offset at the begin of a record.
_RECORD_HEAD = struct.Struct(">iI20xq")
_RECORD_MAGICS = (0xDAA320A7, 0xDAA320AB)
_RECORD_BYTES_MIN = 91
Int64s = npt.NDArray[np.int64]
#: Name of a log or queue file: the offset of its first byte.
SEGMENT_NAME = re.compile(r"\d{20}")
_DLEDGER_DIRECTORY = re.compile(r"(.*/)?dledger-[^/]+/data/?")
#: The header of a DLedger entry, in front of each record (4.5.0+, enableDLegerCommitLog).
DLEDGER_FRAME_BYTES = 48
_OPEN_FILES_MAX = 64
_FOREIGN = "stray-file"
_OFFSET_MAX = (1 << 62) - 1
#: Magic, length, place and body length at the head of a DLedger entry (`dledger.ENTRY_HEADER`).
_ENTRY_HEAD = struct.Struct(">ii16xq12xi")
_ENTRY_MAGIC = 1
#: Files whose first bytes show the kind of a log, and whether it has any record: the first file may be damaged.
_PROBED_FILES = 3


def open_file(file: str, size_bytes: int, modified_ns: int | None = None) -> OpenFile:
    """Return a local file, or the file of a URI, open for reading. Raises: UnreadableFile."""
    if not is_uri(file):
        return OpenFile(file, size_bytes)
    from rmqtx.readers.storage.remote_reads import RemoteFile

    return RemoteFile(file, size_bytes, modified_ns)


def limits_of(file: str) -> Limits:
    """Return how the places of a file are read."""
    return REMOTE if is_uri(file) else LOCAL


def open_together(
    files: Sequence[tuple[str, int, int | None]], guessed_ends: Sequence[int | None] | None = None
) -> None:
    """Open remote files in parallel that will be read next from their ends; errors appear when they are read.

    `files`: URI, size, and time of the last change of each. `guessed_ends`: about where the data of each ends; then
    samples show where, and what follows is not read. None: the file is read.
    """
    from rmqtx.readers.storage.remote_reads import open_together as open_remotely

    open_remotely(files, guessed_ends)


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of a log; its name is the offset of its first byte in that log.

    Units: bytes. `size_bytes` is the length when the snapshot was taken, cut where the next segment begins.
    `modified_ns`: the time of the last change of a remote file, a part of the cache key.
    `frame_bytes`: length of the header in front of each record, in a log of DLedger entries.
    """

    file: str
    base_offset: int
    size_bytes: int
    modified_ns: int | None = None
    frame_bytes: int = 0

    @property
    def end_offset(self) -> int:
        """Offset just past its last byte."""
        return self.base_offset + self.size_bytes

    def open(self) -> OpenFile:
        """The file, open for reading. Raises: UnreadableFile."""
        return open_file(self.file, self.size_bytes, self.modified_ns)


class SegmentedLog:
    """Several segments as one address space, to read single records; a bounded number of files stays open."""

    def __init__(self, segments: tuple[Segment, ...]) -> None:
        self.segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._open: OrderedDict[int, OpenFile] = OrderedDict()

    @property
    def begin_offset(self) -> int:
        """Offset of the first byte; 0 for an empty log."""
        return self.segments[0].base_offset if self.segments else 0

    @property
    def end_offset(self) -> int:
        """Offset past the last byte of the last file; 0 for an empty log."""
        return self.segments[-1].end_offset if self.segments else 0

    def segment_at(self, offset: int) -> Segment | None:
        """Return the segment with the byte at an offset; None if no file has it."""
        number = self._number_at(offset)
        return None if number is None else self.segments[number]

    def place_of(self, offset: int) -> tuple[str | None, int | None]:
        """Return the file with the byte at an offset, and the position in it; None and None if no file has it."""
        segment = self.segment_at(offset)
        return (None, None) if segment is None else (segment.file, offset - segment.base_offset)

    def read(self, offset: int, length_bytes: int) -> bytes:
        """Return the bytes from an offset on; fewer if the segment ends before, none if no file has the offset.

        Raises: FileChanged, UnreadableFile.
        """
        number = self._number_at(offset)
        return b"" if number is None else self._opened(number).read(offset - self._bases[number], length_bytes)

    def file_at(self, offset: int) -> OpenFile | None:
        """Return the open file with the byte at an offset; None if no file has it. It is closed with the log.

        Raises: UnreadableFile.
        """
        number = self._number_at(offset)
        return None if number is None else self._opened(number)

    def _number_at(self, offset: int) -> int | None:
        number = bisect.bisect_right(self._bases, offset) - 1
        return None if number < 0 or offset >= self.segments[number].end_offset else number

    def segments_of(self, offsets: Int64s) -> Iterator[tuple[Segment, slice]]:
        """Return which segment has the bytes at offsets, for stretches of offsets; offsets in no file are left out."""
        bases, ends = np.array(self._bases, np.int64), np.array([one.end_offset for one in self.segments], np.int64)
        numbers = np.searchsorted(bases, offsets, "right") - 1
        if len(ends):
            numbers[(numbers >= 0) & (offsets >= ends[numbers])] = -1
        bounds = np.flatnonzero(np.diff(numbers)) + 1
        for low, high in zip([0, *bounds.tolist()], [*bounds.tolist(), len(offsets)], strict=True):
            if low < high and numbers[low] >= 0:
                yield self.segments[int(numbers[low])], slice(low, high)

    def read_runs(self, begins: Int64s, ends: Int64s, room_bytes: int = 0) -> bytearray:
        """Return the bytes of runs of one segment, one after another; then `room_bytes` of zeros.

        Raises: FileChanged, UnreadableFile.
        """
        number = bisect.bisect_right(self._bases, int(begins[0])) - 1
        base = self.segments[number].base_offset
        runs = list(zip((begins - base).tolist(), (ends - base).tolist(), strict=True))
        data = bytearray(int((ends - begins).sum()) + room_bytes)
        with memoryview(data) as view:
            self._opened(number).read_runs(runs, view)
        return data

    @property
    def is_remote(self) -> bool:
        """Whether a read is a network request."""
        return bool(self.segments) and is_uri(self.segments[0].file)

    @property
    def limits(self) -> Limits:
        """How places in the files are read."""
        return limits_of(self.segments[0].file) if self.segments else LOCAL

    def _opened(self, number: int) -> OpenFile:
        opened = self._open.get(number)
        if opened is None:
            opened = self._open[number] = self.segments[number].open()
            if len(self._open) > _OPEN_FILES_MAX:
                self._open.popitem(last=False)[1].close()
        else:
            self._open.move_to_end(number)
        return opened

    def close(self) -> None:
        """Close all files."""
        for opened in self._open.values():
            opened.close()
        self._open.clear()

    def __enter__(self) -> SegmentedLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_dledger(directory: str) -> bool:
    """Whether a directory's files are a log of DLedger entries, by its name.

    Source: store/dledger/DLedgerCommitLog.java (dledger-SELFID/data); docs/formats/dledger.md#entry.
    """
    return _DLEDGER_DIRECTORY.fullmatch(directory) is not None


def with_frames(segments: tuple[Segment, ...], directory: str) -> tuple[Segment, ...]:
    """Return the segments, with those of a directory marked as DLedger's if they begin with a DLedger entry.

    The directory's name is not enough: storePathDLedgerCommitLog (4.9.4+) and copies may use any name. A record of an
    ordinary log begins with its length, which is never 1.
    """
    prefix = joined(directory, "")
    mine = [one for one in segments if one.file.startswith(prefix) and one.size_bytes and not one.frame_bytes]
    if not any(map(_begins_with_entry, mine[:_PROBED_FILES])):
        return segments
    found = {one.file for one in mine}
    return tuple(replace(one, frame_bytes=DLEDGER_FRAME_BYTES) if one.file in found else one for one in segments)


def _begins_with_entry(segment: Segment) -> bool:
    try:
        with segment.open() as file:
            head = file.read(0, DLEDGER_FRAME_BYTES)
    except (UnreadableFile, FileChanged):
        return False  # the code that reads the log reports it
    if len(head) < DLEDGER_FRAME_BYTES:
        return False
    magic, length, place, body_length = _ENTRY_HEAD.unpack_from(head)
    return bool(magic == _ENTRY_MAGIC and place == segment.base_offset and body_length == length - DLEDGER_FRAME_BYTES)


def list_segments(
    directories: list[str], store: str, files_of: Callable[[str], FileSystem]
) -> tuple[tuple[Segment, ...], list[Finding]]:
    """Return the segment files of one log, from one directory or (multi-path commit logs, 4.9.2+) several.

    `files_of`: the file system of each directory.
    Order:  base offset ascending.
    Damage: files that do not belong there, gaps, overlaps and different lengths are findings; no file is refused.
    Source: store/MappedFileQueue.java load; docs/formats/store.md#segments, docs/formats/store.md#several-paths.
    """
    findings: list[Finding] = []
    found: list[Segment] = []
    for directory in directories:
        for entry in _entries(files_of(directory), directory, store, findings):
            is_named = SEGMENT_NAME.fullmatch(entry.name) is not None and int(entry.name) <= _OFFSET_MAX
            if is_named and not entry.is_file:
                findings.append(Finding(store, "unreadable-file", as_text(entry.path), actual="not a file"))
                continue
            if not is_named:
                if not entry.is_directory:  # sub-directories are skipped by brokers from 5.1.0
                    findings.append(Finding(store, _FOREIGN, as_text(entry.path)))
                continue
            frame = DLEDGER_FRAME_BYTES if is_dledger(directory) else 0
            found.append(Segment(as_text(entry.path), int(entry.name), entry.size_bytes, entry.modified_ns, frame))
    found.sort(key=lambda segment: (segment.base_offset, segment.file))
    return _without_overlaps(found, store, findings), findings


def skipped_files(findings: list[Finding]) -> list[str]:
    """Return the files that `list_segments` skipped because of their names, by its findings."""
    return [one.file for one in findings if one.code == _FOREIGN and one.file is not None]


def _entries(files: FileSystem, directory: str, store: str, findings: list[Finding]) -> list[DirectoryEntry]:
    try:
        return files.entries(directory)
    except FileNotFoundError:
        return []
    except OSError as error:
        findings.append(Finding(store, "unreadable-file", as_text(directory), actual=error.strerror))
        return []


def _without_overlaps(found: list[Segment], store: str, findings: list[Finding]) -> tuple[Segment, ...]:
    sizes = Counter(segment.size_bytes for segment in found if segment.size_bytes)
    usual = sizes.most_common(1)[0][0] if sizes else 0
    kept: list[Segment] = []
    for number, segment in enumerate(found):
        if segment.size_bytes != usual:
            findings.append(
                Finding(
                    store, "segment-size", segment.file, 0, segment.size_bytes,
                    expected=f"{usual} bytes", actual=f"{segment.size_bytes} bytes",
                )
            )
        following = found[number + 1] if number + 1 < len(found) else None
        if following is not None and following.base_offset == segment.base_offset:
            findings.append(
                Finding(store, "segment-overlap", segment.file, actual=f"the same range as {following.file}")
            )
            continue
        if following is not None and segment.end_offset > following.base_offset:
            length = following.base_offset - segment.base_offset
            findings.append(
                Finding(
                    store, "segment-overlap", segment.file, length, segment.size_bytes - length,
                    expected=f"{length} bytes, because {following.file} begins there",
                    actual=f"{segment.size_bytes} bytes",
                )
            )
            segment = replace(segment, size_bytes=length)
        if kept and kept[-1].end_offset < segment.base_offset:
            gap = segment.base_offset - kept[-1].end_offset
            findings.append(
                Finding(
                    store, "segment-gap", kept[-1].file, kept[-1].size_bytes, gap,
                    commit_log_offset=kept[-1].end_offset,
                    expected=f"a file that begins at {kept[-1].end_offset}",
                    actual=f"the next file begins at {segment.base_offset}",
                )
            )
        kept.append(segment)
    return tuple(kept)


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
