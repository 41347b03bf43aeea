"""The frames of an undo file: each with its kind, its length, and a hash over itself and the hash before it.

So a torn, cut or exchanged frame, or one from another file, is recognised.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from rmqtx.readers.model.errors import FormatError
from rmqtx.repairs.changes.file_operations import CHUNK_BYTES, FileOperations

MAGIC = b"rmqtx undo file 2\n"

#: Kind and length of a frame's content; the hash and the content follow.
_HEADER = struct.Struct(">4sQ")
_HASH_BYTES = 32
HEAD, PRINT, EDIT, BEFORE, AFTER, END, STATE = b"head", b"prnt", b"edit", b"befo", b"aftr", b"end ", b"stat"
POSITION = struct.Struct(">Q")
#: No frame is longer; only the fingerprint of a store with very many files comes near.
_FRAME_MAX_BYTES = 1 << 30


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
        """Append a frame.

        Raises: UnwritableFile.
        """
        data, self._chain = encoded(kind, content, self._chain)
        self._waiting += data
        if len(self._waiting) >= CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the collected frames, without syncing to disk.

        Raises: UnwritableFile.
        """
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
