"""The undo file: everything needed to revert or complete a change, written before the first byte changes.

It starts with a line that names the format; frames follow. Each frame has its kind, its length, and a hash over itself
and the hash before it, so that a torn, cut or exchanged frame is recognised. First comes the plan: head, fingerprint of
everything that is not changed, each edit with the content before and after, and an end frame. The plan is written under
a temporary name and renamed when it is on disk; so if the undo file does not exist, nothing was changed. Then
states are appended, each on disk before the changes that it announces. Without a state, the changes are under way. A
torn state at the end is ignored.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import secrets
import stat
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from rmqtx.readers.log.record_at import first_record_of
from rmqtx.readers.model import clock
from rmqtx.readers.model.errors import FormatError, RmqtxError, UnreadableFile, UnwritableFile
from rmqtx.readers.model.tables import column
from rmqtx.repairs.changes.edits import KINDS, Edit, Image, chunks, is_zero
from rmqtx.repairs.changes.file_operations import UNFINISHED_SUFFIX, Attributes, FileOperations, writing
from rmqtx.repairs.changes.fingerprints import FilePrint
from rmqtx.repairs.changes.undo_frames import (
    AFTER,
    BEFORE,
    EDIT,
    END,
    END_FORM,
    HEAD,
    MAGIC,
    POSITION,
    PRINT,
    STATE,
    STATE_FORM,
    EditValues,
    Frames,
    FrameWriter,
    UndoHead,
    edit_of,
    encoded,
    head_of,
    print_of,
    torn,
)
from rmqtx.repairs.receipts.receipts import whoever
from rmqtx.verdicts.audit.provenance import tool

#: The last step that was begun or completed.
APPLYING, APPLIED, UNDOING, UNDONE = "applying", "applied", "undoing", "undone"
STATES: dict[str, str] = {
    APPLYING: "the changes were begun and not completed",
    APPLIED: "the changes are complete",
    UNDOING: "undoing was begun and not completed",
    UNDONE: "the changes are undone",
}

#: A receipt's id in a line of an undo file of a version that did not write the ids apart.
_RECEIPT_IN_LINE = re.compile(r"\(receipt ([0-9A-Z.]+Z-[0-9a-f]{6})\)")
#: One change of one file.
EDITS = pa.schema(
    [
        column("path", pa.string(), "the file, below the store's root"),
        column("change", pa.string(), f"the change: one of {', '.join(KINDS)}"),
        column("position_bytes", pa.int64(), "position in the file; null for a whole file"),
        column("before_bytes", pa.int64(), "number of bytes before the change; null where there was no file"),
        column("after_bytes", pa.int64(), "number of bytes after the change; null where there is no file"),
        column("group", pa.int32(), "number of barriers before the change: earlier groups were on disk first"),
    ]
)


@dataclass(frozen=True, slots=True)
class KeptImage:
    """The content of a file, or of a part of it, in an undo file; ranges that are not stored are zero.

    Shape: `blocks` are (position in the image, length, position in the undo file), in order.
    """

    file: Path
    size_bytes: int
    blocks: tuple[tuple[int, int, int], ...]

    def read(self, begin: int, end: int) -> bytes:
        """The bytes from one position to another."""
        end = min(end, self.size_bytes)
        data = bytearray(max(0, end - begin))
        with self.file.open("rb") as source:
            for position, length, at in self.blocks:
                first, last = max(begin, position), min(end, position + length)
                if first < last:
                    source.seek(at + first - position)
                    data[first - begin : last - begin] = source.read(last - first)
        return bytes(data)

    def ranges(self) -> Iterator[tuple[int, int]]:
        """The stored ranges."""
        return ((position, position + length) for position, length, _ in self.blocks)


@dataclass(slots=True)
class UndoFile:
    """The content of an undo file; `mark` appends a state.

    Shape: `root`: the store's directory when the file was made; `first_record`: digest of the first record of its log,
           None where it had none; `about`: lines for people; `receipts`: ids of the receipts of the changes; `times`:
           times of the changed files after the last state that completed something, by path, and of others whose new
           time was accepted then; `end_bytes`: position of the next state; `has_new_lock`: the store had no file
           `lock` before the change.
    """

    path: Path
    undo_id: str
    root: str
    first_record: str | None
    about: tuple[str, ...]
    made_by: str
    who: str
    made_time_ms: int
    receipts: tuple[str, ...]
    edits: list[Edit]
    fingerprint: list[FilePrint]
    state: str = APPLYING
    state_time_ms: int = 0
    times: dict[str, int] = field(default_factory=dict)
    end_bytes: int = 0
    chain: bytes = b""
    has_new_lock: bool = False

    def mark(self, state: str, files: FileOperations, times: Mapping[str, int] | None = None) -> None:
        """Append a state; it is on disk when this returns. Raises: UnwritableFile."""
        now_ms = clock.now_ms()
        values = {"state": state, "time_ms": now_ms, "who": whoever(), "times": dict(times or {})}
        frame, chain = encoded(STATE, _json(values), self.chain)
        files.write(self.path, self.end_bytes, frame)  # over a torn state; what remains of that is not a frame
        files.sync_file(self.path)
        self.state, self.state_time_ms, self.times = state, now_ms, dict(times or {})
        self.end_bytes, self.chain = self.end_bytes + len(frame), chain


# -- writing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """What the plan part of an undo file is made of; see `UndoFile`."""

    root: Path
    edits: Sequence[Edit]
    fingerprint: Sequence[FilePrint]
    about: Sequence[str]
    receipts: Sequence[str]
    has_new_lock: bool


def write_undo_file(path: Path, change: PlannedChange, files: FileOperations) -> None:
    """Write the plan part; the file gets its name only when all of it is on disk.

    Raises: UnwritableFile, also if the file exists: it may be the only undo file of another change.
    """
    with _directory_locked(path.parent):
        if path.exists():
            raise UnwritableFile(
                f"{path} already exists", file=path,
                advice="it may be the undo file of an earlier change; give another name",
            )
        unfinished = path.with_name(path.name + UNFINISHED_SUFFIX)
        if unfinished.exists():  # of an attempt that changed nothing
            files.remove(unfinished)
        try:
            _write_plan(unfinished, change, files)
            files.rename(unfinished, path)
        except RmqtxError:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise
        files.sync_directory(path.parent)


@contextlib.contextmanager
def _directory_locked(directory: Path) -> Iterator[None]:
    """Lock a directory, so that two rmqtx processes cannot write an undo file of the same name at once.

    Raises: UnwritableFile.
    """
    with writing(directory):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # not every file system can; the names are checked anyway
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write_plan(path: Path, change: PlannedChange, files: FileOperations) -> None:
    files.create(path, 0)
    writer = FrameWriter(path, files)
    head = {
        "undo_id": secrets.token_hex(8), "root": str(change.root), "first_record": first_record_of(change.root),
        "about": list(change.about), "made_by": tool(), "who": whoever(), "made_time_ms": clock.now_ms(),
        "receipts": list(change.receipts), "has_new_lock": change.has_new_lock,
    }
    writer.frame(HEAD, _json(head))
    writer.frame(PRINT, zlib.compress(_json([dataclasses.asdict(entry) for entry in change.fingerprint]), 1))
    for edit in change.edits:
        writer.frame(EDIT, _json(_described(edit)))
        for kind, image in ((BEFORE, edit.before), (AFTER, edit.after)):
            for position, data in _blocks(image):
                writer.frame(kind, POSITION.pack(position) + data)
    writer.frame(END, _json({"edits_count": len(change.edits)}))
    writer.flush()
    files.sync_file(path)


def _blocks(image: Image | None) -> Iterator[tuple[int, bytes]]:
    """The parts of an image that are not zero; files of a store are mostly holes."""
    if image is None:
        return
    for begin, end in chunks(image):
        data = image.read(begin, end)
        if len(data) != end - begin:
            raise UnreadableFile(
                "a file became shorter while it was read; nothing was changed", advice="run the command again"
            )
        if not is_zero(data):
            yield begin, data


def _described(edit: Edit) -> EditValues:
    return {
        "kind": edit.kind, "path": edit.path, "group": edit.group, "position_bytes": edit.position_bytes,
        "before_bytes": None if edit.before is None else edit.before.size_bytes,
        "after_bytes": None if edit.after is None else edit.after.size_bytes,
        "attributes": None if edit.attributes is None else dataclasses.asdict(edit.attributes),
    }


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode("ascii")


# -- reading ----------------------------------------------------------------------------------------------------------


def read_undo_file(path: Path) -> UndoFile:
    """Read an undo file and check every byte of it.

    Raises: UnreadableFile; FormatError if it is not an undo file, is of another version, or is damaged.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would wait for its writer
        with open(descriptor, "rb") as source:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise FormatError(f"{path} is not an undo file", file=path, advice="it is not a regular file")
            return _read(path, source)
    except FileNotFoundError as error:
        unfinished = path.with_name(path.name + UNFINISHED_SUFFIX)
        advice = None
        if unfinished.exists():
            advice = f"{unfinished} exists: the command was interrupted before anything was changed"
        raise UnreadableFile(f"{path} does not exist", file=path, advice=advice) from error
    except OSError as error:
        raise UnreadableFile(f"cannot read {path}: {error.strerror}", file=path) from error
    except (struct.error, zlib.error) as error:
        raise torn(path, 0) from error


def _read(path: Path, source: BinaryIO) -> UndoFile:
    magic = source.read(len(MAGIC))
    if magic != MAGIC:
        if magic.startswith(MAGIC[:16]):
            raise FormatError(f"{path} is an undo file of another version of rmqtx", file=path, actual=magic)
        raise FormatError(
            f"{path} is not an undo file", file=path, advice="rmqtx writes undo files with --in-place --undo FILE"
        )
    frames = Frames(path, source)
    undo_file: UndoFile | None = None
    described: list[tuple[EditValues, dict[bytes, list[tuple[int, int, int]]]]] = []
    for kind, content, at in frames.plan():
        if kind == HEAD:
            undo_file = _head(path, head_of(content, path))
        elif undo_file is None:
            raise torn(path, at)
        elif kind == PRINT:
            undo_file.fingerprint = print_of(content, path)
        elif kind == EDIT:
            described.append((edit_of(content, path), {BEFORE: [], AFTER: []}))
        elif kind in (BEFORE, AFTER):
            if not described:
                raise torn(path, at)
            position = POSITION.unpack_from(content)[0]
            described[-1][1][kind].append((position, len(content) - POSITION.size, at + POSITION.size))
        elif kind == END:
            undo_file.edits = [_edit(path, values, blocks) for values, blocks in described]
            if END_FORM.read(content, str(path))["edits_count"] != len(described):
                raise torn(path, at)
    if undo_file is None:
        raise torn(path, 0)
    for content in frames.states():
        values = STATE_FORM.read(content, str(path))
        undo_file.state, undo_file.state_time_ms, undo_file.times = values["state"], values["time_ms"], values["times"]
        if undo_file.state not in STATES:
            raise FormatError(f"{path} has a state that this version of rmqtx does not support", file=path)
    undo_file.end_bytes, undo_file.chain = frames.end_bytes, frames.chain
    return undo_file


def _head(path: Path, values: UndoHead) -> UndoFile:
    receipts = values["receipts"]
    if receipts is None:
        receipts = [name for line in values["about"] for name in _RECEIPT_IN_LINE.findall(line)]
    return UndoFile(
        path, values["undo_id"], values["root"], values["first_record"], tuple(values["about"]), values["made_by"],
        values["who"], values["made_time_ms"], tuple(dict.fromkeys(receipts)), [], [],
        state_time_ms=values["made_time_ms"], has_new_lock=bool(values["has_new_lock"]),
    )


def _edit(path: Path, values: EditValues, blocks: dict[bytes, list[tuple[int, int, int]]]) -> Edit:
    def image(kind: bytes, size_bytes: int | None) -> KeptImage | None:
        if size_bytes is None:
            return None
        reached = 0
        for position, length, at in blocks[kind]:
            if not reached <= position <= position + length <= size_bytes:
                raise torn(path, at)
            reached = position + length
        return KeptImage(path, size_bytes, tuple(blocks[kind]))

    return Edit(
        values["kind"], values["path"], values["group"], values["position_bytes"],
        image(BEFORE, values["before_bytes"]), image(AFTER, values["after_bytes"]),
        None if values["attributes"] is None else Attributes(**values["attributes"]),
    )


def table(undo_file: UndoFile) -> pa.Table:
    """The changes of an undo file. Shape: EDITS. Order: as they are made; undo reverses it."""
    rows = [
        {
            "path": edit.path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"),
            "change": edit.kind, "position_bytes": edit.position_bytes,
            "before_bytes": None if edit.before is None else edit.before.size_bytes,
            "after_bytes": None if edit.after is None else edit.after.size_bytes, "group": edit.group,
        }
        for edit in undo_file.edits
    ]
    return pa.Table.from_pylist(rows, schema=EDITS)
