"""The record of the log that a COMMIT or ROLLBACK record names."""

from __future__ import annotations

import numpy as np

from readers.log.properties import CHECK_TIMES
from readers.log.record_block import Block
from readers.log.record_layout import COMMIT, TRANSACTION_MASK
from readers.model.columns import Int64s
from readers.store.store import HALF_TOPIC

#: No named place, or not a COMMIT or ROLLBACK record.
NO_PLACE = -1

def named_offsets(block: Block) -> Int64s:
    """Return the commit-log offset that each record names; NO_PLACE if it names none.

    0 is a name only in the half topic: the COMMIT record of a diverted half message that is the log's first record goes
    to the half topic again (seen on 5.3.0). A copy of it that the check puts back keeps the flag, names nothing, and
    has a count of checks.
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
