"""Which record of the log an end names."""

from __future__ import annotations

import numpy as np

from readers.log.properties import CHECK_TIMES
from readers.log.record_block import Block
from readers.log.record_layout import COMMIT, TRANSACTION_MASK
from readers.model.columns import Int64s
from readers.store.store import HALF_TOPIC

#: What an end names that says no place, and what is no end.
NO_PLACE = -1

def named_offsets(block: Block) -> Int64s:
    """The commit-log offset that each record names; NO_PLACE where it names none.

    0 is a name in the half topic alone: the commit of a diverted half message that is the log's first record goes there
    again (seen on 5.3.0). What the check puts back of it keeps the flag, names nothing, and has a count of checks.
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
