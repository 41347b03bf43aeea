"""A table of verdicts in Delta Lake, written by the library deltalake, without Spark.

A step is one commit: rows are appended if it ends none, else merged by store and transaction id. The commit has the
token of the step as the transaction version of each store, which Delta Lake provides for this purpose.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from rmqtx.readers.model.errors import BadRequest, MissingLibrary, UnwritableFile
from rmqtx.readers.storage.remote_systems import opened as opened_system
from rmqtx.verdicts.follow.change_log import KEY
from rmqtx.verdicts.growing.table_step import CURRENT, VERDICTS, TableStep, closed, table_differs

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

_STEP = "rmqtx:"
_CLOSE, _REPLACE, _INSERT = "close", "replace", "insert"
#: A row of a merge, and what to do with it.
_MERGED = pa.schema([*VERDICTS, pa.field("operation", pa.string(), nullable=False)])


@dataclass(slots=True)
class DeltaVerdicts:
    """The table at a place. Shape: `delta`: None before the first step."""

    place: str
    delta: DeltaTable | None

    def step_of(self, store: str) -> int | None:
        """Return the token of the last step of a store."""
        return None if self.delta is None else self.delta.transaction_version(_STEP + store)

    def current(self, stores: Sequence[str]) -> pa.Table:
        """Return the current rows of some stores (CURRENT)."""
        if self.delta is None:
            return CURRENT.empty_table()
        rows = _rows(self.delta, self.place, [*CURRENT.names, "valid_to"])
        are_current = pc.and_(pc.is_null(rows["valid_to"]), pc.is_in(rows["store"], value_set=pa.array(stores)))
        return rows.filter(are_current).select(CURRENT.names)

    def apply(self, step: TableStep) -> None:
        """Commit a step. Raises: FileChanged if the table lacks rows that the step ends; UnwritableFile."""
        import deltalake

        properties = deltalake.CommitProperties(
            app_transactions=[deltalake.Transaction(_STEP + store, step.token) for store in step.stores]
        )
        ended = step.ended()
        try:
            if self.delta is None or not ended.num_rows:
                self._append(step, properties)
            else:
                self._merge(self.delta, step, ended, properties)
        except (OSError, deltalake.exceptions.DeltaError, pa.ArrowException) as error:
            raise UnwritableFile(f"cannot write {self.place}: {_one_line(error)}") from error

    def _append(self, step: TableStep, properties: CommitProperties) -> None:
        from deltalake import write_deltalake

        batches = (batch for rows in step.rows() for batch in rows.select(VERDICTS.names).to_batches())
        write_deltalake(
            self.delta or self.place, pa.RecordBatchReader.from_batches(VERDICTS, batches), mode="append",
            partition_by=["day"], schema_mode="merge", commit_properties=properties,
            storage_options=_storage_options(),
        )

    def _merge(self, delta: DeltaTable, step: TableStep, ended: pa.Table, properties: CommitProperties) -> None:
        source = pa.RecordBatchReader.from_batches(
            _MERGED, (batch for rows in _merged(step, ended) for batch in rows.to_batches())
        )
        every = {name: f"s.{name}" for name in VERDICTS.names}
        done = (
            delta.merge(source, _found_by(ended), "s", "t", merge_schema=True, commit_properties=properties)
            .when_matched_update({name: every[name] for name in ("valid_to", "closed_by")}, f"s.operation = '{_CLOSE}'")
            .when_matched_update(
                {name: text for name, text in every.items() if name != "valid_from"}, f"s.operation = '{_REPLACE}'"
            )
            .when_not_matched_insert(every, f"s.operation = '{_INSERT}'")
            .execute()
        )
        missing_count = ended.num_rows - done["num_target_rows_updated"]
        if missing_count:
            raise table_differs(self.place, missing_count)


def _merged(step: TableStep, ended: pa.Table) -> Iterator[pa.Table]:
    """Return the rows of a merge: closed ones with their keys and ends, then those that replace or are added."""
    ends = ended.filter(pc.is_valid(ended["closed_by"]))
    count = ends.num_rows
    keys = [ends[name] if name in KEY else pa.nulls(count, VERDICTS.field(name).type) for name in VERDICTS.names]
    closing = closed(pa.table(keys, schema=VERDICTS), step.at_ms, ends["closed_by"]).append_column(
        _MERGED.field("operation"), pa.array([_CLOSE] * count, pa.string())
    )
    return chain([closing], map(_added, step.rows()))


def _added(rows: pa.Table) -> pa.Table:
    operation = pc.if_else(rows["is_replacement"], _REPLACE, _INSERT)
    return rows.select(VERDICTS.names).append_column(_MERGED.field("operation"), operation)


def _found_by(ended: pa.Table) -> str:
    """Return the condition that finds the current row of a transaction, in the days of the ended rows."""
    days = pc.unique(ended["before_day"]).cast(pa.string()).to_pylist()
    some = ", ".join(f"'{day}'" for day in days if day is not None)
    are_days = [f"t.day IN ({some})"] * bool(some) + ["t.day IS NULL"] * (None in days)
    return " AND ".join([
        "t.valid_to IS NULL", f"s.operation <> '{_INSERT}'", f"({' OR '.join(are_days)})",
        *(f"(t.{name} IS NOT DISTINCT FROM s.{name})" for name in KEY),
    ])


def _rows(delta: DeltaTable, place: str, names: Sequence[str]) -> pa.Table:
    # With the library's own file system pyarrow's threads call Python for each read, and one that still does so when
    # the process ends aborts it (deltalake 1.6.6, pyarrow 26.0.1: "terminate called without an active exception").
    system, top = opened_system(place)
    found = delta.to_pyarrow_dataset(filesystem=fs.SubTreeFileSystem(top, system)).to_table(list(names))
    return found.cast(pa.schema([VERDICTS.field(name) for name in names]))


def _storage_options() -> dict[str, str] | None:
    """Options beside those that the library takes from the environment: a server without TLS, if that is given."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    return {"allow_http": "true"} if endpoint.startswith("http://") else None


def _one_line(error: BaseException) -> str:
    """Return the library's message, which has several coloured lines."""
    return " ".join(re.sub(r"\x1b\[[\d;]*m", "", str(error)).replace("\u21b3", ":").split()).replace(" :", ":")


def _existing(place: str) -> DeltaTable | None:
    """Return the table at a place; None before its first step.

    Raises: BadRequest if it is not a table of verdicts; MissingLibrary; UnwritableFile.
    """
    os.environ.setdefault("RUST_LOG", "off")  # it reports errors itself, and they are raised too
    try:
        import deltalake
    except ImportError as error:
        raise MissingLibrary(
            "tables of Delta Lake need the library deltalake", advice="pip install 'rmqtx[delta]'"
        ) from error
    try:
        options = _storage_options()
        if not deltalake.DeltaTable.is_deltatable(place, options):
            return None
        delta = deltalake.DeltaTable(place, storage_options=options)
        names = {field.name for field in delta.schema().fields}
    except (OSError, deltalake.exceptions.DeltaError) as error:
        raise UnwritableFile(f"cannot open {place}: {_one_line(error)}", file=place) from error
    if not {*KEY, "state", "valid_from", "valid_to", "day"} <= names:
        raise BadRequest(f"delta:{place} is not a table of verdicts", advice="give another place")
    return delta


@contextmanager
def opened(place: str) -> Iterator[DeltaVerdicts]:
    """Open a table for a block, or begin a new one. `place`: an absolute path, or a URI.

    Raises: BadRequest if it is not a table of verdicts; MissingLibrary; UnwritableFile.
    """
    yield DeltaVerdicts(place, _existing(place))


def read_files(place: str) -> list[str]:
    """Return the files of the present version of a table.

    Raises: BadRequest if it is not a table of verdicts; MissingLibrary; UnwritableFile.
    """
    uris: list[str] = _present(place).file_uris()
    return uris


def _present(place: str) -> DeltaTable:
    delta = _existing(place)
    if delta is None:
        raise BadRequest(f"delta:{place} is not a table", advice="write it: rmqtx table STORE --into TABLE")
    return delta
