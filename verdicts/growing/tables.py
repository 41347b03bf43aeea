"""Opens a table of verdicts by its name: a folder or URI of Parquet, or a table of Delta Lake or Apache Iceberg."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from rmqtx.readers.jobs.workers import Progress
from rmqtx.readers.model.errors import BadRequest, UnwritableFile
from rmqtx.readers.storage.places import is_uri, joined, normalised
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.evidence.store_facts import SettingsOf
from rmqtx.verdicts.export.folder import STATE_DIRECTORY
from rmqtx.verdicts.follow.checkpoint_db import FollowDatabase
from rmqtx.verdicts.follow.follower import MakeReader
from rmqtx.verdicts.growing.grow import Grown, VerdictTable, grow

#: The kinds of tables, with the prefix of their names; a name without a prefix is a folder of Parquet.
PARQUET, DELTA, ICEBERG = "parquet", "delta", "iceberg"
KINDS = (PARQUET, DELTA, ICEBERG)
_PREFIX = re.compile(rf"({'|'.join(KINDS)}):(?!//)(.+)", re.DOTALL)
CHECKPOINT = "checkpoint.sqlite"


@dataclass(frozen=True, slots=True)
class TableName:
    """A table. `place`: an absolute path or URI; for Iceberg CATALOG.NAMESPACE.TABLE. `given`: the name as typed."""

    kind: str
    place: str
    given: str = ""

    def __str__(self) -> str:
        return self.given or (self.place if self.kind == PARQUET else f"{self.kind}:{self.place}")

    @property
    def folder(self) -> Path | None:
        """The folder of a table on this machine; None elsewhere."""
        return None if self.kind == ICEBERG or is_uri(self.place) else Path(self.place)

    def checkpoint(self) -> Path:
        """Return the checkpoint of a table whose folder is on this machine. Raises: BadRequest for other tables."""
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
        return TableName(kind, rest, text)
    place = normalised(rest).rstrip("/")
    return TableName(kind, place if is_uri(place) else str(Path(place or "/").absolute()), text)


@contextmanager
def opened_table(name: TableName) -> Iterator[VerdictTable]:
    """Open a table for a block, or begin a new one; nothing is written until its first step.

    Raises: BadRequest if it is not a table of verdicts, or another run writes into it; MissingLibrary; UnwritableFile.
    """
    with _module(name.kind).opened(name.place) as table:
        yield table


def grow_table(
    name: TableName, checkpoint: str | None, stores: list[Store], settings_of: SettingsOf, *,
    make_reader: MakeReader | None = None, progress: Progress | None = None,
) -> Grown:
    """Open a table and its checkpoint, and bring the table up to the present state of the stores; see `grow`.

    `checkpoint`: None for the one in the folder of the table.
    Raises: as `opened_table`, `FollowDatabase` and `grow`.
    """
    if checkpoint is None:
        own = name.checkpoint()
        try:
            own.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnwritableFile(f"cannot write {own.parent}: {error.strerror}", file=own.parent) from error
        checkpoint = str(own)
    with opened_table(name) as table, closing(FollowDatabase(checkpoint, stores)) as database:
        return grow(table, database, stores, settings_of, make_reader=make_reader, progress=progress)


def table_files(name: TableName) -> list[str]:
    """Return the Parquet files of the present version of a table, as paths or URIs, for readers of Parquet.

    Shape:  all rows of VERDICTS; in Delta Lake `day` is in the names of the folders and not in the files.
    Raises: BadRequest if it is not a table of verdicts; MissingLibrary; UnreadableFile.
    """
    files: list[str] = _module(name.kind).read_files(name.place)
    return files


def _module(kind: str) -> ModuleType:
    """Return the module of a kind of table; its library is loaded only if the kind is used."""
    return import_module(f"rmqtx.verdicts.growing.{kind}_table")
