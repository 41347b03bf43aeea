"""The kernel's page cache: fill it with a store, or drop a store from it, without any privilege."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from pathlib import Path


def fill_page_cache(directory: Path) -> int:
    """Read every file below a directory once; return the number of bytes."""
    total = 0
    for path in _files(directory):
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(16 << 20):
                total += len(chunk)
    return total


def drop_page_cache(directory: Path) -> int:
    """Ask the kernel to drop every file below a directory from the page cache; return the bytes that remained.

    The kernel keeps pages that a process has mapped, or that are not written to the disk yet; no privilege is needed.
    """
    remained = 0
    for path in _files(directory):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            remained += _resident_bytes(file.fileno(), path.stat().st_size)
    return remained


def _files(directory: Path) -> Iterator[Path]:
    return (path for path in sorted(directory.rglob("*")) if path.is_file())


def _resident_bytes(descriptor: int, size_bytes: int) -> int:
    """Return how much of a file is in the page cache, by mincore(2)."""
    if not size_bytes:
        return 0
    # A private writable mapping: ctypes takes the address only of memory that could be changed.
    with mmap.mmap(descriptor, size_bytes, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as mapped:
        first = ctypes.c_char.from_buffer(mapped)
        pages = (ctypes.c_ubyte * -(-size_bytes // mmap.PAGESIZE))()
        library = ctypes.CDLL(None, use_errno=True)
        status = library.mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size_bytes), pages)
        error = ctypes.get_errno()
        del first  # else the mapping cannot be closed
    if status:
        raise OSError(error, os.strerror(error))
    return sum(page & 1 for page in bytes(pages)) * mmap.PAGESIZE
