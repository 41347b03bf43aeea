"""A search for records in the whole log: each split is searched alone, without a join."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rmqtx.readers.jobs.job_runner import SplitResult
from rmqtx.readers.jobs.search_conditions import SearchConditions
from rmqtx.readers.log.commit_log import record_columns, span_findings
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.splits import Split
from rmqtx.readers.model.columns import nulls
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.tables import RECORDS
from rmqtx.readers.store.store import Store

_BATCH_RECORDS_MAX = 65_536


@dataclass(frozen=True, slots=True)
class Search:
    """The search as a job.

    Shape: rows of RECORDS; only `columns` are decoded, the others are null. `inflates`: bodies are decompressed.
    """

    conditions: SearchConditions
    columns: tuple[str, ...]
    inflates: bool = False

    @property
    def schema(self) -> pa.Schema:
        """RECORDS."""
        return RECORDS

    def of_split(self, split: Split) -> SplitResult:
        """Return the records of a split that match the conditions.

        Order:  commit-log offset ascending.
        Damage: findings for bytes that are not records, and for compressed bodies that cannot be decompressed.
        """
        scan = split.scan()
        result = SplitResult()
        try:
            for block in scan:
                result.rows.extend(self._rows(split.store, block, result.findings))
        except SourceError as error:
            file, position = split.segment.file, error.position_bytes
            result.findings.append(Finding(split.store.root, "unreadable-file", file, position, actual=str(error)))
        result.decoded_bytes, result.spans = scan.decoded_bytes, scan.spans
        result.findings.extend(span_findings(split.store, split.segment, scan.spans))
        return result

    def of_store(self, store: Store, carried: list[Any]) -> SplitResult:  # noqa: ARG002 -- every job has it
        """Return an empty result: the splits are complete."""
        return SplitResult()

    def _rows(self, store: Store, block: Block, findings: list[Finding]) -> Iterator[pa.RecordBatch]:
        found = self.conditions.narrowed(block)
        if len(found) and self.conditions.looks_at_bodies:
            is_found, unreadable = self.conditions.with_body(found)
            findings.extend(_unreadable(store, found, row) for row in unreadable.tolist())
            found = found.take(is_found)
        for first in range(0, len(found), _BATCH_RECORDS_MAX):
            part = found.take(np.arange(first, min(first + _BATCH_RECORDS_MAX, len(found))))
            wanted = [name for name in RECORDS.names if name in self.columns]
            arrays = record_columns(part, store.root, wanted, decompress=self.inflates)
            values = dict(zip(wanted, arrays, strict=True))
            columns = [values.get(field.name, nulls(len(part), field.type)) for field in RECORDS]
            yield pa.RecordBatch.from_arrays(columns, schema=RECORDS)


def _unreadable(store: Store, block: Block, row: int) -> Finding:
    return Finding(
        store.root, "body-stream", block.file, int(block.positions[row]), int(block.lengths[row]),
        commit_log_offset=int(block.commit_log_offsets[row]), expected="a compressed body, by the record's flag",
    )
