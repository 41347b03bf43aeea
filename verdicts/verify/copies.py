"""Copies of one broker's log among the stores of a verification, whose rules are for single stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from readers.model.findings import findings_table
from readers.store.store import Store
from verdicts.audit.log_copies import copy_findings

_NEWEST_BYTES = 64 << 20


def with_copy_findings(
    batches: Iterator[pa.RecordBatch], stores: Sequence[Store], *, is_partial: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the findings of a verification, then those about copies of one log.

    `is_partial`: not the whole logs are read; then only their newest bytes are compared first.
    """
    yield from batches
    if len(stores) > 1:
        yield from findings_table(copy_findings(stores, _NEWEST_BYTES if is_partial else None)).to_batches()
