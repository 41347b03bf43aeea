"""Every half copy and every op message of a commit log, as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from rmqtx.readers.log.commit_log import scan_segments
from rmqtx.readers.log.op_messages import op_findings, ops_of
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.transaction_records import are_halves, are_ops, halves_of
from rmqtx.readers.model.columns import Bools
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.reading import Coverage, Reading
from rmqtx.readers.model.tables import HALVES, OPS
from rmqtx.readers.store.store import Store


def scan_halves(
    store: Store,
    *,
    from_offset: int | None = None,
    to_offset: int | None = None,
    from_time_ms: int | None = None,
    to_time_ms: int | None = None,
) -> Reading:
    """Return every half copy of the log, or of a range of commit-log offsets or store times, as rows of HALVES.

    Prepared records of designs before 4.3 and half messages of transactions in RocksDB are half copies too.
    Order: commit-log offset ascending.
    """
    return _scan(store, are_halves, halves_of, HALVES, from_offset, to_offset, from_time_ms, to_time_ms)


def scan_ops(
    store: Store,
    *,
    from_offset: int | None = None,
    to_offset: int | None = None,
    from_time_ms: int | None = None,
    to_time_ms: int | None = None,
) -> Reading:
    """Return every op message of the log, or of a range of commit-log offsets or store times, as rows of OPS.

    Order:  commit-log offset ascending.
    Damage: an unreadable body is a finding and still a row.
    """
    return _scan(store, are_ops, ops_of, OPS, from_offset, to_offset, from_time_ms, to_time_ms)


def _scan(
    store: Store,
    are_chosen: Callable[[Block], Bools],
    make: Callable[[Block, str], pa.RecordBatch],
    schema: pa.Schema,
    from_offset: int | None,
    to_offset: int | None,
    from_time_ms: int | None,
    to_time_ms: int | None,
) -> Reading:
    findings: list[Finding] = list(store.findings)
    coverage: list[Coverage] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for block in scan_segments(store, findings, coverage, from_offset=from_offset, to_offset=to_offset):
            chosen = block.take(are_chosen(block))
            if from_time_ms is not None or to_time_ms is not None:
                chosen = chosen.within(from_time_ms, to_time_ms)
            if len(chosen):
                rows = make(chosen, store.root)
                if schema is OPS:
                    findings.extend(op_findings(rows, store.root))
                yield rows

    return Reading(schema, batches(), findings, coverage)
