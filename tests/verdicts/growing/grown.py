"""A table of verdicts beside an audit of everything: after each step its current rows are those of the audit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqtx.readers.model.moments import with_timestamps
from rmqtx.readers.storage.remote_systems import opened as opened_system
from rmqtx.readers.store.store import Store, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.evidence.store_facts import SettingsOf
from rmqtx.verdicts.follow.change_log import FOLLOWED, KEY
from rmqtx.verdicts.growing.grow import Grown
from rmqtx.verdicts.growing.table_step import VERDICTS
from rmqtx.verdicts.growing.tables import ICEBERG, TableName, grow_table, table_files

_Key = tuple[Any, ...]
_Row = dict[str, Any]


def key_of(row: _Row) -> _Key:
    return tuple(row[name] for name in KEY)


def ordered(rows: list[_Row]) -> list[_Row]:
    return sorted(rows, key=lambda row: repr((key_of(row), row.get("valid_from"))))


def table_rows(name: TableName) -> pa.Table:
    """The rows of the present version of a table, as other programs find them (VERDICTS): Iceberg by its own library,
    the others in the Parquet files.
    """
    if name.kind == ICEBERG:
        catalog, _, identifier = name.place.partition(".")
        table = pytest.importorskip("pyiceberg.catalog").load_catalog(catalog).load_table(identifier)
        tables = [table.scan().to_arrow()]
    else:
        tables = [_rows_of_file(file) for file in table_files(name)]
    return pa.concat_tables([VERDICTS.empty_table(), *map(_whole, tables)])


def _rows_of_file(file: str) -> pa.Table:
    system, path = opened_system(file)
    with system.open_input_file(path) as stream, pq.ParquetFile(stream) as parquet:
        rows = parquet.read()
    if "day" in rows.column_names:
        return rows
    named = re.search(r"/day=(\d{4}-\d\d-\d\d)/", file)  # Delta Lake: in the name of the folder
    day = date.fromisoformat(named[1]) if named else None
    return rows.append_column("day", pa.array([day] * rows.num_rows, pa.date32()))


def _whole(rows: pa.Table) -> pa.Table:
    """Rows with the columns that an older version of rmqtx did not write: null."""
    for one in VERDICTS:
        if one.name not in rows.column_names:
            rows = rows.append_column(one, pa.nulls(rows.num_rows, one.type))
    return rows.select(VERDICTS.names).cast(VERDICTS)


@dataclass
class GrownTable:
    """A table, its stores, and the history that whoever audited everything at each step would have written down."""

    roots: Sequence[Path]
    table: TableName
    checkpoint: Path
    settings: SettingsOf
    history: dict[_Key, list[tuple[str, str | None]]] = field(default_factory=dict)

    def stores(self) -> list[Store]:
        return [open_store(root) for root in self.roots]

    def step(self, stores: list[Store] | None = None) -> Grown:
        stores = self.stores() if stores is None else stores
        return grow_table(self.table, str(self.checkpoint), stores, self.settings)

    def audited(self, stores: list[Store]) -> list[_Row]:
        """The rows of an audit of everything, as the table has them."""
        whole = audit(stores, self.settings).table().select(FOLLOWED.names).combine_chunks()
        return [row for batch in whole.to_batches() for row in with_timestamps(batch).to_pylist()]

    def rows(self) -> list[_Row]:
        rows: list[_Row] = table_rows(self.table).to_pylist()
        return rows

    def assert_current(self, stores: list[Store] | None = None) -> list[_Row]:
        """The current rows are those of an audit, and the others are well-formed; returns all rows."""
        rows = self.rows()
        current = [row for row in rows if row["valid_to"] is None]
        wanted = self.audited(self.stores() if stores is None else stores)
        bare = [{name: row[name] for name in wanted[0]} for row in current] if wanted else current
        differing = [row for row in ordered([*bare, *wanted]) if (row in bare) != (row in wanted)]
        assert not differing, f"{len(differing)} rows only in the table or only in the audit: {differing[:4]}"
        assert len({key_of(row) for row in current}) == len(current)
        assert len({(key_of(row), row["valid_from"]) for row in rows}) == len(rows)
        for row in rows:
            assert (row["valid_to"] is None) == (row["closed_by"] is None)
            assert row["valid_to"] is None or row["valid_from"] < row["valid_to"]
            time = row["half_store_time"]
            assert row["day"] == (None if time is None else time.date())
        by_key: dict[_Key, list[_Row]] = {}
        for row in sorted(rows, key=lambda row: row["valid_from"]):
            by_key.setdefault(key_of(row), []).append(row)
        for states in by_key.values():
            for one, after in pairwise(states):
                assert one["valid_to"] is not None
                assert one["valid_to"] <= after["valid_from"]
                if one["closed_by"] == "state":
                    assert one["valid_to"] == after["valid_from"]
                    assert one["state"] != after["state"]
            assert states[-1]["closed_by"] != "state"
        return rows

    def step_and_compare(self) -> Grown:
        """A step; then current rows and history are what audits of everything at each step gave."""
        stores = self.stores()
        before = [row for row in self.rows() if row["valid_to"] is not None] if self.history else []
        done = self.step(stores)
        rows = self.assert_current(stores)
        assert all(row in rows for row in before)  # what is closed stays as it is
        now = {key_of(row): row["state"] for row in rows if row["valid_to"] is None}
        for key, states in self.history.items():
            if states[-1][1] is None and key not in now:
                states[-1] = states[-1][0], "gone"
        for key, state in now.items():
            states = self.history.setdefault(key, [])
            if not states or states[-1][1] is not None:
                states.append((state, None))
            elif states[-1][0] != state:
                states[-1:] = [(states[-1][0], "state"), (state, None)]
        found: dict[_Key, list[tuple[str, str | None]]] = {}
        for row in sorted(rows, key=lambda row: row["valid_from"]):
            found.setdefault(key_of(row), []).append((row["state"], row["closed_by"]))
        assert found == self.history
        return done


def named(kind: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> TableName:
    """A table of a kind that does not exist yet; for Iceberg also its catalog, in a database of its own."""
    if kind != "iceberg":
        pytest.importorskip("deltalake" if kind == "delta" else "pyarrow")
        return TableName(kind, str(directory / "table"))
    catalog = pytest.importorskip("pyiceberg.catalog")
    for name, value in CATALOG.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LOCAL__{name}", value.format(directory))
    monkeypatch.setattr(catalog, "_ENV_CONFIG", catalog.Config())  # read once in a process
    return TableName(kind, "local.audits.verdicts")


CATALOG = {"TYPE": "sql", "URI": "sqlite:///{}/catalog.sqlite", "WAREHOUSE": "file://{}/warehouse"}
KINDS = ("parquet", "delta", "iceberg")

