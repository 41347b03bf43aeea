"""The entries of a DLedger log (4.5.0+) in a bundle: kept records keep theirs, left-out records get one without index.

A reader of the bundle must find every record in an entry: bare records would have gaps of a header's length.
"""

from __future__ import annotations

import struct
import zlib

from rmqtx.readers.log.dledger import BLANK_MAGIC, ENTRY_HEADER, ENTRY_MAGIC

_BLANK = struct.Struct(">ii")


def entry_of(header: bytes, record: bytes, changed: bytes) -> bytes:
    """Return the header of a kept record; its CRC is updated if the record was changed (to the same length)."""
    values = {name: int(value) for name, value in ENTRY_HEADER.unpack(header).items()}
    if changed == record or values["body_crc"] & 0xFFFFFFFF != zlib.crc32(record):
        return header
    return ENTRY_HEADER.pack(**values | {"body_crc": _signed(zlib.crc32(changed))})


def left_out_entry(place: int, record_length_bytes: int) -> bytes:
    """Return the header of the entry, at a commit-log offset, of a record that replaces left-out ones."""
    return ENTRY_HEADER.pack(
        magic=ENTRY_MAGIC, length_bytes=ENTRY_HEADER.size_bytes + record_length_bytes, entry_index=-1,
        entry_offset=place, body_length_bytes=record_length_bytes,
    )


def blank_entry(length_bytes: int) -> bytes:
    """Return the head of the blank that ends a file. Units: bytes, including the head."""
    return _BLANK.pack(BLANK_MAGIC, length_bytes)


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value
