"""Faults of single records: impossible header values, wrong CRCs, unreadable properties and bodies.

The header has no checksum (readers/log/header_rules.py has its rules); the body has one, and properties have one if the
broker is configured for it (enabledAppendPropCRC, 5.2.0+).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from rmqtx.readers.log import compression
from rmqtx.readers.log.commit_log import crc_findings
from rmqtx.readers.log.header_rules import PLACE_RULES, RECORD_RULES, broken_rules
from rmqtx.readers.log.property_crcs import property_crc_findings
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import COMPRESSED, PREPARED, ROLLBACK, TRANSACTION_MASK
from rmqtx.readers.log.topic_doubts import topic_findings
from rmqtx.readers.log.torn_properties import have_torn_properties, torn_findings
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.store.store import OP_TOPIC, Store


def record_findings(store: Store, block: Block, *, with_bodies: bool, with_everything: bool) -> Iterator[Finding]:
    """Return the findings about the records of a block.

    `with_bodies`: CRCs of bodies and properties; those of ops are checked elsewhere. `with_everything`: also whether
    compressed bodies can be inflated, and every property area; zeros at the end of properties are always found.
    Order: kind of finding, then commit-log offset.
    """
    # If bodies are read, records are compared with their slots: a wrong topic, queue or number is reported there.
    with_queues = not with_bodies or store.has_rocksdb_queues
    yield from broken_rules(block, store.root, (*PLACE_RULES, *RECORD_RULES) if with_queues else RECORD_RULES)
    if with_queues:
        yield from topic_findings(store, block)
    torn = have_torn_properties(block)
    yield from torn_findings(block.take(torn), store.root)
    if not with_bodies:
        return
    matches = block.body_crc_matches()
    if not matches.all():  # a wrong CRC of an op message is reported where its numbers are read
        is_reported = block.topic_is(OP_TOPIC) | (block.header("body_crc") < 0)
        yield from crc_findings(store, block, pa.array(matches | is_reported))
    yield from property_crc_findings(block, store.root)
    if with_everything:
        yield from _property_findings(store, block.take(~torn))
        yield from _stream_findings(store, block)


def _finding(store: Store, block: Block, row: int, code: str, expected: str, actual: str | None) -> Finding:
    return Finding(
        store.root, code, block.file, int(block.positions[row]), int(block.lengths[row]),
        commit_log_offset=int(block.commit_log_offsets[row]), expected=expected, actual=actual,
    )


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
