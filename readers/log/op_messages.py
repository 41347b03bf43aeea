"""Op messages: the half queue offsets that they list, and those that settle nothing.

Source: TransactionalMessageServiceImpl.fillOpRemoveMap; docs/formats/half_and_op.md#op.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.commit_log import record_columns
from rmqtx.readers.log.offset_marks import TRANS_OFFSET
from rmqtx.readers.log.op_bodies import parse_op_bodies
from rmqtx.readers.log.properties import OP_TAG, TAGS
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.columns import IntegerSet, int64s, integers
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.tables import MARKS, OPS
from rmqtx.readers.store.store import ROCKSDB_OP_TOPIC

_PLACE = ["file", "position_bytes", "length_bytes", "commit_log_offset"]
_NUMBERS_SHOWN = 10


def ops_of(block: Block, store: str) -> pa.RecordBatch:
    """Return the records of a block, which are op messages, as rows of OPS.

    Damage: a body that is not a list of numbers, or with a wrong CRC, has form `unreadable` and no numbers; so has an
            op message of a transaction in RocksDB without a readable TRANS_OFFSET, its only reference.
    """
    columns = ["store", "file", "position_bytes", "length_bytes", "queue_id", "queue_offset", "commit_log_offset",
               "store_time_ms"]
    arrays = dict(zip(columns, record_columns(block, store, columns), strict=True))
    numbers, forms = parse_op_bodies(block.bodies().cast(pa.binary()), block.body_crc_matches())
    places = pa.nulls(len(block), pa.int64())
    by_offset = block.topic_is(ROCKSDB_OP_TOPIC)
    if by_offset.any():
        named = integers(block.properties.text(TRANS_OFFSET), pa.int64())
        chosen = pa.array(by_offset)
        places = pc.if_else(chosen, named, places)
        forms = pc.if_else(chosen, pc.if_else(pc.is_valid(named), "offset", "unreadable"), forms)
        numbers = pc.if_else(chosen, pa.nulls(len(block), numbers.type), numbers)
    arrays |= {
        "tags": block.properties.text(TAGS), "body_form": forms, "half_queue_offsets": numbers,
        "half_commit_log_offset": places,
    }
    return pa.RecordBatch.from_arrays([arrays[name] for name in OPS.names], schema=OPS)


def marks_of(ops: pa.RecordBatch, wanted: IntegerSet | None = None) -> pa.RecordBatch:
    """Return one row of MARKS for each time that an op message lists a half queue offset.

    A half message that was decided twice within a batch interval is listed twice (5.1.0 and later).

    Order: of the op messages, then half queue offset (a batch need not be in order).
    `wanted`: only these half queue offsets.
    """
    lists = ops["half_queue_offsets"]
    numbers = np.asarray(lists.flatten())
    rows = np.arange(len(numbers)) if wanted is None else np.flatnonzero(wanted.has(numbers))
    numbers = numbers[rows]
    ends = np.cumsum(int64s(pc.list_value_length(lists), 0))
    owners = np.searchsorted(ends, rows, side="right")
    order = np.lexsort((numbers, owners))
    owners, numbers = owners[order], numbers[order]
    rows = np.arange(len(numbers))
    is_first = np.append(True, (np.diff(owners) != 0) | (np.diff(numbers) != 0))[: len(rows)]
    repetition = rows - np.maximum.accumulate(np.where(is_first, rows, 0))
    columns = [ops[name].take(pa.array(owners)) for name in MARKS.names[:-3]]
    return pa.RecordBatch.from_arrays(
        [*columns, pa.array(numbers), pa.array(repetition.astype(np.int32)), pa.nulls(len(numbers), pa.int64())],
        schema=MARKS,
    )


def _have_op_tag(ops: pa.RecordBatch | pa.Table) -> pa.Array:
    """Return which op messages have the tag without which the check passes over them."""
    return pc.fill_null(pc.equal(ops["tags"], OP_TAG), False)


def op_findings(ops: pa.RecordBatch | pa.Table, store: str) -> list[Finding]:
    """Return one finding for each op message whose numbers cannot be read, or that settles nothing."""
    bad = ops.filter(pc.equal(ops["body_form"], "unreadable"))
    found = [
        _finding(row, store, "op-unreadable", "half queue offsets, or TRANS_OFFSET", "other bytes, or a wrong CRC")
        for row in bad.select(_PLACE).to_pylist()
    ]
    has_no_number = pc.equal(pc.list_value_length(ops["half_queue_offsets"]), 0)
    idle = ops.filter(pc.or_(pc.invert(_have_op_tag(ops)), pc.fill_null(has_no_number, False)))
    for row in idle.select([*_PLACE, "tags", "half_queue_offsets"]).to_pylist():
        numbers = row["half_queue_offsets"]
        if row["tags"] == OP_TAG:
            actual = "no number"
        else:
            listed = "" if not numbers else f", half queue offsets {', '.join(map(str, numbers[:_NUMBERS_SHOWN]))}"
            actual = "no tag" if row["tags"] is None else f"tag {row['tags']}"
            actual += f"{listed}{', ...' if numbers and len(numbers) > _NUMBERS_SHOWN else ''}"
        found.append(_finding(row, store, "op-without-effect", f"tag {OP_TAG}, half queue offsets", actual))
    return found


def _finding(row: Mapping[str, Any], store: str, code: str, expected: str, actual: str) -> Finding:
    return Finding(
        store, code, row["file"], row["position_bytes"], row["length_bytes"],
        commit_log_offset=row["commit_log_offset"], expected=expected, actual=actual,
    )
