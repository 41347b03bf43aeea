"""The CRC of a whole record that some brokers write at the end of its properties (enabledAppendPropCRC, 5.2.0+).

Source: docs/formats/record.md#property-crc.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np

from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.columns import Bools
from rmqtx.readers.model.findings import Finding

PROPERTY_CRC = "__CRC32#"
#: `__CRC32#` 0x01, ten digits, 0x02: the last bytes of the record, which the CRC does not cover.
PROPERTY_CRC_BYTES = 20


def property_crc_findings(block: Block, store: str) -> Iterator[Finding]:
    """Return findings for records whose property `__CRC32#` is not the CRC of the bytes before it.

    Order:  of the block.
    Damage: record-property-crc.
    """
    memory = memoryview(block.data)  # type: ignore[arg-type]
    for row in np.flatnonzero(have_property_crc(block)).tolist():
        end = int(block.starts[row] + block.lengths[row]) - PROPERTY_CRC_BYTES
        computed = zlib.crc32(memory[int(block.starts[row]) : end]) & 0x7FFFFFFF
        digits = bytes(memory[end + 9 : end + 19])
        stored = int(digits[::-1]) if digits.isdigit() else None
        if stored != computed:
            yield Finding(
                store, "record-property-crc", block.file, int(block.positions[row]), int(block.lengths[row]),
                commit_log_offset=int(block.commit_log_offsets[row]), expected=f"CRC {computed}",
                actual=digits.decode("ascii", "replace"),
            )


def word_crc_findings(block: Block, store: str) -> Iterator[Finding]:
    """Return the findings for records with an intact body: the damage is in header, topic or properties."""
    for finding in property_crc_findings(block, store):
        row = np.flatnonzero(block.commit_log_offsets == finding.commit_log_offset)
        if block.take(row).body_crc_matches().all():
            yield finding


def have_property_crc(block: Block) -> Bools:
    """Return which records end in a property CRC."""
    name = PROPERTY_CRC.encode() + b"\x01"
    places = block.starts + block.lengths - PROPERTY_CRC_BYTES
    found: Bools = places > block.topic_starts
    for number, value in enumerate(name):
        found[found] = block.data[places[found] + number] == value
        if not found.any():
            break
    return found
