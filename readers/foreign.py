"""Decisions on records outside the half topic: their op numbers are those of other half messages.

END_TRANSACTION does not test the record's topic (to 5.3.3): naming a discard copy or a final writes an op with *that*
record's queue offset, which may hide a half message that never was decided (FORMATS 9.4; seen on 4.9.7 and 5.3.3).
"""

from __future__ import annotations

import numpy as np

from readers.columns import Int64s
from readers.record_at import block_at
from readers.record_block import Block
from readers.store import HALF_TOPIC, Store
from readers.transactions import ForeignDecision


def find_foreign_decisions(
    store: Store, final_offsets: Int64s, final_prepared_offsets: Int64s
) -> list[ForeignDecision]:
    """Those of some finals whose named record is no half copy but can still be read.

    Units: commit-log offsets in bytes; the two arrays go together. Finals known to name a half copy may be left out.
    Order: commit-log offset of the final.
    """
    found: list[ForeignDecision] = []
    log = store.log()
    try:
        for row in np.flatnonzero(final_prepared_offsets > store.log_begin_offset).tolist():
            named = block_at(log, int(final_prepared_offsets[row]))
            final = block_at(log, int(final_offsets[row]))
            if named is None or final is None or named.topic_is(HALF_TOPIC)[0]:
                continue
            found.append(foreign_decision(store.root, named, final))
    finally:
        log.close()
    return sorted(found, key=lambda decision: decision.final_offset)


def foreign_decision(store: str, named: Block, final: Block) -> ForeignDecision:
    """The decision that a final of one record is; both blocks hold one record."""
    return ForeignDecision(
        store,
        int(named.header("queue_id")[0]),
        int(named.header("queue_offset")[0]),
        int(final.commit_log_offsets[0]),
        int(final.header("store_time_ms")[0]),
    )
