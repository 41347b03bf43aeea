"""Tables that the brokers' own class filled, in Derby and in real servers of MySQL and MariaDB, read and held against
the log.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqtx.readers.jobs.job_runner import run_job
from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.model.errors import BadRequest, UnreadableFile
from rmqtx.readers.old_tables.transaction_table import TableAddress, TransactionTable, read_transaction_table
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.verify.verify import Verify
from tests.brokers import corpus, maven
from tests.brokers.transaction_tables import (
    DATABASE,
    MARIADB_10,
    MARIADB_11,
    MYSQL,
    Server,
    filled,
    filled_derby,
    operations,
    running,
)
from tests.forge.stores import opened
from tests.spark.jars import jar

NAME = "prepared-3.2.6"
LOGIN = ("root", "")
JDBC_DRIVERS = ("com.mysql:mysql-connector-j:8.0.33", "org.mariadb.jdbc:mariadb-java-client:3.5.3")
thorough = pytest.mark.skipif(not os.environ.get("RMQTX_TABLE_SERVERS"), reason="make test-brokers runs it")
pytestmark = [pytest.mark.broker, pytest.mark.skipif(maven.why_not() is not None, reason=str(maven.why_not()))]


def events(store: Store) -> Iterator[tuple[str, int, str]]:
    """What the class would have been told: prepared records, and those that ended them for the first time."""
    columns = ["commit_log_offset", "transaction_type", "prepared_transaction_offset", "producer_group"]
    waiting: set[int] = set()
    for row in scan_records(store, columns=columns).table().to_pylist():
        if row["transaction_type"] == "prepared":
            waiting.add(row["commit_log_offset"])
            yield "put", row["commit_log_offset"], row["producer_group"]
        elif row["prepared_transaction_offset"] in waiting and row["transaction_type"] != "none":
            waiting.remove(row["prepared_transaction_offset"])
            yield "remove", row["prepared_transaction_offset"], ""


def pending_pairs() -> list[tuple[int, str]]:
    found = [row for row in corpus.expected(NAME) if row["state"] == "PENDING"]
    return sorted((row["half_commit_log_offset"], row["producer_group"]) for row in found)


def pending_rows() -> list[dict[str, object]]:
    return [{"half_commit_log_offset": offset, "producer_group": group} for offset, group in pending_pairs()]


def table_codes(table: TransactionTable) -> list[str]:
    reading = run_job(Verify(transaction_table=table), plan_splits([opened(NAME)]))
    return [code for code in reading.table()["code"].to_pylist() if code.startswith("table-")]


@pytest.fixture(scope="module")
def derby(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a Derby database `derby`, and `export.csv` of its table."""
    directory = tmp_path_factory.mktemp("derby")
    (directory / "export.csv").write_text(filled_derby(operations(events(opened(NAME))), directory))
    return directory


def test_what_derby_exports_is_what_is_pending(derby: Path) -> None:
    assert (derby / "export.csv").read_text().startswith("OFFSET,PRODUCERGROUP\n")
    table = read_transaction_table(TableAddress(str(derby / "export.csv")), "here")
    assert table.rows.to_pylist() == pending_rows()
    assert table_codes(table) == []


@pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pyspark is not here")
def test_a_table_in_derby_is_read_by_spark_through_jdbc(derby: Path) -> None:
    from rmqtx.spark_tasks.jobs.ledger import read_transaction_table as read_by_spark
    from rmqtx.spark_tasks.session.session import session

    address = TableAddress(f"jdbc:derby:{derby / 'derby'}", "ROOT.T_TRANSACTION")
    said = {"spark.driver.extraJavaOptions": f"-Dderby.stream.error.file={derby / 'spark.log'}"}
    with session("local[1]", None, said) as spark:
        table = read_by_spark(spark, address, "here")
    assert table.rows.to_pylist() == pending_rows()


@thorough
@pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pyspark is not here")
def test_servers_are_read_by_spark_through_their_drivers_as_without_it(tmp_path: Path) -> None:
    """MariaDB's own driver too: Spark would quote its columns as texts."""
    needs_drivers()
    from rmqtx.spark_tasks.jobs.ledger import read_transaction_table as read_by_spark
    from rmqtx.spark_tasks.session.session import session

    jars = ",".join(str(jar(artifact)) for artifact in JDBC_DRIVERS)
    (tmp_path / "mysql").mkdir()
    (tmp_path / "mariadb").mkdir()
    with (
        running(MYSQL, tmp_path / "mysql") as mysql, running(MARIADB_11, tmp_path / "mariadb") as mariadb,
        session("local[1]", None, {"spark.jars": jars}) as spark,
    ):
        for driver, port in (("mysql", mysql), ("mysql", mariadb), ("mariadb", mariadb)):
            url = f"mysql+pymysql://127.0.0.1:{port}/{DATABASE}"
            with as_root(url) as run:
                run("DROP TABLE IF EXISTS `open ones`")
                run("CREATE TABLE `open ones` (`offset` VARCHAR(30), `the group` VARBINARY(64))")
                for row in ((" 17.00", "shop"), ("x", "shop"), ("5", b"\xff"), ("5", None), (None, "shop")):
                    run("INSERT INTO `open ones` VALUES (%s, %s)", row)
            named = ("open ones", "offset", "the group")
            address = TableAddress(f"jdbc:{driver}://127.0.0.1:{port}/{DATABASE}?useSSL=false", *named)
            found = read_by_spark(spark, address, "here", login=LOGIN)
            local = read_transaction_table(TableAddress(url, *named), "here", login=LOGIN)
            assert found.rows == local.rows
            assert found.offsets.tolist() == [5, 17]
            told = [[one.actual for one in table.findings] for table in (found, local)]
            assert told == [["x", "null", "5"]] * 2
        nowhere = TableAddress(f"jdbc:mysql://127.0.0.1:{mysql}/{DATABASE}?useSSL=false")
        with pytest.raises(UnreadableFile, match="t_transaction' doesn't exist"):
            read_by_spark(spark, nowhere, "here", login=LOGIN)


def needs_drivers() -> None:
    for module in ("sqlalchemy", "pymysql"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not here (pip install sqlalchemy pymysql)")


@contextmanager
def as_root(url: str) -> Iterator[Callable[..., object]]:
    """What runs a statement with values, and commits it."""
    import sqlalchemy

    engine = sqlalchemy.create_engine(url.replace("//", f"//{LOGIN[0]}@"))
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            yield connection.exec_driver_sql
    finally:
        engine.dispose()


@pytest.mark.parametrize(
    "server", [pytest.param(MYSQL, id=MYSQL.name), pytest.param(MARIADB_10, id=MARIADB_10.name, marks=thorough)]
)
def test_a_table_that_the_class_filled_is_read_over_the_wire(tmp_path: Path, server: Server) -> None:
    needs_drivers()
    with running(server, tmp_path) as port:
        address = f"jdbc:mysql://127.0.0.1:{port}/{DATABASE}"
        exported = filled("com.mysql.jdbc.Driver", address, operations(events(opened(NAME))), tmp_path)
        assert exported.startswith("offset,producerGroup\n")
        there = TableAddress(f"mysql+pymysql://127.0.0.1:{port}/{DATABASE}")
        assert table_codes(read_transaction_table(there, "here", login=LOGIN)) == []
        assert read_transaction_table(there, "here", login=LOGIN).rows.to_pylist() == pending_rows()


def test_in_mariadb_where_offset_is_reserved_names_are_quoted(tmp_path: Path) -> None:
    needs_drivers()
    import sqlalchemy.exc

    with running(MARIADB_11, tmp_path) as port:
        url = f"mysql+pymysql://127.0.0.1:{port}/{DATABASE}"
        with as_root(url) as run:
            with pytest.raises(sqlalchemy.exc.ProgrammingError):  # transaction.sql, as it was shipped
                run("CREATE TABLE t_transaction(offset NUMERIC(20) PRIMARY KEY, producerGroup VARCHAR(64))")
            for table, offset in (("t_transaction", "offset"), ("open ones", "phy offset")):
                run(f"CREATE TABLE `{table}` (`{offset}` NUMERIC(20) PRIMARY KEY, `group` TEXT)")
                for row in pending_rows():
                    run(f"INSERT INTO `{table}` VALUES (%s, %s)", tuple(row.values()))
                there = TableAddress(url, table, offset, "group")
                assert read_transaction_table(there, "here", login=LOGIN).rows.to_pylist() == pending_rows()


def test_who_may_not_read_is_told_by_the_server_and_no_password_is_shown(tmp_path: Path) -> None:
    needs_drivers()
    with running(MYSQL, tmp_path, asks_for_passwords=True) as port:
        address = TableAddress(f"mysql+pymysql://127.0.0.1:{port}/{DATABASE}")
        with as_root(address.location) as run:
            run("CREATE TABLE t_transaction(offset NUMERIC(20) PRIMARY KEY, producerGroup VARCHAR(64))")
            run("CREATE USER reader@localhost IDENTIFIED BY 'topsecret'")
            run(f"GRANT SELECT ON {DATABASE}.* TO reader@localhost")
        assert read_transaction_table(address, "here", login=("reader", "topsecret")).rows.num_rows == 0
        with pytest.raises(UnreadableFile, match=r"t_transaction: Access denied for user 'reader'") as wrong:
            read_transaction_table(address, "here", login=("reader", "topsecreT"))
        with pytest.raises(BadRequest, match="the driver cannot log in") as unsent:
            read_transaction_table(address, "here", login=("reader", "пароль"))
    for caught in (wrong, unsent):
        assert "\n" not in str(caught.value)
        assert not any(secret in str(caught.value) for secret in ("topsecre", "пароль"))
