"""The state table that a broker 3.0 or 3.1 rebuilds if it finds the file `abort` at its start.

Source: docs/formats/state_table.md#recovery.
"""

from __future__ import annotations

import numpy as np

from rmqtx.readers.log.commit_log import scan_segments
from rmqtx.readers.log.prepared_record_arrays import OldRecords
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.old_tables.redo_log import (
    PREPARED_TAGS,
    RedoEntries,
    entries_per_file,
    numbers_with,
    recovered_offsets,
)
from rmqtx.readers.store.store import Store


def rebuilt_offsets(store: Store, entries: RedoEntries, findings: list[Finding]) -> Int64s:
    """Return the prepared records in the rebuilt table: from the redo log, and from records after its last entry.

    Order:  slot number, from 0 on.
    Damage: as `scan_segments`.
    Source: store/transaction/TransactionStateService.java recreateStateTable (3.1.4).
    """
    last = int(entries.offsets.max(initial=-1))
    blocks = scan_segments(store, findings, [], from_offset=last + 1)
    later = OldRecords.joined(OldRecords.of_block(block) for block in blocks)
    return recovered_offsets(
        np.concatenate([entries.offsets, later.offsets]),
        np.concatenate([entries.tags, np.where(later.is_prepared, PREPARED_TAGS, later.prepared_offsets)]),
        entries_per_file=entries_per_file(entries),
        numbers=numbers_with(entries, len(later)),
    )
