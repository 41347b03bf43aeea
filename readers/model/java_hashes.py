"""Hashes as Java computes them: of tags in consume queues, of keys in index files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqtx.readers.model.columns import Int32s, Int64s

UInt32s = npt.NDArray[np.uint32]

_ASCII_LAST = 127
#: Texts of this many different lengths are hashed length by length, else place by place.
_LENGTHS_MAX = 16


def java_hash(text: str | bytes) -> int:
    """Java's String.hashCode: over UTF-16 units, wrapped to 32 bits, signed. Bytes are UTF-8."""
    units = np.frombuffer(_utf16(text), ">u2").astype(np.uint64)
    value = 0
    for unit in units.tolist():
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def key_hashes(keys: Sequence[bytes]) -> Int32s:
    """The hashes that the index holds for keys of the form `topic#key`.

    Shape:  one value per key, never negative.
    Source: store/index/IndexFile.java indexKeyHashMethod; docs/formats/index.md#keys.
    """
    joined = b"".join(keys)
    if joined.isascii():
        units: npt.NDArray[Any] = np.frombuffer(joined, np.uint8)
        lengths = np.fromiter((len(key) for key in keys), np.int64, len(keys))
    else:
        encoded = [_utf16(key) for key in keys]
        units = np.frombuffer(b"".join(encoded), ">u2").astype(np.uint32)
        lengths = np.fromiter((len(key) // 2 for key in encoded), np.int64, len(keys))
    return _hashes(units, lengths)


def column_key_hashes(keys: pa.Array) -> Int32s:
    """Return `key_hashes` of the texts of a column, without nulls."""
    if not len(keys):
        return np.empty(0, np.int32)
    plain = keys.cast(pa.binary())
    offsets = np.frombuffer(plain.buffers()[1], np.int32, len(plain) + 1 + plain.offset)[plain.offset :]
    units = np.frombuffer(plain.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    if len(units) and units.max() > _ASCII_LAST:
        return key_hashes(plain.to_pylist())
    return _hashes(units, np.diff(offsets).astype(np.int64))


def _hashes(units: npt.NDArray[np.uint8] | npt.NDArray[np.uint32], lengths: Int64s) -> Int32s:
    """Return the hashes of keys, given as their UTF-16 units one after another."""
    return index_hashes(hashed_on(np.zeros(len(lengths), np.uint32), units, np.cumsum(lengths) - lengths, lengths))


def index_hashes(values: UInt32s) -> Int32s:
    """Return Java hashes as the index holds them: without a sign, and 0 for the number without an absolute value."""
    hashes = values.view(np.int32)
    return np.where(hashes == np.iinfo(np.int32).min, np.int32(0), np.abs(hashes))


def hashed_on(
    values: UInt32s, units: npt.NDArray[np.uint8] | npt.NDArray[np.uint32], starts: Int64s, lengths: Int64s
) -> UInt32s:
    """Return Java hashes continued by more units, which are in an array at given places; for many texts at once."""
    values = values.copy()
    different = np.unique(lengths)
    if len(different) > _LENGTHS_MAX:
        return _hashed_by_place(values, units, starts, lengths)
    for length in different[different > 0].tolist():
        rows = np.flatnonzero(lengths == length)
        width = units.itemsize
        windows = np.ndarray((len(units) - length + 1, length), units.dtype, units, 0, (width, width))[starts[rows]]
        found = values[rows]
        for column in np.ascontiguousarray(windows.T):
            found *= np.uint32(31)
            found += column
        values[rows] = found
    return values


def _hashed_by_place(
    values: UInt32s, units: npt.NDArray[np.uint8] | npt.NDArray[np.uint32], starts: Int64s, lengths: Int64s
) -> UInt32s:
    order = np.argsort(-lengths, kind="stable")  # the longest first: unfinished texts stay in front
    starts, lengths, found = starts[order], lengths[order], values[order]
    active = len(lengths)
    for place in range(int(lengths[0]) if len(lengths) else 0):
        while active and lengths[active - 1] <= place:
            active -= 1
        found[:active] = found[:active] * np.uint32(31) + units[starts[:active] + place]
    values[order] = found
    return values


def _utf16(text: str | bytes) -> bytes:
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")  # as Java does
    return text.encode("utf-16-be", "surrogatepass")
