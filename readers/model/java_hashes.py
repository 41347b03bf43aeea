"""Hashes as Java computes them: of tags in consume queues, of keys in index files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from readers.model.columns import Int32s


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
        units = np.frombuffer(joined, np.uint8).astype(np.uint32)
        lengths = np.fromiter((len(key) for key in keys), np.int64, len(keys))
    else:
        encoded = [_utf16(key) for key in keys]
        units = np.frombuffer(b"".join(encoded), ">u2").astype(np.uint32)
        lengths = np.fromiter((len(key) // 2 for key in encoded), np.int64, len(keys))
    order = np.argsort(-lengths, kind="stable")  # the longest first: unfinished keys stay in front
    starts = (np.cumsum(lengths) - lengths)[order]
    lengths = lengths[order]
    values = np.zeros(len(keys), np.uint32)
    active = len(keys)
    for place in range(int(lengths[0]) if len(keys) else 0):
        while active and lengths[active - 1] <= place:
            active -= 1
        values[:active] = values[:active] * np.uint32(31) + units[starts[:active] + place]
    hashes = np.empty(len(keys), np.int32)
    hashes[order] = values.view(np.int32)
    smallest = hashes == np.iinfo(np.int32).min  # has no absolute value; the broker uses 0
    return np.where(smallest, np.int32(0), np.abs(hashes))


def _utf16(text: str | bytes) -> bytes:
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")  # as Java does
    return text.encode("utf-16-be", "surrogatepass")
