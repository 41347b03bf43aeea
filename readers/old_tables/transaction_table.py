"""The database table `t_transaction(offset, producerGroup)` that brokers 3.2 to 4.2 shipped a class for.

A row stands for a prepared record without a decision, by its commit-log offset. The class was never wired to a
broker (3.2.2 to 4.2.0), so another program filled the table: it is a hint of unknown age, joined by offset, and
the log decides. It has no state, no time and no body (docs/formats/prepared_records.md#transaction-table).

Columns may have any case (Derby writes OFFSET) and other names (OFFSET is reserved in MariaDB); offsets may be decimals
or text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.ledger.databases import column_texts, database, first_line, number_of, value_text
from rmqtx.readers.ledger.ledger import SQLITE, Ledger, SqliteLedger, open_ledger
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import BadRequest, UnreadableFile
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.tables import STATE_ENTRIES, column

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

TABLE, OFFSET, PRODUCER_GROUP = "t_transaction", "offset", "producerGroup"
KIND = "database"
_FINDINGS_MAX = 20
_BATCH_ROWS = 65_536

#: Columns of the table's rows as they are read.
TABLE_ROWS = pa.schema(
    [
        column("half_commit_log_offset", pa.int64(), "commit-log offset of the prepared record"),
        column("producer_group", pa.string(), "producer group"),
    ]
)


@dataclass(frozen=True, slots=True)
class TableAddress:
    """The place of a table, and the names of its columns.

    Shape: `location` is sqlite:///FILE, a URL of SQLAlchemy, or a CSV or Parquet file. `table` may begin with a schema
           and a dot. It contains nothing secret: user and password are passed separately.
    """

    location: str
    table: str = TABLE
    offset_column: str = OFFSET
    group_column: str = PRODUCER_GROUP

    @property
    def is_file(self) -> bool:
        """Whether the table is an export in a file, which has no table name and can only be read."""
        return "://" not in self.location

    @property
    def name(self) -> str:
        """The table's name for messages."""
        return self.location if self.is_file else f"{self.location}, table {self.table}"


@dataclass(frozen=True)
class TransactionTable:
    """The rows of a table, each offset once.

    Shape:  `rows` have the columns of TABLE_ROWS. `findings`: values that are not an offset, offsets that occur twice.
    Order:  offset.
    """

    name: str
    rows: pa.Table
    findings: tuple[Finding, ...] = field(default=())

    @property
    def offsets(self) -> Int64s:
        """Commit-log offsets, ascending."""
        return np.asarray(self.rows["half_commit_log_offset"].combine_chunks())

    def entries(self, store: str) -> pa.Table:
        """Return the rows as rows of STATE_ENTRIES."""
        count = self.rows.num_rows
        offsets = self.rows["half_commit_log_offset"]
        columns = {
            "store": pa.repeat(pa.scalar(store, pa.string()), count),
            "half_commit_log_offset": offsets,
            "kind": pa.repeat(pa.scalar(KIND, pa.string()), count),
            "key": offsets.cast(pa.string()),
            "value": self.rows["producer_group"],
            "position_bytes": pa.nulls(count, pa.int64()),
        }
        return pa.Table.from_arrays([columns[name] for name in STATE_ENTRIES.names], schema=STATE_ENTRIES)

    def with_entries(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with the columns of TRANSACTIONS and with the rows of the database added to `state_entries`.

        A row of the database belongs to the transaction with a half copy at its offset.
        """
        offsets_of_table = self.offsets
        copies = batch["half_copies"]
        offsets = pc.struct_field(pc.list_flatten(copies), "commit_log_offset")
        owners = np.asarray(pc.list_parent_indices(copies))
        rows = np.searchsorted(offsets_of_table, np.asarray(offsets))
        hits = np.flatnonzero(np.isin(np.asarray(offsets), offsets_of_table))
        if not len(hits):
            return batch
        groups = self.rows["producer_group"].to_pylist()
        lists: list[list[dict[str, object]]] = [list(one or ()) for one in batch["state_entries"].to_pylist()]
        stores = batch["store"].to_pylist()
        for hit in hits.tolist():
            owner, row = int(owners[hit]), int(rows[hit])
            lists[owner].append({
                "store": stores[owner], "kind": KIND, "key": str(offsets_of_table[row]), "value": groups[row],
                "position_bytes": None,
            })
        place = batch.schema.get_field_index("state_entries")
        changed = pa.array(lists, batch.schema.field(place).type)
        return batch.set_column(place, batch.schema.field(place), changed)


def read_transaction_table(
    address: TableAddress, store: str, *, login: tuple[str | None, str | None] = (None, None)
) -> TransactionTable:
    """Return the table at an address.

    `store`: the store in findings. `login`: user and password of a database.
    Damage: table-row-invalid for a value that is not an offset, or an offset that occurs twice.
    Raises: BadRequest if the place, table or column does not exist, or a library is missing; UnreadableFile.
    """
    offsets: list[str | None] = []
    groups: list[str | None] = []
    for batch in _batches(address, login):
        offsets += column_texts(batch.column(0), address.name)
        groups += column_texts(batch.column(1), address.name)
    return table_of(address.name, offsets, groups, store)


def table_of(name: str, offsets: list[str | None], groups: list[str | None], store: str) -> TransactionTable:
    """Return the table of values that were read as text."""
    numbers = [number_of(text) for text in offsets]
    strange = [text for text, number in zip(offsets, numbers, strict=True) if number is None]
    rows: dict[int, str | None] = {}
    twice: list[int] = []
    for number, group in zip(numbers, groups, strict=True):
        if number is None:
            continue
        if number in rows:
            twice.append(number)
        rows[number] = group
    findings = [
        *_invalid_rows(store, name, "an offset", ["null" if text is None else text for text in strange]),
        *_invalid_rows(store, name, "each offset once", [str(number) for number in twice]),
    ]
    ordered = sorted(rows)
    table = pa.table([pa.array(ordered, pa.int64()), pa.array([rows[one] for one in ordered], pa.string())],
                     schema=TABLE_ROWS)
    return TransactionTable(name, table, tuple(findings))


def _invalid_rows(store: str, name: str, expected: str, values: list[str]) -> Iterator[Finding]:
    for number, value in enumerate(values[:_FINDINGS_MAX]):
        left = len(values) - _FINDINGS_MAX if number == _FINDINGS_MAX - 1 else 0
        yield Finding(
            store, "table-row-invalid", name, expected=expected,
            actual=f"{value[:80]}, and {left} more" if left > 0 else value[:80],
        )


def _batches(address: TableAddress, login: tuple[str | None, str | None]) -> Iterator[pa.RecordBatch]:
    """Yield the columns offset and group."""
    if address.is_file or address.location.startswith(SQLITE):
        yield from _ledger_batches(address)
        return
    with database(address.location, login) as engine:
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield from _database_batches(address, engine)
        except SQLAlchemyError as error:
            raise UnreadableFile(f"cannot read {address.name}: {first_line(error)}") from error


def _database_batches(address: TableAddress, engine: Engine) -> Iterator[pa.RecordBatch]:
    import sqlalchemy as sql

    schema, _, name = address.table.rpartition(".")
    names = chosen_columns(address, column_names(address, engine))
    chosen: list[Any] = [sql.column(sql.quoted_name(one, quote=True)) for one in names]
    within = sql.quoted_name(schema, quote=True) if schema else None
    place = sql.table(sql.quoted_name(name, quote=True), *chosen, schema=within)
    with engine.connect() as connection:
        result = connection.execution_options(stream_results=True).execute(sql.select(*chosen).select_from(place))
        while rows := result.fetchmany(_BATCH_ROWS):
            columns = [pa.array([value_text(row[number]) for row in rows], pa.string()) for number in (0, 1)]
            yield pa.RecordBatch.from_arrays(columns, names=["offset", "group"])


def _ledger_batches(address: TableAddress) -> Iterator[pa.RecordBatch]:
    """Yield the columns from a ledger: a file, or a table of a SQLite file."""
    names = {address.offset_column, address.offset_column.lower(), address.offset_column.upper()}
    ledger: Ledger = open_ledger(address.location, None if address.is_file else address.table, tuple(names))
    offset, group = chosen_columns(address, ledger.schema.names)
    if isinstance(ledger, SqliteLedger):  # SQLite stores any value in any column
        ledger = replace(ledger, schema=pa.schema([pa.field(name, pa.string()) for name in ledger.schema.names]))
    for batch in ledger.batches([offset, group]):
        yield batch.select([offset, group])


def chosen_columns(address: TableAddress, there: list[str]) -> tuple[str, str]:
    """Return the names of the columns in the table: the exact name, else the name in any case. Raises: BadRequest."""
    found = []
    for option, wanted in (("--offset-column", address.offset_column), ("--group-column", address.group_column)):
        same = [name for name in there if name == wanted] or [n for n in there if n.lower() == wanted.lower()]
        if len(same) != 1:
            raise BadRequest(
                f"{address.name} has no column {wanted}",
                advice=f"give the column with {option}; there are: {', '.join(there)}"
            )
        found.append(same[0])
    return found[0], found[1]


def column_names(address: TableAddress, engine: Engine) -> list[str]:
    """Return the names of the columns of a database's table. Raises: BadRequest; SQLAlchemyError."""
    import sqlalchemy as sql

    schema, _, name = address.table.rpartition(".")
    try:
        return [str(one["name"]) for one in sql.inspect(engine).get_columns(name, schema=schema or None)]
    except sql.exc.NoSuchTableError as error:
        raise BadRequest(
            f"{address.location} has no table {address.table}", advice="give the table with --table"
        ) from error
