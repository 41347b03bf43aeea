"""Read RocksDB databases of a store (5.2.0 and later) without a change to the store.

The Python binding writes files into any folder that it opens, even read-only. So a database is opened through a
temporary folder: data files are hard links, `CURRENT` is a copy, and `LOCK`, logs and options are left out. RocksDB
never changes a complete data file, so this works while the broker runs. But a running broker has its latest entries
only in memory, and a killed broker has lost them (docs/formats/consume_queues.md#rocksdb,
docs/formats/rocksdb_transactions.md#on-disk), so the entries found may be old, or there may be none.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqtx.readers.model.errors import MissingLibrary, SourceError, UnreadableFile
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.storage.places import DirectoryEntry, unreadable
from rmqtx.readers.storage.segments import open_file
from rmqtx.readers.storage.temporary import RunFolder
from rmqtx.readers.store.store import Store

if TYPE_CHECKING:
    from rocksdict import Rdict

DEFAULT = "default"
INSTALL = "pip install 'rmqtx[rocksdb]'"

_PUT_BACK = "put the file back, from a backup of this directory"
CURRENT = "CURRENT"
_DATA = re.compile(r"MANIFEST-\d+|\d+\.(sst|ldb|log|blob)|IDENTITY")
#: A flush or compaction of a running broker can remove a file between listing and opening: then list again.
_TRIES = 4
_COPIED_BYTES = 8 << 20
#: MANIFEST and write-ahead logs are blocks of records: checksum (CRC-32C, masked), length, type, little-endian. Brokers
#: write these types only; on damaged records of other types RocksDB 9.8 does not return, so it must not read any.
_BLOCK_BYTES, _RECORD_HEADER_BYTES = 32_768, 7
_RECORD_TYPES = frozenset((1, 2, 3, 4))
_POLYNOMIAL, _MASK = 0x82F63B78, 0xA282EAD8
#: A MANIFEST of thousands of flushes is smaller; the checksums of a larger one are checked by RocksDB only. A broker
#: that opens a damaged write-ahead log drops the entries from the damage on without a word, so these are checked too.
_CHECKED_BYTES_MAX = 4 << 20
_OPENING_THREADS_MAX, _FILES_OF_A_THREAD = 16, 16
_OF_RECORDS = re.compile(r"MANIFEST-\d+|\d+\.log")


def has_database(store: Store, *names: str) -> bool:
    """Whether a directory of the store has a RocksDB database that may be opened: one with its file CURRENT."""
    return store.has(*names, CURRENT)


class Database:
    """A database as at its opening; column families by name, keys and values as bytes.

    Raises: MissingLibrary, UnreadableFile.
    """

    def __init__(self, store: Store, *names: str) -> None:
        self.directory = store.place(*names)
        self._folder = RunFolder("rocksdb")
        self._handles: dict[str, Rdict] = {}
        try:
            self._open(store)
        except BaseException:
            self.close()
            raise

    @property
    def families(self) -> list[str]:
        """The names of its column families."""
        return list(self._handles)

    def items(self, family: str, begin: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys from `begin` to before `end`, with their values; none if the family does not exist.

        Order:  bytes of the key.
        Raises: UnreadableFile if a block is damaged.
        """
        handle = self._handles.get(family)
        if handle is None:
            return
        try:
            rows: Any = handle.iter()
            rows.seek(begin)
            while rows.valid():
                key = rows.key()
                if end is not None and key >= end:
                    return
                yield key, rows.value()
                rows.next()
            rows.status()
        except Exception as error:  # the binding has no exception class for errors of RocksDB
            raise self._unreadable(error) from error

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of a key. Raises: UnreadableFile."""
        return next((value for found, value in self.items(family, key, key + b"\0") if found == key), None)

    def close(self) -> None:
        """Close the database and remove the folder of links."""
        handles, self._handles = self._handles, {}
        default = handles.pop(DEFAULT, None)
        handles.clear()
        if default is not None:
            default.close()
        self._folder.cleanup()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, store: Store) -> None:
        trouble: Exception | None = None
        for attempt in range(_TRIES):
            folder = Path(self._folder.name, str(attempt))
            folder.mkdir()
            try:
                link_files(store, self.directory, folder)
                self._handles = _opened(folder)
                return
            except MissingLibrary:
                raise
            except Exception as error:  # the binding has no exception class for errors of RocksDB
                trouble = error
            if not store.in_use:
                break
        assert trouble is not None
        if isinstance(trouble, UnreadableFile):
            raise trouble
        raise self._unreadable(trouble) from trouble

    def _unreadable(self, error: Exception) -> UnreadableFile:
        text = " ".join(str(error).split())
        text = re.sub(re.escape(self._folder.name) + r"/\d+", self.directory, text)
        return UnreadableFile(
            f"the RocksDB database {self.directory} cannot be read: {text}",
            file=self.directory, advice="only the commit log is used in its place",
        )


def open_database(store: Store, *names: str) -> Database:
    """Return the database in a directory of the store; the caller closes it. Raises: MissingLibrary, UnreadableFile."""
    return Database(store, *names)


def unread(store: Store, place: str, error: SourceError) -> Finding:
    """Return the finding for a database that was not read: the reason, and what to install if a library is missing."""
    advice = "" if error.advice is None else f"; {error.advice}"
    return Finding(store.root, "database-unread", place, actual=f"{error.message}{advice}")


def link_files(store: Store, directory: str, folder: Path) -> None:
    """Fill a folder with links to the data files of a database, or with copies if it is remote.

    Raises: UnreadableFile.
    """
    place = directory
    try:
        entries = [entry for entry in store.files.entries(directory) if entry.is_file]
        place = f"{directory}/{CURRENT}"
        current = store.files.content(place, 1 << 10)
    except OSError as error:
        failed = unreadable(place, error)
        raise UnreadableFile(failed.message, file=directory, advice=failed.advice or _PUT_BACK) from error
    if current is None:
        words = f"{directory} is not a RocksDB database: it has no file {CURRENT}"
        raise UnreadableFile(words, file=directory, advice=_PUT_BACK)
    (folder / CURRENT).write_bytes(current)
    for entry in entries:
        if not _DATA.fullmatch(entry.name):
            continue
        if _OF_RECORDS.fullmatch(entry.name):
            _require_records(entry, may_be_torn=store.in_use or store.aborted)
        if store.is_remote:
            _copy(entry, folder / entry.name)
        else:
            (folder / entry.name).symlink_to(Path(entry.path).absolute())


def _require_records(entry: DirectoryEntry, *, may_be_torn: bool) -> None:
    """Check that a file is a sequence of records, up to the end of its data. `may_be_torn`: the last one may be cut.

    Raises: UnreadableFile.
    """
    is_checked = entry.size_bytes <= _CHECKED_BYTES_MAX
    with open_file(entry.path, entry.size_bytes, entry.modified_ns) as source:
        position = 0
        while position + _RECORD_HEADER_BYTES <= entry.size_bytes:
            left = _BLOCK_BYTES - position % _BLOCK_BYTES
            if left < _RECORD_HEADER_BYTES:
                position += left
                continue
            header = source.read(position, _RECORD_HEADER_BYTES)
            length, kind = int.from_bytes(header[4:6], "little"), header[6]
            if not any(header):  # allocated, not written yet
                return
            end = position + _RECORD_HEADER_BYTES + length
            is_sound = kind in _RECORD_TYPES and length <= left - _RECORD_HEADER_BYTES
            if is_sound and is_checked and end <= entry.size_bytes:
                is_sound = int.from_bytes(header[:4], "little") == _checksum(source.read(position + 6, length + 1))
            is_sound &= end <= entry.size_bytes or may_be_torn
            if not is_sound:
                raise UnreadableFile(
                    f"{entry.path} is damaged at byte {position}, so its RocksDB database is not read",
                    file=entry.path, position_bytes=position, advice="only the commit log is used in its place",
                )
            position = end


@functools.cache
def _checksums() -> tuple[int, ...]:
    """Return the table of CRC-32C, one entry for each byte."""
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return tuple(table)


def _checksum(data: bytes) -> int:
    """Return CRC-32C as RocksDB stores it. Source: util/crc32c.h Mask (8.4)."""
    table, value = _checksums(), 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + _MASK) & 0xFFFFFFFF


def _copy(entry: DirectoryEntry, to: Path) -> None:
    with open_file(entry.path, entry.size_bytes, entry.modified_ns) as source, to.open("wb") as target:
        for position in range(0, entry.size_bytes, _COPIED_BYTES):
            target.write(source.read(position, _COPIED_BYTES))


def _opened(folder: Path) -> dict[str, Rdict]:
    """Open every column family of a database, read-only.

    Shape:  raw mode needs neither the merge operator nor the compaction filter of the broker.
    Source: docs/formats/rocksdb_transactions.md#reading.
    """
    try:
        from rocksdict import AccessType, Options, Rdict
    except ImportError as error:
        raise MissingLibrary("rocksdict is not installed, so RocksDB databases are not read", advice=INSTALL) from error
    options = Options(raw_mode=True)
    # RocksDB starts 16 threads to open the files of a database, and for a few files they cost more than all else.
    files_count = sum(1 for _ in folder.glob("*.sst"))
    options.set_max_file_opening_threads(min(_OPENING_THREADS_MAX, 1 + files_count // _FILES_OF_A_THREAD))
    names = Rdict.list_cf(os.fspath(folder), options)
    families = {name: Options(raw_mode=True) for name in names if name != DEFAULT}
    database = Rdict(
        os.fspath(folder), options=options, column_families=families, access_type=AccessType.read_only()
    )
    return {name: database if name == DEFAULT else database.get_column_family(name) for name in names}
