"""The undo file: all that is needed to bring a store back, or to go on, written before the first byte changes.

A line says what it is; frames follow. Each has its kind, its length, and a hash over itself and the hash before it, so
that nothing torn, cut, exchanged or put in from another file passes. First comes the plan: head, fingerprint of what is
not changed, each edit with the content before and after, and the mark of its end. It is written under another name and
renamed when it is on the disk; so where FILE is not there, nothing was changed. Then states are appended, each on the
disk before what it announces. None: the changes are under way. A torn one at the end counts as not written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import secrets
import stat
import struct
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from readers.log.store_identity import first_record_of
from readers.model.errors import FormatError, RmqtxError, UnreadableFile, UnwritableFile
from repairs.changes.edits import Edit, Image, chunks, is_zero
from repairs.changes.file_operations import Attributes, FileOperations, told
from repairs.changes.fingerprints import FilePrint
from repairs.changes.undo_forms import END_FORM, STATE_FORM, edit_of, head_of, print_of
from repairs.changes.undo_frames import (
    AFTER,
    BEFORE,
    EDIT,
    END,
    HEAD,
    MAGIC,
    POSITION,
    PRINT,
    STATE,
    Frames,
    FrameWriter,
    encoded,
    torn,
)
from repairs.receipts.receipts import whoever
from verdicts.audit.provenance import tool

#: Added to the name as long as the plan is not complete.
UNFINISHED_SUFFIX = ".unfinished"
#: What was last begun or completed.
APPLYING, APPLIED, UNDOING, UNDONE = "applying", "applied", "undoing", "undone"
STATES: dict[str, str] = {
    APPLYING: "the changes were begun and not completed",
    APPLIED: "the changes are made",
    UNDOING: "undoing was begun and not completed",
    UNDONE: "the changes are undone",
}

@dataclass(frozen=True, slots=True)
class KeptImage:
    """The content of a file, or of a part of it, as an undo file keeps it; what it does not keep is zero.

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
        """What the undo file keeps."""
        return ((position, position + length) for position, length, _ in self.blocks)


@dataclass(slots=True)
class UndoFile:
    """An undo file as it was read; `mark` appends a state.

    Shape: `root` is the store's directory when it was made; `first_record` the digest of the first record of its log,
           None where it had none; `times` are those of the changed files after the last
           state that completed something, by path; `end_bytes` is where the next state goes.
    """

    path: Path
    undo_id: str
    root: str
    first_record: str | None
    about: tuple[str, ...]
    made_by: str
    who: str
    made_time_ms: int
    edits: list[Edit]
    fingerprint: list[FilePrint]
    state: str = APPLYING
    state_time_ms: int = 0
    times: dict[str, int] = field(default_factory=dict)
    end_bytes: int = 0
    chain: bytes = b""

    def mark(self, state: str, files: FileOperations, times: Mapping[str, int] | None = None) -> None:
        """Append a state; it is on the disk when this returns.

        Raises: UnwritableFile.
        """
        now_ms = _now_ms()
        values = {"state": state, "time_ms": now_ms, "who": whoever(), "times": dict(times or {})}
        frame, chain = encoded(STATE, _json(values), self.chain)
        files.write(self.path, self.end_bytes, frame)  # over one that was torn by a crash; what is left of it is none
        files.sync_file(self.path)
        self.state, self.state_time_ms, self.times = state, now_ms, dict(times or {})
        self.end_bytes, self.chain = self.end_bytes + len(frame), chain


# -- writing ----------------------------------------------------------------------------------------------------------


def write_undo_file(
    path: Path, root: Path, edits: Sequence[Edit], prints: Sequence[FilePrint], files: FileOperations,
    about: Sequence[str] = (),
) -> None:
    """Write the plan part; the file has its name only when all of it is on the disk.

    Raises: UnwritableFile, also where the file is there already: it may be the only way back from something else.
    """
    with _directory_locked(path.parent):
        if path.exists():
            raise UnwritableFile(
                f"{path} is there already", file=path,
                advice="it may be the way back from an earlier change; name another",
            )
        unfinished = path.with_name(path.name + UNFINISHED_SUFFIX)
        if unfinished.exists():  # of an attempt that changed nothing
            files.remove(unfinished)
        try:
            _write_plan(unfinished, root, edits, prints, files, about)
            files.rename(unfinished, path)
        except RmqtxError:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise
        files.sync_directory(path.parent)


@contextlib.contextmanager
def _directory_locked(directory: Path) -> Iterator[None]:
    """Lets one of us at a time write an undo file into a directory: two may be told the same name.

    Raises: UnwritableFile.
    """
    with told(directory):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # not every file system can; the names are checked all the same
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write_plan(
    path: Path, root: Path, edits: Sequence[Edit], prints: Sequence[FilePrint], files: FileOperations,
    about: Sequence[str],
) -> None:
    files.create(path, 0)
    writer = FrameWriter(path, files)
    head = {
        "undo_id": secrets.token_hex(8), "root": str(root), "first_record": first_record_of(root),
        "about": list(about), "made_by": tool(), "who": whoever(), "made_time_ms": _now_ms(),
    }  # fmt: skip
    writer.frame(HEAD, _json(head))
    writer.frame(PRINT, zlib.compress(_json([dataclasses.asdict(entry) for entry in prints]), 1))
    for edit in edits:
        writer.frame(EDIT, _json(_described(edit)))
        for kind, image in ((BEFORE, edit.before), (AFTER, edit.after)):
            for position, data in _blocks(image):
                writer.frame(kind, POSITION.pack(position) + data)
    writer.frame(END, _json({"edits_count": len(edits)}))
    writer.flush()
    files.sync_file(path)


def _blocks(image: Image | None) -> Iterator[tuple[int, bytes]]:
    """What of an image is not zero; files of a store are mostly holes."""
    if image is None:
        return
    for begin, end in chunks(image):
        data = image.read(begin, end)
        if len(data) != end - begin:
            raise UnreadableFile("a file became shorter while it was read", advice="nothing was changed; look again")
        if not is_zero(data):
            yield begin, data


def _described(edit: Edit) -> dict[str, Any]:
    return {
        "kind": edit.kind, "path": edit.path, "group": edit.group, "position_bytes": edit.position_bytes,
        "before_bytes": None if edit.before is None else edit.before.size_bytes,
        "after_bytes": None if edit.after is None else edit.after.size_bytes,
        "attributes": None if edit.attributes is None else dataclasses.asdict(edit.attributes),
    }  # fmt: skip


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode("ascii")


# -- reading ----------------------------------------------------------------------------------------------------------


def read_undo_file(path: Path) -> UndoFile:
    """An undo file, every byte of it checked.

    Raises: UnreadableFile; FormatError where it is none, is of another version, or is torn or changed.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would wait for its writer
        with open(descriptor, "rb") as source:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise FormatError(f"{path} is no undo file", file=path, advice="it is not even a file")
            return _read(path, source)
    except FileNotFoundError as error:
        unfinished = path.with_name(path.name + UNFINISHED_SUFFIX)
        advice = f"{unfinished} is: it was interrupted before anything was changed" if unfinished.exists() else None
        raise UnreadableFile(f"{path} is not there", file=path, advice=advice) from error
    except OSError as error:
        raise UnreadableFile(f"cannot read {path}: {error.strerror}", file=path) from error
    except (struct.error, zlib.error) as error:
        raise torn(path, 0) from error


def _read(path: Path, source: BinaryIO) -> UndoFile:
    magic = source.read(len(MAGIC))
    if magic != MAGIC:
        if magic.startswith(MAGIC[:16]):
            raise FormatError(f"{path} is an undo file of another version of rmqtx", file=path, actual=magic)
        raise FormatError(f"{path} is no undo file", file=path, advice="rmqtx writes one with --in-place --undo FILE")
    frames = Frames(path, source)
    undo_file: UndoFile | None = None
    described: list[tuple[dict[str, Any], dict[bytes, list[tuple[int, int, int]]]]] = []
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
            raise FormatError(f"{path} has a state that this version does not know", file=path)
    undo_file.end_bytes, undo_file.chain = frames.end_bytes, frames.chain
    return undo_file


def _head(path: Path, values: dict[str, Any]) -> UndoFile:
    return UndoFile(
        path, values["undo_id"], values["root"], values["first_record"], tuple(values["about"]), values["made_by"],
        values["who"], values["made_time_ms"], [], [], state_time_ms=values["made_time_ms"],
    )


def _edit(path: Path, values: dict[str, Any], blocks: dict[bytes, list[tuple[int, int, int]]]) -> Edit:
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


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
