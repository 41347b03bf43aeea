"""Faults of single records: impossible header values, wrong CRCs, unreadable properties and bodies.

A record is sound if the lengths of its parts add up, whatever its values are. The header has no checksum; the body has
one, and properties have one if the broker is configured for it (enabledAppendPropCRC, 5.2.0+).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from readers.log import compression
from readers.log.commit_log import crc_findings
from readers.log.property_crcs import property_crc_findings
from readers.log.record_block import Block
from readers.log.record_layout import COMPRESSED, PREPARED, ROLLBACK, TRANSACTION_MASK
from readers.log.topic_doubts import topic_findings
from readers.model.columns import Bools, Int64s
from readers.model.findings import Finding
from readers.model.moments import BROKER_TIME_MAX_MS
from readers.store.store import OP_TOPIC, Store

_SYS_FLAG_KNOWN = 0x7FF
_COMPRESSION_MASK, _COMPRESSION_MAX = 0x700, 0x300


def record_findings(store: Store, block: Block, *, with_bodies: bool, with_everything: bool) -> Iterator[Finding]:
    """Return the findings about the records of a block.

    `with_bodies`: CRCs of bodies and properties; those of ops are checked elsewhere. `with_everything`: also whether
    compressed bodies can be inflated, and every property area.
    Order: kind of finding, then commit-log offset.
    """
    # If bodies are read, records are compared with their slots: a wrong topic, queue or number is reported there.
    with_queues = not with_bodies or store.has_rocksdb_queues
    yield from _header_findings(store, block, with_queues=with_queues)
    if with_queues:
        yield from topic_findings(store, block)
    if not with_bodies:
        return
    matches = block.body_crc_matches()
    if not matches.all():  # a wrong CRC of an op message is reported where its numbers are read
        is_reported = block.topic_is(OP_TOPIC) | (block.header("body_crc") < 0)
        yield from crc_findings(store, block, pa.array(matches | is_reported))
    yield from property_crc_findings(block, store.root)
    if with_everything:
        yield from _property_findings(store, block)
        yield from _stream_findings(store, block)


def _finding(store: Store, block: Block, row: int, code: str, expected: str, actual: str | None) -> Finding:
    return Finding(
        store.root, code, block.file, int(block.positions[row]), int(block.lengths[row]),
        commit_log_offset=int(block.commit_log_offsets[row]), expected=expected, actual=actual,
    )


# --- headers ----------------------------------------------------------------------------------------------------------


def _header_findings(store: Store, block: Block, *, with_queues: bool) -> Iterator[Finding]:
    seen = np.zeros(len(block), np.bool_)
    for name, expected, values, wrong in _header_rules(block, with_queues=with_queues):
        for row in np.flatnonzero(wrong & ~seen).tolist():
            yield _finding(store, block, row, "record-header", expected, f"{name} {values[row]}")
        seen |= wrong


def _header_rules(block: Block, *, with_queues: bool) -> Iterator[tuple[str, str, Int64s, Bools]]:
    flags = block.sys_flag.astype(np.int64)
    strange = (flags & ~_SYS_FLAG_KNOWN) != 0
    yield "sys_flag", "known bits only", flags, strange | ((flags & _COMPRESSION_MASK) > _COMPRESSION_MAX)
    for name in (*(("queue_id", "queue_offset") if with_queues else ()), "body_crc", "reconsume_times"):
        values = block.header(name)
        yield name, f"{name} of at least 0", values, values < 0
    for name in ("born_time_ms", "store_time_ms"):
        values = block.header(name)
        yield name, f"{name} before the year 2200", values, (values < 0) | (values > BROKER_TIME_MAX_MS)
    for name in ("born_port", "store_port"):
        values = block.header(name)
        yield name, f"{name} of at most 65535", values, (values < 0) | (values > 0xFFFF)
    # An empty body has a CRC of 0 (common/UtilAll.java crc32), and only finals name another record.
    yield "body_crc", "0, because the body is empty", block.header("body_crc"), (block.body_lengths == 0) & (
        block.header("body_crc") != 0
    )
    prepared = block.header("prepared_transaction_offset")
    is_final = (flags & TRANSACTION_MASK) != 0
    yield "prepared_transaction_offset", "0, because the record is not a final", prepared, ~is_final & (prepared != 0)
    later = (prepared < 0) | (prepared >= np.maximum(block.commit_log_offsets, 1))
    yield "prepared_transaction_offset", "the offset of an earlier record", prepared, later


def older_design_rows(block: Block) -> Int64s:
    """Return the rows of prepared and rollback records, which only designs before 4.3 write."""
    kinds = block.sys_flag & TRANSACTION_MASK
    return np.flatnonzero((kinds == PREPARED) | (kinds == ROLLBACK))


# --- what only a full verification reads ------------------------------------------------------------------------------


def _property_findings(store: Store, block: Block) -> Iterator[Finding]:
    for row in np.flatnonzero(block.properties.malformed()).tolist():
        yield _finding(store, block, row, "record-properties", "names and values", None)


def _stream_findings(store: Store, block: Block) -> Iterator[Finding]:
    rows = np.flatnonzero(block.sys_flag & COMPRESSED)
    if not len(rows):
        return
    bodies = block.take(rows).bodies().cast(pa.binary()).to_pylist()
    for row, body in zip(rows.tolist(), bodies, strict=True):
        if body and compression.inflate(body, int(block.sys_flag[row])) is None:
            yield _finding(store, block, row, "body-stream", "a compressed stream, by its flag", None)
