"""Options for a database table of open transactions (3.2 to 4.2), declared once for all commands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.options.logins import JDBC, PASSWORD_VARIABLE, USER_VARIABLE, holds_login, login

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx.readers.old_tables.transaction_table import TableAddress, TransactionTable
    from rmqtx.readers.store.store import Store
    from rmqtx_cli.options.engine import EngineOptions
    from rmqtx_cli.sources.engines import StoreEngine

TransactionTableOption = Annotated[
    str | None,
    typer.Option(
        "--transaction-table", metavar="URL",
        help="A broker's t_transaction (3.2 to 4.2): sqlite:///FILE, a URL of SQLAlchemy, a CSV or Parquet export; "
        "jdbc:... with Spark. User and password: RMQTX_LEDGER_USER, RMQTX_LEDGER_PASSWORD.",
    ),
]
TableOption = Annotated[
    str | None, typer.Option("--table", metavar="NAME", help="Name of the table (default: t_transaction).")
]
OffsetColumnOption = Annotated[
    str | None, typer.Option("--offset-column", metavar="NAME", help="Column of offsets (default: offset).")
]
GroupColumnOption = Annotated[
    str | None,
    typer.Option("--group-column", metavar="NAME", help="Column of producer groups (default: producerGroup)."),
]

@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    """The options for the table."""

    transaction_table: TransactionTableOption = None
    table: TableOption = None
    offset_column: OffsetColumnOption = None
    group_column: GroupColumnOption = None

    @property
    def address(self) -> TableAddress | None:
        """The address of the table; None without --transaction-table.

        Raises: BadRequest for a user or password in the address, and for the other options without a table.
        """
        named = {"--table": self.table, "--offset-column": self.offset_column, "--group-column": self.group_column}
        if self.transaction_table is None:
            if given := [name for name, value in named.items() if value is not None]:
                raise BadRequest(f"{given[0]} needs --transaction-table", advice="add --transaction-table URL")
            return None
        from rmqtx.readers.old_tables.transaction_table import OFFSET, PRODUCER_GROUP, TABLE, TableAddress

        if holds_login(self.transaction_table):
            raise BadRequest(
                "--transaction-table contains a user or a password, which other users of this machine could read",
                advice=f"set {USER_VARIABLE} and {PASSWORD_VARIABLE} in the environment",
            )
        address = TableAddress(
            self.transaction_table, self.table or TABLE, self.offset_column or OFFSET,
            self.group_column or PRODUCER_GROUP,
        )
        if address.is_file and not self.is_jdbc and self.table is not None:
            raise BadRequest("--table is for databases, and --transaction-table is a file")
        return address

    @property
    def is_jdbc(self) -> bool:
        """Whether only Spark can read the table."""
        return (self.transaction_table or "").startswith(JDBC)

    def engine_of(self, options: EngineOptions) -> EngineOptions:
        """The engine options for reading the table: Spark for JDBC.

        Raises: BadRequest.
        """
        from dataclasses import replace

        from rmqtx_cli.options.engine import EngineName

        if not self.is_jdbc:
            return options
        if options.engine is EngineName.LOCAL:
            raise BadRequest(
                "--transaction-table jdbc: needs Spark", advice="use --engine spark, or a URL of SQLAlchemy"
            )
        return replace(options, engine=EngineName.SPARK)

    def read(self, stores: Sequence[Store], engine: StoreEngine | None = None) -> TransactionTable | None:
        """The table, which belongs to one broker; None without --transaction-table.

        Raises: BadRequest, UnreadableFile.
        """
        address = self.address
        if address is None:
            return None
        if len(stores) != 1:
            raise BadRequest("--transaction-table is for one store, and several are given")
        if not self.is_jdbc:
            from rmqtx.readers.old_tables.transaction_table import read_transaction_table

            return read_transaction_table(address, stores[0].root, login=login())
        from rmqtx_cli.sources.engines import SparkEngine

        if not isinstance(engine, SparkEngine):
            raise BadRequest("--transaction-table jdbc: needs Spark", advice="use rmqtx audit or rmqtx verify")
        from rmqtx.spark_tasks.jobs.ledger import read_transaction_table as read_by_spark
        from rmqtx.spark_tasks.session.errors import translated

        with translated():
            return read_by_spark(engine.spark, address, stores[0].root, login=login())


def with_entries(batches: Iterable[pa.RecordBatch], table: TransactionTable | None) -> Iterator[pa.RecordBatch]:
    """The same transactions with their entries of the table; unchanged if there is no table."""
    if table is None:
        yield from batches
        return
    from rmqtx.readers.old_tables.transaction_table import with_database_entries

    for batch in batches:
        yield with_database_entries(batch, table)
