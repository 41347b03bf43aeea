"""The answer to a question: a lazy table that Arrow's consumers read, and what was found about its completeness."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.api.rows import Diagnosis, row_of
from rmqtx.readers.finding_kinds.kind import Severity
from rmqtx.readers.model import exit_status
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.model.tables import FINDINGS, findings_table
from rmqtx.verdicts.causes.diagnosing import DIAGNOSES
from rmqtx.verdicts.causes.diagnosing import Diagnosis as Causes
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx.verdicts.model.verdict_words import State

if TYPE_CHECKING:
    from rmqtx.readers.model.findings import Finding

_Row = TypeVar("_Row")
#: Rows that are values of Python at once.
_ROWS_AT_ONCE = 1_000
#: Rows that a notebook shows.
_SHOWN_ROWS = 20


@dataclass(slots=True)
class Account:
    """What one reading of rows found. `is_whole`: whether all rows were read."""

    reading: Reading
    undecidable_count: int = 0
    has_damage: bool = False
    is_whole: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether the evidence that was read is sound, and each transaction has a certain state."""
        return not self.undecidable_count and not any(one.is_error for one in self.reading.findings)

    @property
    def status(self) -> int:
        """The exit status of the command that asks the same: 3 if not complete, 1 if verify found damage, else 0."""
        if not self.is_complete:
            return exit_status.INCOMPLETE
        return exit_status.FINDINGS if self.has_damage else exit_status.DONE


class Rows(Generic[_Row]):
    """The rows of one question, read when they are needed.

    DuckDB, polars, pandas, Ibis and Spark read it by the Arrow C stream protocol; iterating yields typed values.
    Each reading asks the stores again, in constant memory; `to_arrow` reads once and keeps the table, and later
    readings take it from there. `findings`, `status` and `is_complete` belong to the last reading of all rows; without
    one, `to_arrow` reads.
    """

    def __init__(self, kind: type[_Row], schema: pa.Schema, begin: Callable[[], Reading]) -> None:
        self._kind, self.schema, self._begin = kind, schema, begin
        self._table: pa.Table | None = None
        self._ended: Account | None = None
        self._begun: Account | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as record batches."""
        if self._table is not None:
            yield from self._table.to_batches()
            return
        reading = self._begin()
        account = self._begun = Account(reading)
        for batch in reading:
            if "state" in batch.schema.names:
                account.undecidable_count += pc.sum(pc.equal(batch["state"], State.UNDECIDABLE)).as_py() or 0
            elif self.schema.equals(FINDINGS):
                account.has_damage |= not {*batch["severity"].to_pylist()} <= {Severity.NOTE}
            yield batch.select(self.schema.names)
        if isinstance(reading, VerdictReading):
            account.undecidable_count = max(account.undecidable_count, reading.undecidable_count)
        account.is_whole = True
        self._ended = account

    def to_arrow(self) -> pa.Table:
        """Return all rows as one table, and keep it."""
        if self._table is None:
            self._table = pa.Table.from_batches(list(self.batches()), self.schema)
        return self._table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as a capsule of the Arrow C stream interface."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches()).__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Return the columns as a capsule of the Arrow C data interface."""
        return self.schema.__arrow_c_schema__()

    def __iter__(self) -> Iterator[_Row]:
        for batch in self.batches():
            for begin in range(0, batch.num_rows, _ROWS_AT_ONCE):  # values of Python take much more memory
                for values in batch.slice(begin, _ROWS_AT_ONCE).to_pylist():
                    yield row_of(self._kind, values)

    @property
    def findings(self) -> list[Finding]:
        """What is damaged, missing or contradictory in what was read."""
        return self._at_its_end().reading.findings

    def findings_table(self) -> pa.Table:
        """Return the findings as rows of FINDINGS."""
        return findings_table(self.findings)

    @property
    def notes(self) -> list[str]:
        """How the stores were read, in sentences."""
        return list(dict.fromkeys(note.text for note in self._at_its_end().reading.notes))

    @property
    def is_complete(self) -> bool:
        """Whether all evidence was read and is sound, and each transaction has a certain state."""
        return self._at_its_end().is_complete

    @property
    def status(self) -> int:
        """The exit status of the command that asks the same: 3 if not complete, 1 if verify found damage, else 0."""
        return self._at_its_end().status

    @property
    def so_far(self) -> Account:
        """What the last reading has found, also one that was not read to its end."""
        return self._begun or self._at_its_end()

    def _at_its_end(self) -> Account:
        if self._ended is None:
            self.to_arrow()
        assert self._ended is not None
        return self._ended

    def __repr__(self) -> str:
        known = "not read" if self._table is None else f"{self._table.num_rows} rows"
        return f"<rmqtx rows of {self._kind.__name__}: {known}>"

    def _repr_html_(self) -> str:
        """The first rows for a notebook; all text is escaped."""
        return html_table(self.to_arrow(), f"status {self.status}")


def diagnosed(judge: Callable[[], VerdictReading]) -> Rows[Diagnosis]:
    """Return the causes of the transactions that `judge` reads, with NEEDED_COLUMNS."""

    def begin() -> Reading:
        reading, answer = judge(), VerdictReading(DIAGNOSES, ())

        def batches() -> Iterator[pa.RecordBatch]:
            found = Causes(reading.evidence)
            table = found.add_all(reading)
            answer.add_account_of(reading)
            answer.undecidable["", ""] = found.undecidable_count
            yield from table.to_batches()

        answer.batches = batches()
        return answer

    return Rows(Diagnosis, DIAGNOSES, begin)


def html_table(table: pa.Table, about: str) -> str:
    """Return the first rows of a table for a notebook; all text is escaped."""
    names = [name for name in table.schema.names if table.num_rows == 0 or table[name].null_count < table.num_rows]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    rows = "".join(
        "<tr>" + "".join(f"<td>{_cell(values[name])}</td>" for name in names) + "</tr>"
        for values in table.slice(0, _SHOWN_ROWS).to_pylist()
    )
    more = f"<p>{table.num_rows} rows, {min(table.num_rows, _SHOWN_ROWS)} shown; {html.escape(about)}</p>"
    return f"<table><tr>{head}</tr>{rows}</table>{more}"


def _cell(value: Any) -> str:
    """A value as HTML; control characters are shown as escapes."""
    if value is None:
        return ""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
    return html.escape(shown)
