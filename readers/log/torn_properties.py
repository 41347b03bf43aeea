"""Find records whose properties were not completely written: a crash, or a lost page, left zeros in their place.

A broker's recovery does not read what properties contain, so it keeps the record: the check, the dispatch and a
COMMIT record use its header, topic and body (docs/formats/record.md#torn-properties).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rmqtx.readers.log.prepared_records import is_rollback
from rmqtx.readers.log.record_block import Block, end_in_zeros
from rmqtx.readers.log.transaction_records import are_halves, are_ops, is_final
from rmqtx.readers.model.columns import Bools
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.store.store import DISCARD_TOPIC


def have_torn_properties(block: Block) -> Bools:
    """Return which records have torn properties: zeros at their end, or none in a record that always has some.

    Every half copy, op message, COMMIT record and discard copy has properties.
    """
    torn = end_in_zeros(block)
    empty = np.flatnonzero(block.properties_lengths == 0)
    if len(empty):
        alone = block.take(empty)
        torn[empty] = are_halves(alone) | are_ops(alone) | alone.topic_is(DISCARD_TOPIC) | is_final(alone)
    return torn


def torn_witnesses(block: Block) -> Block:
    """Return the half copies, op messages, COMMIT and ROLLBACK records and discard copies with torn properties."""
    torn = block.take(have_torn_properties(block))
    if not len(torn):
        return torn
    return torn.take(
        are_halves(torn) | are_ops(torn) | torn.topic_is(DISCARD_TOPIC) | is_final(torn) | is_rollback(torn)
    )


def torn_findings(torn: Block, store: str) -> Iterator[Finding]:
    """Return a finding for each of the given records with torn properties.

    Order: of the block.
    """
    for row in range(len(torn)):
        length = int(torn.properties_lengths[row])
        end = int(torn.starts[row] + torn.lengths[row])
        zeros = length - len(torn.data[end - length : end].tobytes().rstrip(b"\0"))
        yield Finding(
            store, "record-properties", torn.file, int(torn.positions[row]), int(torn.lengths[row]),
            commit_log_offset=int(torn.commit_log_offsets[row]), expected="names and values",
            actual=f"the last {zeros} of {length} bytes are zeros" if length else "no properties",
        )
