"""A question to every split of some stores, as both engines run it: first the splits, in any order, then each store.

A job travels to where the bytes are read, so it is small and survives pickling, and so do its results.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from readers.log.segment_scan import Span
from readers.log.splits import Split
from readers.model.findings import Finding
from readers.store.store import Store


@dataclass(slots=True)
class SplitResult:
    """What one split gave: rows of the job's table, and what had to be said about its bytes.

    Shape: `spans` are what `SegmentScan.spans` says, as they are; the engines make coverage of them and of
           `decoded_bytes`. `findings` are all that the job wants reported, those of spans included. `carried` is
           whatever the job's own `of_store` wants to know of the split.
    """

    rows: list[pa.RecordBatch] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    decoded_bytes: int = 0
    spans: list[Span] = field(default_factory=list)
    carried: Any = None


class ScanJob(Protocol):
    """The question."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of its rows."""

    def of_split(self, split: Split) -> SplitResult:
        """The answer for one split; a file that cannot be read is a finding, not an error."""

    def of_store(self, store: Store, carried: list[Any]) -> SplitResult:
        """What is known when all splits of a store are done; `carried` is in log order. Has no decoded bytes."""
