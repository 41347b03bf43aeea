"""The result of every reading command: batches of one table, with findings, coverage and notes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeVar

import pyarrow as pa

from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.tables import COVERAGE

_Source = TypeVar("_Source")


class SpanLike(Protocol):
    """A range of a file that contains no structure."""

    @property
    def length_bytes(self) -> int:
        """Length of the range."""

    @property
    def is_filler(self) -> bool:
        """Whether the range is filler, so that nothing is missing."""


@dataclass(slots=True)
class Coverage:
    """How the bytes of one file were read.

    Units: bytes. `decoded + filler + damaged + unread = size`, for any input.
    """

    store: str
    file: str
    size_bytes: int
    decoded_bytes: int = 0
    filler_bytes: int = 0
    damaged_bytes: int = 0

    def count(self, decoded_bytes: int, spans: Iterable[SpanLike]) -> None:
        """Add the result of a scan of the file or of a part of it."""
        self.decoded_bytes += decoded_bytes
        for span in spans:
            if span.is_filler:
                self.filler_bytes += span.length_bytes
            else:
                self.damaged_bytes += span.length_bytes

    @property
    def unread_bytes(self) -> int:
        """Bytes that were not read because of a requested limit."""
        return self.size_bytes - self.decoded_bytes - self.filler_bytes - self.damaged_bytes


@dataclass(frozen=True, slots=True)
class Bounds:
    """A range to read. Units: offsets in bytes of the commit log, times in epoch milliseconds; ends excluded."""

    from_offset: int | None = None
    to_offset: int | None = None
    from_time_ms: int | None = None
    to_time_ms: int | None = None


#: No bounds.
WHOLE = Bounds()


class NoteKind(Enum):
    """The kind of a note: HOW data was read is a detail; WHY it was read differently, or is missing, is important."""

    HOW = "how"
    WHY = "why"


@dataclass(frozen=True, slots=True)
class Note:
    """One sentence beside the rows of a reading."""

    kind: NoteKind
    text: str


@dataclass(slots=True)
class Reading:
    """Batches of one table, to be iterated once; the other fields are complete after the last batch."""

    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]
    findings: list[Finding] = field(default_factory=list)
    coverage: list[Coverage] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self.batches)

    def table(self) -> pa.Table:
        """Return all batches as one table, for small results."""
        return pa.Table.from_batches(list(self.batches), schema=self.schema)

    def complete_findings(self) -> list[Finding]:
        """Return the complete findings, after reading the remaining rows without keeping them."""
        for _ in self.batches:
            pass
        return self.findings

    def add_account_of(self, other: Reading) -> None:
        """Add findings, coverage and notes of another reading, which has ended."""
        self.findings.extend(other.findings)
        self.coverage.extend(other.coverage)
        self.notes.extend(other.notes)

    def coverage_table(self) -> pa.Table:
        """Return the rows of COVERAGE."""
        rows = [
            {
                "store": c.store,
                "file": c.file,
                "size_bytes": c.size_bytes,
                "decoded_bytes": c.decoded_bytes,
                "filler_bytes": c.filler_bytes,
                "damaged_bytes": c.damaged_bytes,
                "unread_bytes": c.unread_bytes,
            }
            for c in self.coverage
        ]
        return pa.Table.from_pylist(rows, schema=COVERAGE)


def chained(schema: pa.Schema, sources: Iterable[_Source], read: Callable[[_Source], Reading]) -> Reading:
    """Return one reading of several sources, one after another; what is not read to its end counts as far as it is."""
    answer = Reading(schema, ())

    def batches() -> Iterator[pa.RecordBatch]:
        for source in sources:
            one = read(source)
            try:
                yield from one
            finally:
                if isinstance(one.batches, Generator):
                    one.batches.close()  # at a limit a database would stay open until the program ends
                answer.add_account_of(one)

    answer.batches = batches()
    return answer
