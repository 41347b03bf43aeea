"""Decisions on records outside the half topic: their op numbers are those of other half messages.

END_TRANSACTION does not test the record's topic (to 5.3.3): naming a discard copy or a final writes an op with *that*
record's queue offset, which may hide a half message that never was decided (FORMATS 9.4; seen on 4.9.7 and 5.3.3).
"""

from __future__ import annotations

import numpy as np

from readers.columns import Int64s
from readers.naming import NO_PLACE
from readers.premises import ForeignDecision
from readers.properties import CHECK_TIMES
from readers.record_block import Block
from readers.record_layout import COMMIT, TRANSACTION_MASK
from readers.store import HALF_TOPIC


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


def foreign_decision(store: str, named: Block, final: Block) -> ForeignDecision:
    """The decision that a final of one record is; both blocks hold one record."""
    return ForeignDecision(
        store,
        int(named.header("queue_id")[0]),
        int(named.header("queue_offset")[0]),
        int(final.commit_log_offsets[0]),
        int(final.header("store_time_ms")[0]),
    )
