"""A job over every split of some stores, for both engines: first the splits, in any order, then each store.

A job is sent to the process that reads the bytes, so the job and its results are small and can be pickled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from rmqtx.readers.log.segment_scan import Span
from rmqtx.readers.log.splits import Split
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.store.store import Store


@dataclass(slots=True)
class SplitResult:
    """The result of one split: rows of the job's table, spans, findings.

    Shape: `spans` are those of `SegmentScan.spans`, unchanged; the engines compute coverage from them and from
           `decoded_bytes`. `findings` are all findings to report, including those of spans. `carried` is data that
           the job's `of_store` needs from the split.
    """

    rows: list[pa.RecordBatch] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    decoded_bytes: int = 0
    spans: list[Span] = field(default_factory=list)
    carried: Any = None


class ScanJob(Protocol):
    """A job: a schema, a result for each split, and a result for each store."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""

    def of_split(self, split: Split) -> SplitResult:
        """Return the result for one split; a file that cannot be read is a finding, not an error."""

    def of_store(self, store: Store, carried: list[Any]) -> SplitResult:
        """Return the result for a store when all its splits are done; `carried` is in log order. No decoded bytes."""
