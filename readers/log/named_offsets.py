"""The record of the log that a COMMIT or ROLLBACK record names."""

from __future__ import annotations

import numpy as np

from rmqtx.readers.log.properties import CHECK_TIMES
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import COMMIT, TRANSACTION_MASK
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.store.store import HALF_TOPIC

#: No named place, or not a COMMIT or ROLLBACK record.
NO_PLACE = -1

def named_offsets(block: Block) -> Int64s:
    """Return the commit-log offset that each record names; NO_PLACE if it names none.

    The offset 0 in a record usually stands for no name. Only a COMMIT record in the half topic with 0 names the log's
    first record: a half message that was diverted by a delay or a timer, whose COMMIT record is written to the half
    topic (seen on 5.3.0). If the check puts this COMMIT record back, the copy has the same flag and a count of checks,
    and names nothing.
    """
    named: Int64s = block.header("prepared_transaction_offset").astype(np.int64)
    rows = np.flatnonzero(named == 0)
    if not len(rows):
        return named
    named = named.copy()
    named[rows] = NO_PLACE
    rows = rows[block.sys_flag[rows] & TRANSACTION_MASK == COMMIT]
    if len(rows):
        alone = block.take(rows)
        named[rows[alone.topic_is(HALF_TOPIC) & ~alone.properties.locate(CHECK_TIMES)[2]]] = 0
    return named
