"""Read a business ledger as a DataFrame: any JDBC table, Parquet, CSV, or a SQLite file of the driver's machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from rmqtx.readers.ledger.databases import column_texts
from rmqtx.readers.ledger.ledger import SQLITE, open_ledger
from rmqtx.readers.model.errors import BadRequest, UnreadableFile
from rmqtx.readers.old_tables.transaction_table import TableAddress, TransactionTable, chosen_columns, table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JDBC = "jdbc:"
Read = TypeVar("Read")
#: Drivers by the database in an address: Spark finds a driver automatically only on the JVM's class path.
_DRIVERS = {
    "postgresql": "org.postgresql.Driver", "mysql": "com.mysql.cj.jdbc.Driver", "mariadb": "org.mariadb.jdbc.Driver",
    "sqlite": "org.sqlite.JDBC", "oracle": "oracle.jdbc.OracleDriver",
    "sqlserver": "com.microsoft.sqlserver.jdbc.SQLServerDriver", "db2": "com.ibm.db2.jcc.DB2Driver",
    "h2": "org.h2.Driver", "derby": "org.apache.derby.jdbc.EmbeddedDriver",
}
_FETCHED_ROWS = 10_000
#: Spark quotes columns of unknown databases with ", which MariaDB reads as text literals: each row would have the
#: columns' names as its values.
_SESSION_BEGINS = {"mariadb": "SET SESSION sql_mode = CONCAT(@@SESSION.sql_mode, ',ANSI_QUOTES')"}
_PLAIN = re.compile(r"[A-Za-z_][\w$]*(\.[A-Za-z_][\w$]*)*")
_BACKTICKED = ("jdbc:mysql:", "jdbc:mariadb:")
_DRIVER_OPTION = "--conf spark.jars=FILE (for MySQL: Connector/J 8 or later)"


def read_ledger(
    spark: SparkSession, location: str, table: str | None, text_columns: tuple[str, ...], *,
    login: tuple[str | None, str | None] = (None, None),
) -> DataFrame:
    """Return the ledger at an address. `text_columns` stay text in CSV; `login` is user and password of a database.

    Raises: BadRequest for an invalid address; UnreadableFile, with the database's message.
    """
    if location.startswith(JDBC):
        return read_database(spark, location, str(table), login, "the ledger", "--ledger-driver-jar")
    if location.startswith(SQLITE):
        return _from_sqlite(spark, location, table)
    if table is not None:
        raise BadRequest("--ledger-table is for databases, and the ledger is a file")
    if ".csv" in location.rsplit("/", 1)[-1].lower():
        return _from_csv(spark, location, text_columns)
    return tried(f"the ledger {location}", lambda: spark.read.parquet(location))


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """Return the Arrow schema of a frame in tasks."""
    schema: pa.Schema = to_arrow_schema(frame.schema)
    return schema


def read_database(
    spark: SparkSession, url: str, table: str, login: tuple[str | None, str | None], what: str, driver_option: str
) -> DataFrame:
    """Return a table of a database, which Spark reads through JDBC.

    `what`: its name for messages. `driver_option`: the option that gives the driver's jar.
    Raises: UnreadableFile, with the database's message.
    """
    reader = spark.read.format("jdbc").option("url", url).option("dbtable", table)
    reader = reader.option("fetchsize", _FETCHED_ROWS)
    kind = url.removeprefix(JDBC).split(":", 1)[0]
    if kind in _DRIVERS:
        reader = reader.option("driver", _DRIVERS[kind])
    if kind in _SESSION_BEGINS:
        reader = reader.option("sessionInitStatement", _SESSION_BEGINS[kind])
    for name, value in zip(("user", "password"), login, strict=True):
        if value is not None:
            reader = reader.option(name, value)
    return tried(f"{what} {url}", reader.load, driver_option)


def _from_csv(spark: SparkSession, location: str, text_columns: tuple[str, ...]) -> DataFrame:
    guessed = tried(f"the ledger {location}", lambda: spark.read.csv(location, header=True, inferSchema=True))
    fields = [
        StructField(field.name, StringType() if field.name in text_columns else field.dataType)
        for field in guessed.schema.fields
    ]
    return spark.read.csv(location, header=True, schema=StructType(fields), mode="FAILFAST")


def _from_sqlite(spark: SparkSession, location: str, table: str | None) -> DataFrame:
    ledger = open_ledger(location, table)
    rows = pa.Table.from_batches(list(ledger.batches(ledger.schema.names)), schema=ledger.schema)
    return spark.createDataFrame(rows)


def tried(what: str, read: Callable[[], Read], driver_option: str = "--ledger-driver-jar") -> Read:
    """Return the result of a read. Raises: UnreadableFile, with the message of the database, or of the first cause."""
    try:
        return read()
    except (Py4JJavaError, PySparkException) as error:
        cause = _first_cause(error)
        advice = None
        if "ClassNotFoundException" in cause or "No suitable driver" in cause:
            advice = f"give the driver's jar with {driver_option}"
        raise UnreadableFile(f"cannot read {what}: {cause}", advice=advice) from error


def _first_cause(error: Exception) -> str:
    """Return the message of the first cause, usually the database, as one line."""
    thrown = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if thrown is None:  # Spark Connect has no JVM here
        return str(error).strip().split("\n", 1)[0]
    while thrown.getCause() is not None:
        thrown = thrown.getCause()
    text = str(thrown.getMessage() or "").strip().split("\n", 1)[0]
    name = str(thrown.getClass().getSimpleName())
    return text if " " in text else f"{name}: {text}"


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
