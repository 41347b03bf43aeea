"""Decisions on records outside the half topic: their op numbers are those of other half messages.

END_TRANSACTION does not test the record's topic (to 5.3.3): naming a discard copy or a final writes an op with *that*
record's queue offset, which may hide a half message that never was decided (docs/formats/end_transaction.md#repeats;
seen on 4.9.7 and 5.3.3).
"""

from __future__ import annotations

from readers.log.record_block import Block
from verdicts.model.verdict_inputs import ForeignDecision


def foreign_decision(store: str, named: Block, final: Block) -> ForeignDecision:
    """The decision that a final of one record is; both blocks hold one record."""
    return ForeignDecision(
        store,
        int(named.header("queue_id")[0]),
        int(named.header("queue_offset")[0]),
        int(final.commit_log_offsets[0]),
        int(final.header("store_time_ms")[0]),
    )
