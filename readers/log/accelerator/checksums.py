"""CRC-32 of bodies, compiled by numba (extra `fast`): eight bytes a step, by tables.

A call of `zlib.crc32` for each body of some hundred bytes takes longer than the bytes themselves.
Source: Kounavis and Berry, A Systematic Approach to Building High Performance, Software-based, CRC Generators
(Intel, 2005).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, types

from rmqtx.readers.log.accelerator.words import word
from rmqtx.readers.model.columns import Bytes, Int64s, crcs

_POLYNOMIAL = 0xEDB88320
#: Bytes that one step takes.
_STEP = 8
#: Mean length from which zlib is faster, with its calls.
_LONG_BYTES = 512
_ALL, _BYTE, _BITS = np.uint64(0xFFFFFFFF), np.uint64(0xFF), np.uint64(8)


def _tables() -> npt.NDArray[np.uint32]:
    """Return, by the number of bytes that follow in a step, what each byte adds to the CRC after it."""
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = (values >> np.uint32(1)) ^ np.where(values & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    tables = [values]
    for _ in range(_STEP - 1):
        tables.append(values[tables[-1] & 0xFF] ^ (tables[-1] >> np.uint32(8)))
    return np.stack(tables)


_TABLES = _tables()


def _loop(data: Any, starts: Any, lengths: Any, tables: Any, found: Any) -> None:
    for row in range(len(starts)):
        place = starts[row]
        end = place + lengths[row]
        crc = _ALL
        while place + _STEP <= end:
            value = word(data, place) ^ crc
            crc = np.uint64(0)
            for following in range(_STEP - 1, -1, -1):
                crc ^= np.uint64(tables[following, np.uintp(value & _BYTE)])
                value >>= _BITS
            place += _STEP
        while place < end:
            crc = np.uint64(tables[0, np.uintp((crc ^ np.uint64(data[np.uintp(place)])) & _BYTE)]) ^ (crc >> _BITS)
            place += 1
        found[row] = np.int64(crc ^ _ALL)


_checksums = njit(
    types.void(
        types.Array(types.uint8, 1, "C", readonly=True), types.int64[::1], types.int64[::1], types.uint32[:, ::1],
        types.int64[::1],
    ),
    cache=True,
)(_loop)  # fmt: skip


def checksums(data: Bytes, starts: Int64s, lengths: Int64s) -> Int64s:
    """Return the CRC-32 of parts of the data; the same as `crcs(...)`, also for parts that are not in the data."""
    begin, end = min(lengths.min(initial=0), starts.min(initial=0)), (starts + lengths).max(initial=0)
    if begin < 0 or end > len(data) or lengths.sum() > _LONG_BYTES * len(lengths):
        return crcs(data, starts, lengths)
    found = np.empty(len(starts), np.int64)
    _checksums(data, starts, lengths, _TABLES, found)
    return found
