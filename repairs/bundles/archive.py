"""Writing a bundle: a directory of sparse files, or the same packed as FILE.tar.xz, reproducible byte for byte.

Archives contain sparse files in a form that GNU tar, bsdtar and Python unpack with their holes (PAX sparse format 1.0):
a segment of 1 GiB with some records takes only the space of the records.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TypedDict

from rmqtx.readers.model.errors import UnwritableFile
from rmqtx.readers.storage.temporary import temporary_beside
from rmqtx.repairs.bundles.files import PlannedFile

_BLOCK_BYTES = 512
#: Bundles contain bodies and keys: only their owner may read them.
_DIRECTORY_MODE, _FILE_MODE = 0o700, 0o600


class FileEntry(TypedDict):
    """A file in the manifest. `extents`: position and length of everything that is not a hole; `sha256`: of these."""

    path: str
    size_bytes: int
    extents: list[list[int]]
    sha256: str


def write_files(planned: Iterable[PlannedFile], directory: Path) -> Iterator[FileEntry]:
    """Write planned files below a directory, and yield the manifest's entry of each. Raises: UnwritableFile."""
    for file in planned:
        target = directory / file.path
        digest = hashlib.sha256()
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(_private(target), "wb") as stream:
                for extent in file.extents:
                    stream.seek(extent.position_bytes)
                    for piece in extent.pieces():
                        digest.update(piece)
                        stream.write(piece)
                stream.truncate(file.size_bytes)
        except OSError as error:
            raise UnwritableFile(f"cannot write {target}: {error.strerror or error}", file=target) from error
        extents = [[extent.position_bytes, extent.length_bytes] for extent in file.extents]
        yield {"path": file.path, "size_bytes": file.size_bytes, "extents": extents, "sha256": digest.hexdigest()}


def _private(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)


def pack(directory: Path, name: str, facts: list[FileEntry], directories: list[str], archive: Path) -> None:
    """Pack written files under a name: without owner and times, in the order of their paths.

    `facts`: the entries from `write_files`; only the extents of each file are read.
    Raises: UnwritableFile, also if the archive exists.
    """
    temporary = temporary_beside(archive)
    try:
        with open(_private(temporary), "wb") as raw:
            with lzma.open(raw, "wb", preset=6) as packed, tarfile.open(
                fileobj=packed, mode="w", format=tarfile.PAX_FORMAT
            ) as tar:
                for path in sorted({"", *directories, *_parents(facts)}):
                    info = tarfile.TarInfo("/".join([name, path]).rstrip("/"))
                    info.type, info.mode = tarfile.DIRTYPE, _DIRECTORY_MODE
                    tar.addfile(info)
                for fact in sorted(facts, key=lambda fact: fact["path"]):
                    _add(tar, directory, name, fact)
            raw.flush()
            os.fsync(raw.fileno())
        os.link(temporary, archive)  # unlike a rename it does not replace an existing file
    except FileExistsError as error:
        raise UnwritableFile(f"{archive} already exists", file=archive, advice="give another name") from error
    except OSError as error:
        raise UnwritableFile(f"cannot write {archive}: {error.strerror or error}", file=archive) from error
    finally:
        temporary.unlink(missing_ok=True)


def _parents(facts: list[FileEntry]) -> set[str]:
    found: set[str] = set()
    for fact in facts:
        parts = fact["path"].split("/")[:-1]
        found.update("/".join(parts[: number + 1]) for number in range(len(parts)))
    return found


def _add(tar: tarfile.TarFile, directory: Path, name: str, fact: FileEntry) -> None:
    path, size = f"{name}/{fact['path']}", fact["size_bytes"]
    extents = _by_blocks(fact["extents"], size)
    info = tarfile.TarInfo(path)
    info.mode = _FILE_MODE
    with open(directory / fact["path"], "rb") as file:
        if sum(length for _, length in extents) == size:
            info.size = size
            tar.addfile(info, file)
            return
        rows = [*extents, [size, 0]]  # the last row marks the end of the file
        numbers = [len(rows), *(number for row in rows for number in row)]
        head = "".join(f"{number}\n" for number in numbers).encode("ascii")
        head += bytes(-len(head) % _BLOCK_BYTES)
        info.pax_headers = {
            "GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": path,
            "GNU.sparse.realsize": str(size),
        }
        info.name = f"{name}/GNUSparseFile.0/{fact['path'].rpartition('/')[2]}"
        info.size = len(head) + sum(length for _, length in extents)
        tar.addfile(info, _Extents(head, file, extents))


def _by_blocks(extents: list[list[int]], size: int) -> list[list[int]]:
    """The extents rounded to whole blocks, and adjacent ones joined: GNU tar starts each extent with a new block."""
    found: list[list[int]] = []
    for position, length in extents:
        begin = position // _BLOCK_BYTES * _BLOCK_BYTES
        end = min(-(-(position + length) // _BLOCK_BYTES) * _BLOCK_BYTES, size)
        if found and begin <= sum(found[-1]):
            found[-1][1] = max(end, sum(found[-1])) - found[-1][0]
        else:
            found.append([begin, end - begin])
    return found


class _Extents(io.RawIOBase):
    """The map of a sparse file and its content, as one stream."""

    def __init__(self, head: bytes, file: IO[bytes], extents: list[list[int]]) -> None:
        self._pieces = self._all(head, file, extents)
        self._left = b""

    @staticmethod
    def _all(head: bytes, file: IO[bytes], extents: list[list[int]]) -> Iterator[bytes]:
        yield head
        for position, length in extents:
            file.seek(position)
            while length:
                piece = file.read(min(length, 1 << 20))
                if not piece:
                    raise OSError("a file of the bundle became shorter")
                yield piece
                length -= len(piece)

    def read(self, size: int = -1) -> bytes:
        """The next `size` bytes, fewer only at the end."""
        parts = [self._left]
        have = len(self._left)
        while size < 0 or have < size:
            piece = next(self._pieces, b"")
            if not piece:
                break
            parts.append(piece)
            have += len(piece)
        data = b"".join(parts)
        if size < 0:
            size = len(data)
        self._left = data[size:]
        return data[:size]
