"""Decisions on records outside the half topic: their op numbers are those of other half messages.

END_TRANSACTION does not test the record's topic (to 5.3.3): naming a discard copy or a final writes an op with *that*
record's queue offset, which may hide a half message that never was decided (FORMATS 9.4; seen on 4.9.7 and 5.3.3).
"""

from __future__ import annotations

import numpy as np

from readers.columns import Int64s
from readers.half_queue import JUDGED_FINALS, JUDGED_HALVES, are_halves, finals_of, halves_of, is_final
from readers.premises import ForeignDecision
from readers.properties import UNIQ_KEY
from readers.record_at import block_at
from readers.record_block import Block
from readers.spool import identities
from readers.store import DISCARD_TOPIC, Store


def find_foreign_decisions(
    store: Store,
    final_offsets: Int64s,
    final_prepared_offsets: Int64s,
    unreadable_files: frozenset[str] = frozenset(),
) -> tuple[list[ForeignDecision], list[tuple[str, str]]]:
    """What some decisions name that can still be read: records outside the half topic, and copies with another id.

    Shape: the decisions on records outside the half topic; and for each final that names a half or discard copy of
           another identity, the two identities.
    Units: commit-log offsets in bytes; the two arrays go together. Finals known to name a half copy of their own
           transaction may be left out. `unreadable_files`: those of which it is known that they cannot be read.
    Order: commit-log offset of the final.
    """
    found: list[ForeignDecision] = []
    ties: list[tuple[str, str]] = []
    log = store.log()
    try:
        # 0 is a name only where the log's first record is a half, and then its decision needs no look: its id tells.
        named_offsets = (final_prepared_offsets > 0) & (final_prepared_offsets >= store.log_begin_offset)
        for row in np.flatnonzero(named_offsets).tolist():
            segment = log.segment_at(int(final_prepared_offsets[row]))
            if segment is not None and segment.file in unreadable_files:
                continue
            named = block_at(log, int(final_prepared_offsets[row]))
            final = block_at(log, int(final_offsets[row]))
            if named is None or final is None:
                continue
            is_half = bool(are_halves(named)[0])
            if is_half or named.topic_is(DISCARD_TOPIC)[0]:
                ties.extend(_tie(store.root, named, final))
            if not is_half:
                found.append(foreign_decision(store.root, named, final))
    finally:
        log.close()
    return sorted(found, key=lambda decision: decision.final_offset), ties


def _tie(store: str, named: Block, final: Block) -> list[tuple[str, str]]:
    ids = [block.properties.text(UNIQ_KEY)[0].as_py() for block in (named, final)]
    if not is_final(final)[0] or (ids[0] is not None and ids[0] == ids[1]):
        return []
    copy = identities(halves_of(named, store, JUDGED_HALVES))[0].as_py()
    own = identities(finals_of(final, store, JUDGED_FINALS))[0].as_py()
    return [] if copy == own else [(copy, own)]


def foreign_decision(store: str, named: Block, final: Block) -> ForeignDecision:
    """The decision that a final of one record is; both blocks hold one record."""
    return ForeignDecision(
        store,
        int(named.header("queue_id")[0]),
        int(named.header("queue_offset")[0]),
        int(final.commit_log_offsets[0]),
        int(final.header("store_time_ms")[0]),
    )
