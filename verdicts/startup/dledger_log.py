"""How DLedger reads its log when a broker starts: entry after entry, from one of the last files on, up to its end.

DLedger tests the headers of entries only, not the records in them: where a header is wrong, the log ends, whatever
follows.

Source: io/openmessaging/storage/dledger/store/file/DLedgerMmapFileStore.java recover;
        docs/formats/dledger.md#recovery.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rmqtx.readers.log.dledger import BLANK_MAGIC, ENTRY_HEADER, ENTRY_MAGIC, INDEX_ENTRY
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.storage.open_file import OpenFile
from rmqtx.readers.storage.segments import DLEDGER_FRAME_BYTES, Segment
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.startup.log_walk import LogWalk

_WINDOW_BYTES = 4 << 20
_FILES_BACK = 3
_CHECKPOINT_BYTES_MAX = 4096


def walk_entries(store: Store) -> LogWalk | None:
    """Return where the recovery of DLedger begins to read and ends the log, with numbers of files of the whole log.

    None without a DLedger log; a log from before it may stand in front.
    Raises: FileChanged, UnreadableFile.
    """
    files = [segment for segment in store.commit_log if segment.frame_bytes and segment.size_bytes]
    if not files:
        return None
    index = term = -1
    first = _first_file(store, files)
    before = store.commit_log.index(files[0])
    for number, segment in enumerate(files[first:], first):
        with segment.open() as file:
            for place, entry in _entries(file, segment.base_offset):
                if entry is None:
                    why = "the file ends without a blank"
                    return LogWalk(store.commit_log, before + first, before + number, place, why)
                if entry["magic"] == BLANK_MAGIC:
                    break
                ended = _why_ended(entry, place, index, term)
                if ended is not None:
                    return LogWalk(store.commit_log, before + first, before + number, place, ended)
                index, term = entry["entry_index"], entry["term"]
    last, end_offset = before + len(files) - 1, files[-1].end_offset
    return LogWalk(store.commit_log, before + first, last, end_offset, "the last file is full")


def entries_begin(store: Store) -> int | None:
    """Return the commit-log offset of the file with which the recovery of DLedger begins; None without a DLedger log.

    Raises: FileChanged, UnreadableFile.
    """
    files = [segment for segment in store.commit_log if segment.frame_bytes and segment.size_bytes]
    return files[_first_file(store, files)].base_offset if files else None


def is_too_far_back(store: Store, walk: LogWalk) -> bool:
    """Whether the end is so far before the last file that the broker exits instead of deleting the files between."""
    last = store.commit_log[-1]
    return last.base_offset - walk.end_offset > last.size_bytes


def committed_offset(store: Store) -> int | None:
    """Return the end of the last entry that the checkpoint of DLedger has as committed; None if that is unknown.

    Raises: FileChanged, UnreadableFile.
    """
    files = [segment for segment in store.commit_log if segment.frame_bytes and segment.size_bytes]
    if not files:
        return None
    text = _read_beside(store, files[0], "checkpoint", 0, _CHECKPOINT_BYTES_MAX)
    found = re.search(rb"^committedIndex=(\d{1,18})$", text, re.MULTILINE)
    if found is None:
        return None
    raw = _index_entry(store, files[0], int(found[1]))
    if len(raw) < INDEX_ENTRY.size_bytes:
        return None
    at = INDEX_ENTRY.offsets
    length = int.from_bytes(raw[at["length_bytes"] : at["entry_index"]], "big")
    return int.from_bytes(raw[at["entry_offset"] : at["length_bytes"]], "big") + length


def _entries(file: OpenFile, base_offset: int) -> Iterator[tuple[int, dict[str, int] | None]]:
    """Yield the place and header of each entry of a file, as their lengths lead; None where the file ends."""
    position, begin, data = 0, 0, b""
    while True:
        if position + DLEDGER_FRAME_BYTES > begin + len(data) or position < begin:
            begin, data = position, file.read(position, _WINDOW_BYTES)
        raw = data[position - begin : position - begin + DLEDGER_FRAME_BYTES]
        if len(raw) >= 8 and int.from_bytes(raw[:4], "big", signed=True) == BLANK_MAGIC:
            yield base_offset + position, {"magic": BLANK_MAGIC}
            return
        if len(raw) < DLEDGER_FRAME_BYTES:
            yield base_offset + position, None
            return
        entry = ENTRY_HEADER.unpack(raw)
        yield base_offset + position, entry
        position += entry["length_bytes"]


def _why_ended(entry: dict[str, int], place: int, index: int, term: int) -> str | None:
    """Return why an entry ends the log; None if it does not. `index`, `term`: those of the entry before it, or -1."""
    if not any(entry.values()):
        return "zeros"
    if entry["entry_offset"] != place:
        return f"its entry has the place {entry['entry_offset']}"
    if entry["body_length_bytes"] + DLEDGER_FRAME_BYTES != entry["length_bytes"]:
        return f"its entry has {entry['length_bytes']} bytes, and its body {entry['body_length_bytes']}"
    if entry["magic"] != ENTRY_MAGIC:
        return f"its entry has the magic code {entry['magic']}"
    if index >= 0 and entry["entry_index"] != index + 1:
        return f"its entry has number {entry['entry_index']} after {index}"
    if entry["term"] < term:
        return f"its entry has term {entry['term']} after {term}"
    if entry["length_bytes"] <= DLEDGER_FRAME_BYTES:
        return "its entry has no body"
    return None


def _first_file(store: Store, files: Sequence[Segment]) -> int:
    """Return the number of the file with which the recovery begins: one whose first entry agrees with the index."""
    for number in range(max(0, len(files) - _FILES_BACK), 0, -1):
        with files[number].open() as file:
            raw = file.read(0, DLEDGER_FRAME_BYTES)
        if len(raw) < DLEDGER_FRAME_BYTES:
            continue
        entry = ENTRY_HEADER.unpack(raw)
        if _why_ended(entry, files[number].base_offset, -1, -1) is None and _is_indexed(store, files[number], entry):
            return number
    return 0


def _is_indexed(store: Store, segment: Segment, entry: dict[str, int]) -> bool:
    """Whether the index beside the data has an entry as it is in the data."""
    wanted = INDEX_ENTRY.pack(**{name: entry[name] for name in INDEX_ENTRY.offsets})
    return _index_entry(store, segment, entry["entry_index"]) == wanted


def _index_entry(store: Store, segment: Segment, index: int) -> bytes:
    """Return what the index beside the data has for an entry; no bytes if it has none."""
    place = index * INDEX_ENTRY.size_bytes
    try:
        names = [one.name for one in store.files.entries(_beside(segment, "index")) if one.name.isdecimal()]
    except OSError:
        return b""
    name = max((name for name in names if int(name) <= place), default=None)
    if name is None:
        return b""
    return _read_beside(store, segment, f"index/{name}", place - int(name), INDEX_ENTRY.size_bytes)


def _beside(segment: Segment, name: str) -> str:
    """Return the path of a file beside the directory of the data."""
    return f"{segment.file.rpartition('/')[0].rpartition('/')[0]}/{name}"


def _read_beside(store: Store, segment: Segment, name: str, position: int, length: int) -> bytes:
    """Return bytes of a file beside the directory of the data; no bytes if it cannot be read."""
    try:
        entry = store.files.entry(_beside(segment, name))
        if entry is None or not entry.is_file:
            return b""
        with Segment(entry.path, 0, entry.size_bytes).open() as file:
            return file.read(position, length)
    except (OSError, SourceError):
        return b""
