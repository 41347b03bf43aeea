"""Tables of stores by name, for DuckDB: each query reads the columns that it uses, and nothing is copied to disk."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import pyarrow as pa
import pyarrow.dataset as ds

from rmqtx.api.results import Account, Rows
from rmqtx.readers.model.errors import RmqtxError

#: Returns the rows of a table with some of its columns.
Read = Callable[[Sequence[str]], Rows[Any]]


class LazyTable(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """A table that is read when a query scans it.

    DuckDB takes it as a dataset of Arrow, and asks `scanner` for the columns that a query uses.
    """

    def __new__(cls, *_: object) -> Self:
        """Make it without the files that other datasets have."""
        made: Self = ds.Dataset.__new__(cls)
        return made

    def __init__(self, schema: pa.Schema, read: Read) -> None:
        self._schema, self._read = schema, read
        self._scans: list[Rows[Any]] = []
        #: What stopped a scan: DuckDB turns it into an error of its own.
        self.error: RmqtxError | KeyboardInterrupt | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._schema

    def scanner(
        self, columns: Sequence[str] | None = None, filter: Any = None, **_: object,  # noqa: A002 -- as Arrow names it
    ) -> ds.Scanner:
        """Return a scanner that reads the columns of a query and of its conditions."""
        wanted = self._schema.names if columns is None else list(columns)
        used = set(re.findall(r"\w+", str(filter))) if filter is not None else set()
        names = [one for one in self._schema.names if one in wanted or one in used] or self._schema.names[:1]
        rows = self._read(names)
        self._scans.append(rows)
        schema = pa.schema([self._schema.field(name) for name in names])
        return ds.Scanner.from_batches(self._batches(rows, names), schema=schema, columns=wanted, filter=filter)

    def _batches(self, rows: Rows[Any], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        try:
            for batch in rows.batches():
                yield batch.select(names)
        except (RmqtxError, KeyboardInterrupt) as error:
            self.error = error
            raise

    def begin(self) -> None:
        """Forget what earlier queries read."""
        self._scans, self.error = [], None

    def accounts(self) -> list[Account]:
        """Return what the scans since `begin` have found so far."""
        return [one.so_far for one in self._scans]
