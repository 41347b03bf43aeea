"""The entries of a DLedger log (4.5.0+) in a bundle: kept records have their own, left out ones one with no number.

Whatever reads the bundle must find it framed: as bare records the log would have a hole of a header between any two.
"""

from __future__ import annotations

import struct
import zlib

from readers.log.dledger import BLANK_MAGIC, ENTRY_HEADER, ENTRY_MAGIC

_BLANK = struct.Struct(">ii")


def entry_of(header: bytes, record: bytes, changed: bytes) -> bytes:
    """The header of a kept record that may have become another one of the same length: its CRC fits if it did."""
    values = {name: int(value) for name, value in ENTRY_HEADER.unpack(header).items()}
    if changed == record or values["body_crc"] & 0xFFFFFFFF != zlib.crc32(record):
        return header
    return ENTRY_HEADER.pack(**values | {"body_crc": _signed(zlib.crc32(changed))})


def left_out_entry(place: int, record_length_bytes: int) -> bytes:
    """The header of the entry, at a commit-log offset, of a record that stands for what was left out."""
    return ENTRY_HEADER.pack(
        magic=ENTRY_MAGIC, length_bytes=ENTRY_HEADER.size_bytes + record_length_bytes, entry_index=-1,
        entry_offset=place, body_length_bytes=record_length_bytes,
    )


def blank_entry(length_bytes: int) -> bytes:
    """The head of the blank that ends a file. Units: bytes, itself included."""
    return _BLANK.pack(BLANK_MAGIC, length_bytes)


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value
