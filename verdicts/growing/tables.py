"""Opens a table of verdicts by its name: a folder or URI of Parquet, or a table of Delta Lake or Apache Iceberg."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from readers.model.errors import BadRequest
from readers.storage.places import is_uri, joined, normalised
from verdicts.export.export_manifest import STATE_DIRECTORY
from verdicts.growing.grow import VerdictTable

#: The kinds of tables, with the prefix of their names; a name without a prefix is a folder of Parquet.
PARQUET, DELTA, ICEBERG = "parquet", "delta", "iceberg"
KINDS = (PARQUET, DELTA, ICEBERG)
_PREFIX = re.compile(rf"({'|'.join(KINDS)}):(?!//)(.+)", re.DOTALL)
CHECKPOINT = "checkpoint.sqlite"


@dataclass(frozen=True, slots=True)
class TableName:
    """A table. `place`: an absolute path or URI; for Iceberg CATALOG.NAMESPACE.TABLE."""

    kind: str
    place: str

    def __str__(self) -> str:
        return self.place if self.kind == PARQUET else f"{self.kind}:{self.place}"

    @property
    def folder(self) -> Path | None:
        """The folder of a table on this machine; None elsewhere."""
        return None if self.kind == ICEBERG or is_uri(self.place) else Path(self.place)

    def checkpoint(self) -> Path:
        """Return the checkpoint of a table whose folder is on this machine.

        Raises: BadRequest for other tables.
        """
        if self.folder is None:
            raise BadRequest(
                f"{self} is not a folder on this machine, where its checkpoint must be",
                advice="add --checkpoint FILE, on a disk that the next run has too",
            )
        return Path(joined(self.place, STATE_DIRECTORY, CHECKPOINT))


def table_name(text: str) -> TableName:
    """Return the table that an operator names: `DIR`, `s3://…`, `delta:DIR`, `iceberg:CATALOG.NAMESPACE.TABLE`.

    Raises: BadRequest.
    """
    match = _PREFIX.fullmatch(text)
    kind, rest = (match[1], match[2]) if match else (PARQUET, text)
    if kind == ICEBERG:
        if rest.count(".") < 2 or not all(rest.split(".")):
            raise BadRequest(f"{text!r} names no Iceberg table", advice="write iceberg:CATALOG.NAMESPACE.TABLE")
        return TableName(kind, rest)
    place = normalised(rest).rstrip("/")
    return TableName(kind, place if is_uri(place) else str(Path(place or "/").absolute()))


@contextmanager
def opened_table(name: TableName) -> Iterator[VerdictTable]:
    """Open a table for a block, or begin a new one; nothing is written until its first step.

    Raises: BadRequest if it is not a table of verdicts, or another run writes into it; MissingLibrary; UnwritableFile.
    """
    if name.kind == PARQUET:
        from verdicts.growing.parquet_table import opened as opened_parquet

        with opened_parquet(name.place) as table:
            yield table
        return
    raise BadRequest(f"tables of {name.kind} are not supported")


def table_rows(name: TableName) -> pa.Table:
    """Return all rows of the present version of a table, without waiting for a run that writes.

    Shape:  VERDICTS.
    Raises: BadRequest if it is not a table of verdicts; MissingLibrary; UnreadableFile.
    """
    from verdicts.growing.parquet_table import read_rows as read_parquet

    return read_parquet(name.place)
