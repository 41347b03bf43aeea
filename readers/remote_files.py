"""Files of any file system that `pyarrow.fs` opens, read in place: listings, small files whole, ranges of large ones.

Every question is a request over a network, so answers are kept: listings for as long as a snapshot of a store lasts,
handles of the last files, and the blocks of the last small reads. Where nothing but zeros was read is remembered too,
for an object store knows no holes. Nothing is ever written, and nothing is stored on disk.

What is kept is kept by the file's length and time of change in the snapshot, so a later snapshot never sees old bytes.
Credentials come from the environment or the cloud's own default; they are in no place, row, error or pickle.
"""

from __future__ import annotations

import errno
import functools
import os
import re
from collections import OrderedDict
from pathlib import PurePosixPath
from typing import NamedTuple

import pyarrow as pa
from pyarrow import fs

from readers.errors import FileChanged, UnreadableFile
from readers.places import Entry, Uri, joined, uri_of
from readers.sources import OpenFile

#: Small reads fetch and keep whole blocks: the first byte of a request costs more than the rest of a block.
BLOCK_BYTES = 256 << 10
#: Reads larger than this are not kept: a scan would drive out what the index and the queues need again.
KEPT_READ_BYTES_MAX = 2 << 20
_BLOCKS_MAX = 128
_HANDLES_MAX = 256
_REASON_CHARACTERS_MAX = 300
_ZEROS = bytes(BLOCK_BYTES)
#: Ends of buffers that are still there after a read that came back short; a file's own bytes can be like one at most.
_MARK = os.urandom(16)
_OTHER_MARK = bytes(byte ^ 0xFF for byte in _MARK)
#: Names under which other tools know a file system of pyarrow's.
_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
_SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AZURE_STORAGE_KEY")


@functools.lru_cache(maxsize=64)
def _file_system(base: Uri) -> tuple[fs.FileSystem, str]:
    """The file system of a URI without its path, and what it calls the root there.

    From a URI, because only so does pyarrow look at AWS_ENDPOINT_URL.
    """
    known = base._replace(scheme=_SCHEMES.get(base.scheme, base.scheme)).base
    try:
        system, root = fs.FileSystem.from_uri(known)
    except pa.ArrowInvalid as error:
        if "Unrecognized filesystem" in str(error):
            raise OSError(errno.EPROTONOSUPPORT, f"{base.scheme}:// is no file system that pyarrow opens") from error
        raise OSError(errno.EINVAL, _reason(error)) from error
    return system, root.rstrip("/")


def _opened(place: str) -> tuple[fs.FileSystem, str]:
    """The file system of a place, and what it is called there.

    Raises: OSError.
    """
    uri = uri_of(place)
    try:
        system, root = _file_system(uri._replace(path=""))
    except (pa.ArrowException, OSError) as error:
        raise _as_os_error(error) from error
    return system, root + uri.path


def _reason(error: BaseException) -> str:
    """What the file system's client said, as one line without request numbers and secrets."""
    text = " ".join(str(error).split())
    text = re.sub(r" \(Request ID: [^)]*\)|^\[Errno \d+\] ", "", text)
    for name in _SECRETS:
        value = os.environ.get(name)
        if value:
            text = text.replace(value, f"${name}")
    return text[:_REASON_CHARACTERS_MAX]


def _as_os_error(error: BaseException) -> OSError:
    """The error with the reason where callers look for it."""
    if isinstance(error, OSError) and error.strerror is not None and error.errno not in (None, errno.ENOENT):
        return error
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return OSError(errno.EIO, _reason(error))


class RemoteFiles:
    """One root on a remote file system, with the listings of one snapshot."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._listed: dict[str, dict[str, Entry]] = {}
        self._whole: set[str] = set()
        self._contents: dict[str, bytes] = {}

    def entries(self, directory: str) -> list[Entry]:
        """What a directory holds. Order: name. Raises: OSError."""
        return list(self._children(directory).values())

    def list_whole(self, directory: str) -> None:
        """One listing for all that lies below a directory."""
        if directory in self._whole or not self._may_exist(directory):
            return
        self._whole.add(directory)
        system, path = _opened(directory)
        self._listed[directory] = {}
        found = _listing(system, path, recursive=True)
        for info in sorted(found, key=lambda info: str(info.path)):
            names = info.path[len(path) :].strip("/").split("/")
            if not names[-1]:
                continue  # an empty object that stands for the directory itself
            place = joined(directory, *names)
            parent = directory if len(names) == 1 else joined(directory, *names[:-1])
            self._listed.setdefault(parent, {})[names[-1]] = _entry(info, names[-1], place)
            if info.type == fs.FileType.Directory:
                self._listed.setdefault(place, {})

    def entry(self, place: str) -> Entry | None:
        """What stands at a place; None if nothing does. Raises: OSError."""
        uri = uri_of(place)
        path = PurePosixPath(uri.path)
        try:
            return self._children(uri.at("" if str(path.parent) == "/" else str(path.parent))).get(path.name)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def content(self, place: str, bytes_max: int) -> bytes | None:
        """A small file's bytes, at most one more than asked for; None if there is none."""
        entry = self.entry(place)
        if entry is None:
            return None
        if not entry.is_file:
            raise UnreadableFile(f"{place} is not a file", file=place)
        data = self._contents.get(place)
        if data is None or len(data) < min(bytes_max + 1, entry.size_bytes):
            with RemoteFile(place, entry.size_bytes) as file:
                data = file.read(0, bytes_max + 1)
            if len(data) <= KEPT_READ_BYTES_MAX:
                self._contents[place] = data
        return data[: bytes_max + 1]

    def _children(self, directory: str) -> dict[str, Entry]:
        found = self._listed.get(directory)
        if found is None:
            if not self._may_exist(directory):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
            system, path = _opened(directory)
            infos = sorted(_listing(system, path, recursive=False), key=lambda info: str(info.base_name))
            found = {info.base_name: _entry(info, info.base_name, joined(directory, info.base_name)) for info in infos}
            if not found:
                _require_directory(system, path)
            self._listed[directory] = found
        return found

    def _may_exist(self, directory: str) -> bool:
        """Whether what is listed already leaves the directory possible."""
        root, path = uri_of(self._root).path, uri_of(directory).path
        names = path[len(root) :].strip("/").split("/") if path.startswith(f"{root}/") else []
        place = self._root
        for name in names:
            listed = self._listed.get(place)
            if listed is None:
                return True
            if name not in listed or not listed[name].is_directory:
                return False
            place = joined(place, name)
        return True


def _listing(system: fs.FileSystem, path: str, *, recursive: bool) -> list[fs.FileInfo]:
    selector = fs.FileSelector(path or "/", recursive=recursive, allow_not_found=True)
    try:
        return list(system.get_file_info(selector))
    except (pa.ArrowException, OSError) as error:
        raise _as_os_error(error) from error


def _require_directory(system: fs.FileSystem, path: str) -> None:
    """Nothing was listed: whether the directory is empty, or none at all."""
    try:
        kind = system.get_file_info(path or "/").type
    except (pa.ArrowException, OSError) as error:
        raise _as_os_error(error) from error
    if kind == fs.FileType.File:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if kind == fs.FileType.NotFound:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _entry(info: fs.FileInfo, name: str, place: str) -> Entry:
    is_file = info.type == fs.FileType.File
    size_bytes = info.size if is_file and info.size is not None else 0
    return Entry(name, place, info.type == fs.FileType.Directory, is_file, size_bytes, info.mtime_ns)


# --- ranges of large files -------------------------------------------------------------------------------------------


class _Version(NamedTuple):
    """A file as a snapshot saw it; what is kept of it is kept under this name."""

    place: str
    size_bytes: int
    modified_ns: int | None


class _Handle:
    """A file that was opened once. `zeros`: numbers of the blocks that were read and hold nothing else."""

    def __init__(self, version: _Version) -> None:
        self.version = version
        self.zeros: set[int] = set()
        self._system, self._path = _opened(version.place)
        self._file = self._system.open_input_file(self._path)

    def fill(self, position_bytes: int, length_bytes: int, end: bytes) -> bytes:
        """What a read puts into a buffer that ends in `end`.

        pyarrow's S3 client does not notice that an object has become shorter: it says that it read everything, and
        leaves in the rest of the buffer what was there before. So the buffer tells.
        """
        buffer = bytearray(length_bytes)
        buffer[length_bytes - len(end) :] = end
        self._file.seek(position_bytes)
        count = self._file.readinto(buffer)
        return bytes(buffer) if count == length_bytes else bytes(buffer[:count])

    def info(self) -> fs.FileInfo:
        """What the file system says of the file now."""
        return self._system.get_file_info(self._path)


_handles: OrderedDict[_Version, _Handle] = OrderedDict()
_blocks: OrderedDict[tuple[_Version, int], bytes] = OrderedDict()


def _handle(version: _Version) -> _Handle:
    if version.modified_ns is None:  # nothing tells its versions apart
        return _Handle(version)
    handle = _handles.get(version)
    if handle is None:
        handle = _handles[version] = _Handle(version)
        if len(_handles) > _HANDLES_MAX:
            _handles.popitem(last=False)  # closed when its last reader lets it go
    else:
        _handles.move_to_end(version)
    return handle


class RemoteFile(OpenFile):
    """A remote file open for positioned reads within the length that the snapshot saw."""

    def __init__(self, file: str, size_bytes: int, modified_ns: int | None = None) -> None:
        """Raises: UnreadableFile."""
        self.file = file
        self.size_bytes = size_bytes
        try:
            self._handle = _handle(_Version(file, size_bytes, modified_ns))
        except (pa.ArrowException, OSError) as error:
            raise UnreadableFile(f"cannot open {file}: {_as_os_error(error).strerror}", file=file) from error

    def close(self) -> None:
        """Nothing: the next one who reads the file uses the same handle."""

    def read(self, position_bytes: int, length_bytes: int) -> bytes:
        """Exactly the bytes asked for, cut at the snapshot's length.

        Raises: FileChanged if the file has become shorter; UnreadableFile if it cannot be read any more.
        """
        wanted = max(0, min(length_bytes, self.size_bytes - position_bytes))
        if not wanted:
            return b""
        if wanted > KEPT_READ_BYTES_MAX:
            data = self._fetch(position_bytes, wanted)
            self._remember_zeros(position_bytes, data)
            return data
        first, last = position_bytes // BLOCK_BYTES, (position_bytes + wanted - 1) // BLOCK_BYTES
        data = b"".join(self._kept(first, last))
        begin = position_bytes - first * BLOCK_BYTES
        return data[begin : begin + wanted]

    def next_data(self, position_bytes: int) -> int:
        """Where bytes begin that may be other than zeros, as far as they were read before."""
        zeros = self._handle.zeros
        while position_bytes < self.size_bytes and position_bytes // BLOCK_BYTES in zeros:
            position_bytes = (position_bytes // BLOCK_BYTES + 1) * BLOCK_BYTES
        return min(position_bytes, self.size_bytes)

    def _kept(self, first: int, last: int) -> list[bytes]:
        """The blocks from one number to another; those not kept are fetched, neighbours in one request."""
        version, zeros = self._handle.version, self._handle.zeros
        found = {number: self._block(number) for number in range(first, last + 1)}
        missing = [number for number, block in found.items() if block is None]
        while missing:
            end = next((n for n in range(1, len(missing)) if missing[n] != missing[0] + n), len(missing))
            run, missing = missing[:end], missing[end:]
            data = self._fetch(run[0] * BLOCK_BYTES, len(run) * BLOCK_BYTES)
            for place, number in enumerate(run):
                block = found[number] = data[place * BLOCK_BYTES : (place + 1) * BLOCK_BYTES]
                if block == _ZEROS:
                    zeros.add(number)
                elif version.modified_ns is not None:
                    _blocks[version, number] = block
        while len(_blocks) > _BLOCKS_MAX:
            _blocks.popitem(last=False)
        return [block for block in found.values() if block is not None]

    def _block(self, number: int) -> bytes | None:
        if number in self._handle.zeros:
            return _ZEROS
        key = self._handle.version, number
        block = _blocks.get(key)
        if block is not None:
            _blocks.move_to_end(key)
        return block

    def _fetch(self, position_bytes: int, length_bytes: int) -> bytes:
        """The bytes by one request, cut at the snapshot's length."""
        wanted = min(length_bytes, self.size_bytes - position_bytes)
        for mark in (_MARK, _OTHER_MARK):
            end = mark[: min(wanted, len(mark))]
            try:
                data = self._handle.fill(position_bytes, wanted, end)
            except (pa.ArrowException, OSError) as error:
                raise self._unreadable(position_bytes, error) from error
            if len(data) == wanted and not data.endswith(end):
                return data
        raise self._became_shorter(position_bytes)

    def _became_shorter(self, position_bytes: int) -> FileChanged:
        return FileChanged(
            f"{self.file} became shorter while it was read",
            file=self.file, position_bytes=position_bytes, advice="read a copy, or try again",
        )  # fmt: skip

    def _unreadable(self, position_bytes: int, error: BaseException) -> UnreadableFile | FileChanged:
        """What became of a file that cannot be read on: clients say it in many ways, or not at all."""
        reason = _as_os_error(error).strerror
        try:
            info = self._handle.info()
            if info.type == fs.FileType.NotFound:
                reason = "it vanished while it was read"
            elif info.size is not None and info.size < self.size_bytes:
                return self._became_shorter(position_bytes)
        except (pa.ArrowException, OSError):
            pass  # the first error says why
        return UnreadableFile(f"cannot read {self.file}: {reason}", file=self.file, position_bytes=position_bytes)

    def _remember_zeros(self, position_bytes: int, data: bytes) -> None:
        first = -(-position_bytes // BLOCK_BYTES)
        for number in range(first, (position_bytes + len(data)) // BLOCK_BYTES):
            begin = number * BLOCK_BYTES - position_bytes
            if data[begin] == 0 and data[begin : begin + BLOCK_BYTES] == _ZEROS:
                self._handle.zeros.add(number)
