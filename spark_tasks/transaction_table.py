"""The database table of open transactions (3.2 to 4.2) through JDBC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from readers.transaction_table import TableAddress, TransactionTable, chosen_columns, table_of
from spark_tasks.ledger import read_ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_transaction_table(
    spark: SparkSession, address: TableAddress, store: str, *, login: tuple[str | None, str | None] = (None, None)
) -> TransactionTable:
    """The table at a JDBC address, as `readers.transaction_table.read_transaction_table` gives it.

    It is brought to the driver: a row stands for a transaction that hangs, and they are few.
    Raises: BadRequest for a column that is not there; UnreadableFile, with the database's own word.
    """
    frame = read_ledger(spark, address.location, address.table, (), login=login)
    found = frame.select(*(f"`{name}`" for name in chosen_columns(address, frame.columns))).toArrow()
    offsets, groups = (column.cast(pa.string()).to_pylist() for column in found.columns)
    return table_of(address.name, offsets, groups, store)
