"""Read the database table of open transactions (3.2 to 4.2) through JDBC."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rmqtx.readers.ledger.databases import column_texts
from rmqtx.readers.old_tables.transaction_table import TableAddress, TransactionTable, chosen_columns, table_of
from rmqtx.spark_tasks.jobs.ledger import read_database, tried

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLAIN = re.compile(r"[A-Za-z_][\w$]*(\.[A-Za-z_][\w$]*)*")
_BACKTICKED = ("jdbc:mysql:", "jdbc:mariadb:")
_DRIVER_OPTION = "--conf spark.jars=FILE (for MySQL: Connector/J 8 or later)"


def read_transaction_table(
    spark: SparkSession, address: TableAddress, store: str, *, login: tuple[str | None, str | None] = (None, None)
) -> TransactionTable:
    """Return the table at a JDBC address, as `rmqtx.readers.old_tables.transaction_table.read_transaction_table` does.

    It is collected in the driver: a row stands for an open transaction, and these are few.
    Raises: BadRequest for a column that does not exist; UnreadableFile, with the database's message.
    """
    frame = read_database(spark, address.location, _quoted(address), login, "the table at", _DRIVER_OPTION)
    names = [f"`{name.replace('`', '``')}`" for name in chosen_columns(address, frame.columns)]
    found = tried(address.name, frame.select(*names).toArrow, _DRIVER_OPTION)
    offsets, groups = (column_texts(column, address.name) for column in found.columns)
    return table_of(address.name, offsets, groups, store)


def _quoted(address: TableAddress) -> str:
    """Return the table's name quoted if needed. Plain names stay unquoted, because databases fold their case."""
    if _PLAIN.fullmatch(address.table):
        return address.table
    quote = "`" if address.location.startswith(_BACKTICKED) else '"'
    return ".".join(quote + part.replace(quote, 2 * quote) + quote for part in address.table.split("."))
