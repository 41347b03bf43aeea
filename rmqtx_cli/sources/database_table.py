"""A database table of open transactions (3.2 to 4.2), read as the options name it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.old_tables.transaction_table import (
    OFFSET,
    PRODUCER_GROUP,
    TABLE,
    TableAddress,
    TransactionTable,
    read_transaction_table,
)
from rmqtx_cli.options.ledger_options import PASSWORD_VARIABLE, USER_VARIABLE, holds_login, login
from rmqtx_cli.options.source_options import DatabaseOptions

if TYPE_CHECKING:
    from rmqtx.readers.store.store import Store
    from rmqtx_cli.sources.engine_port import StoreEngine


@dataclass(frozen=True, slots=True)
class DatabaseTable:
    """A table that the options name. `is_jdbc`: only Spark can read it."""

    address: TableAddress
    is_jdbc: bool

    @classmethod
    def of(cls, options: DatabaseOptions) -> DatabaseTable | None:
        """Return the table; None without --transaction-table.

        Raises: BadRequest for a user or password in the address, and for the other options without a table.
        """
        named = {
            "--table": options.table, "--offset-column": options.offset_column, "--group-column": options.group_column,
        }
        if options.transaction_table is None:
            if given := [name for name, value in named.items() if value is not None]:
                raise BadRequest(f"{given[0]} needs --transaction-table", advice="add --transaction-table URL")
            return None
        if holds_login(options.transaction_table):
            raise BadRequest(
                "--transaction-table contains a user or a password, which other users of this machine could read",
                advice=f"set {USER_VARIABLE} and {PASSWORD_VARIABLE} in the environment",
            )
        address = TableAddress(
            options.transaction_table, options.table or TABLE, options.offset_column or OFFSET,
            options.group_column or PRODUCER_GROUP,
        )
        if address.is_file and not options.is_jdbc and options.table is not None:
            raise BadRequest("--table is for databases, and --transaction-table is a file")
        return cls(address, options.is_jdbc)

    def read(self, stores: Sequence[Store], engine: StoreEngine | None = None) -> TransactionTable:
        """Return the rows of the table, which belongs to one broker. Raises: BadRequest, UnreadableFile."""
        if len(stores) != 1:
            raise BadRequest("--transaction-table is for one store, and several are given")
        if not self.is_jdbc:
            return read_transaction_table(self.address, stores[0].root, login=login())
        if engine is None:
            raise jdbc_needs_spark()
        return engine.transaction_table(self.address, stores[0].root)


def jdbc_needs_spark() -> BadRequest:
    """Return the error for a table that only Spark can read, and a command without Spark."""
    return BadRequest("--transaction-table jdbc: needs Spark", advice="use rmqtx audit or rmqtx verify")
