"""The frames of an undo file: each with its kind, its length, and a hash over itself and the hash before it.

So a torn, cut or exchanged frame, or one from another file, is recognised.

An undo file determines what is written to which file. The content of a frame has a declared form, and a file from
elsewhere must name only a broker's own files below the store's root, and give them only values that such files can
have.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TypedDict

import pyarrow as pa

from rmqtx.readers.model.declared_json import JsonForm, list_of, needed, parsed, shown
from rmqtx.readers.model.errors import BadRequest, BadText, FormatError
from rmqtx.repairs.changes.change_sets import check_path
from rmqtx.repairs.changes.edits import CREATE, KINDS, REMOVE, REPLACE, WRITE
from rmqtx.repairs.changes.file_operations import CHUNK_BYTES, FileOperations
from rmqtx.repairs.changes.fingerprints import FilePrint

MAGIC = b"rmqtx undo file 2\n"

#: Kind and length of a frame's content; the hash and the content follow.
_HEADER = struct.Struct(">4sQ")
_HASH_BYTES = 32
HEAD, PRINT, EDIT, BEFORE, AFTER, END, STATE = b"head", b"prnt", b"edit", b"befo", b"aftr", b"end ", b"stat"
POSITION = struct.Struct(">Q")
#: No frame is longer; only the fingerprint of a store with very many files comes near.
_FRAME_MAX_BYTES = 1 << 30
_NAME = "undo file"
_TEXT, _WHOLE, _PATH = pa.string(), pa.int64(), pa.binary()

HEAD_FORM = JsonForm(
    _NAME,
    pa.struct(
        [
            needed("undo_id", _TEXT), needed("root", _PATH), pa.field("first_record", _TEXT),
            needed("about", list_of(_TEXT)), needed("made_by", _TEXT), needed("who", _TEXT),
            needed("made_time_ms", _WHOLE), pa.field("receipts", list_of(_TEXT)),
            pa.field("has_new_lock", pa.bool_()),
        ]
    ),
)
_ATTRIBUTES = pa.struct(
    [needed("mode", _WHOLE), needed("user", _WHOLE), needed("group", _WHOLE), needed("modified_ns", _WHOLE)]
)
EDIT_FORM = JsonForm(
    _NAME,
    pa.struct(
        [
            needed("kind", _TEXT), needed("path", _PATH), needed("group", _WHOLE), pa.field("position_bytes", _WHOLE),
            pa.field("before_bytes", _WHOLE), pa.field("after_bytes", _WHOLE), pa.field("attributes", _ATTRIBUTES),
        ]
    ),
)
_PRINT_FORM = JsonForm(
    _NAME,
    list_of(
        pa.struct(
            [
                needed("path", _PATH), needed("size_bytes", _WHOLE), pa.field("modified_ns", _WHOLE),
                pa.field("digest", _TEXT),
            ]
        )
    ),
)
END_FORM = JsonForm(_NAME, pa.struct([needed("edits_count", _WHOLE)]))
STATE_FORM = JsonForm(
    _NAME,
    pa.struct(
        [
            needed("state", _TEXT), needed("time_ms", _WHOLE), needed("who", _TEXT),
            needed("times", pa.map_(_PATH, pa.field("time", _WHOLE, nullable=False))),
        ]
    ),
)
#: Limit for the list of files, above that of any real store.
_PRINT_BYTES_MAX = 1 << 28
_SIZE_BYTES_MAX = 1 << 42
_UNDO_ID = re.compile(r"[0-9a-f]{16}")
#: What each kind of edit has: a position, content before, content after.
_HAS = {
    WRITE: (True, True, True), CREATE: (False, False, True), REPLACE: (False, None, True), REMOVE: (False, True, False),
}


def encoded(kind: bytes, content: bytes, chain: bytes) -> tuple[bytes, bytes]:
    """Return a frame, and its hash, from which the next frame's hash continues."""
    header = _HEADER.pack(kind, len(content))
    digest = hashlib.blake2b(chain + header, digest_size=_HASH_BYTES)
    digest.update(content)
    return header + digest.digest() + content, digest.digest()


class FrameWriter:
    """Collects frames into large writes."""

    def __init__(self, path: Path, files: FileOperations) -> None:
        self._path, self._files = path, files
        self._position = 0
        self._waiting = bytearray(MAGIC)
        self._chain = b""

    def frame(self, kind: bytes, content: bytes) -> None:
        """Append a frame. Raises: UnwritableFile."""
        data, self._chain = encoded(kind, content, self._chain)
        self._waiting += data
        if len(self._waiting) >= CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the collected frames, without syncing to disk. Raises: UnwritableFile."""
        self._files.write(self._path, self._position, bytes(self._waiting))
        self._position += len(self._waiting)
        self._waiting.clear()


class Frames:
    """Reads frames in order; `end_bytes` and `chain`: position and hash after the last valid frame."""

    def __init__(self, path: Path, source: BinaryIO) -> None:
        self._path, self._source = path, source
        self.end_bytes = len(MAGIC)
        self.chain = b""

    def plan(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Kind, content and the content's position of each frame up to the end of the plan."""
        kind = b""
        while kind != END:
            frame = self._next()
            if frame is None:
                raise torn(self._path, self.end_bytes)
            kind = frame[0]
            yield frame

    def states(self) -> Iterator[bytes]:
        """Content of the state frames after the plan; a torn frame at the end is skipped."""
        while (frame := self._next()) is not None:
            kind, content, at = frame
            if kind != STATE:
                raise torn(self._path, at)
            yield content

    def _next(self) -> tuple[bytes, bytes, int] | None:
        self._source.seek(self.end_bytes)
        header = self._source.read(_HEADER.size + _HASH_BYTES)
        if len(header) < _HEADER.size + _HASH_BYTES:
            return None
        kind, length = _HEADER.unpack_from(header)
        if length > _FRAME_MAX_BYTES:
            return None
        content = self._source.read(length)
        frame, chain = encoded(kind, content, self.chain)
        if len(content) != length or frame[: len(header)] != header:
            return None
        at = self.end_bytes + len(header)
        self.end_bytes, self.chain = at + length, chain
        return kind, content, at


def torn(path: Path, position_bytes: int) -> FormatError:
    """Return the error for a damaged undo file."""
    return FormatError(
        f"{path} is damaged or was changed; nothing was done", file=path, position_bytes=position_bytes,
        advice="use a backup of this undo file, or of the store",
    )


class UndoHead(TypedDict):
    """The head of an undo file; `receipts` and `has_new_lock` are None in files of versions without the field."""

    undo_id: str
    root: str
    first_record: str | None
    about: list[str]
    made_by: str
    who: str
    made_time_ms: int
    receipts: list[str] | None
    has_new_lock: bool | None


class EditValues(TypedDict):
    """An edit in an undo file, without its content."""

    kind: str
    path: str
    group: int
    position_bytes: int | None
    before_bytes: int | None
    after_bytes: int | None
    attributes: dict[str, int] | None


def head_of(content: bytes, path: Path) -> UndoHead:
    """Return the head of an undo file. Raises: BadText."""
    found = parsed(content, str(path), _NAME)
    if isinstance(found, dict):
        found.setdefault("receipts", None)
        found.setdefault("has_new_lock", None)
    values: UndoHead = HEAD_FORM.check(found, str(path))
    if not _UNDO_ID.fullmatch(values["undo_id"]):
        raise HEAD_FORM.bad(str(path), "undo_id", "16 hexadecimal digits", shown(values["undo_id"]))
    if not Path(values["root"]).is_absolute():
        raise HEAD_FORM.bad(str(path), "root", "an absolute path", shown(values["root"]))
    return values


def print_of(content: bytes, path: Path) -> list[FilePrint]:
    """Return the fingerprint in an undo file. Raises: BadText; zlib.error for damaged content."""
    inflater = zlib.decompressobj()
    text = inflater.decompress(content, _PRINT_BYTES_MAX)
    if inflater.unconsumed_tail or not inflater.eof:
        raise BadText(f"{path} is not a valid {_NAME}: its list of files is incomplete, or far too long", file=path)
    return [FilePrint(**values) for values in _PRINT_FORM.read(text, str(path))]


def edit_of(content: bytes, path: Path) -> EditValues:
    """Return an edit in an undo file, after checking that its parts fit together. Raises: BadText."""
    values: EditValues = EDIT_FORM.read(content, str(path))

    def bad(field: str, expected: str) -> BadText:
        return EDIT_FORM.bad(str(path), field, expected, shown(values.get(field)))

    if values["kind"] not in KINDS:
        raise bad("kind", f"one of {', '.join(KINDS)}")
    try:
        check_path(values["path"])
    except BadRequest as error:
        raise BadText(f"{path} is not a valid {_NAME}: {error.message}", file=path) from error
    sizes = {
        "position_bytes": values["position_bytes"], "before_bytes": values["before_bytes"],
        "after_bytes": values["after_bytes"],
    }
    for (field, value), has in zip(sizes.items(), _HAS[values["kind"]], strict=True):
        if has is not None and has != (value is not None):
            raise bad(field, "a number" if has else "null")
        if value is not None and not 0 <= value < _SIZE_BYTES_MAX:
            raise bad(field, "a length or a position in a file")
    if values["kind"] == WRITE and values["before_bytes"] != values["after_bytes"]:
        raise bad("after_bytes", "as many bytes as before")
    if values["attributes"] is None and values["before_bytes"] is not None:
        raise bad("attributes", "the attributes of the file")
    if values["attributes"] is not None and not 0 <= values["attributes"]["mode"] <= 0o777:
        raise EDIT_FORM.bad(str(path), "attributes.mode", "permission bits", str(values["attributes"]["mode"]))
    return values
