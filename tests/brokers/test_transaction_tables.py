"""Tables that the brokers' own class filled, in Derby and in real servers of MySQL and MariaDB, read, held against the
log, and changed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from readers.jobs.job_runner import run_job
from readers.log.commit_log import scan_records
from readers.log.splits import plan_splits
from readers.model.errors import BadRequest, StoreChanged, UnreadableFile, UnwritableFile
from readers.old_tables.transaction_table import TableAddress, TransactionTable, read_transaction_table
from readers.store.store import Store
from repairs.receipts.journal import Journal
from repairs.transaction_table import changes
from repairs.transaction_table.changes import apply_steps, standing_of_rows, undo_steps
from repairs.transaction_table.plan import TablePlan, TableStep
from repairs.transaction_table.receipts import TableReceipt
from repairs.transaction_table.rows import kept_without_transactions
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
from verdicts.verify.verify import Verify

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
    from spark_tasks.jobs.transaction_table import read_transaction_table as read_by_spark
    from spark_tasks.session.session import session

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
    from spark_tasks.jobs.transaction_table import read_transaction_table as read_by_spark
    from spark_tasks.session.session import session

    jars = ",".join(str(jar(artifact)) for artifact in JDBC_DRIVERS)
    (tmp_path / "mysql").mkdir()
    (tmp_path / "mariadb").mkdir()
    with (
        running(MYSQL, tmp_path / "mysql") as mysql, running(MARIADB_11, tmp_path / "mariadb") as mariadb,
        session("local[1]", None, {"spark.jars": jars}) as spark,
    ):  # fmt: skip
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


def changed_and_back(address: TableAddress, directory: Path) -> None:
    """Have a row go and another come in a table of the pending ones, and have it back."""
    table = read_transaction_table(address, "here", login=LOGIN)
    assert table.rows.to_pylist() == pending_rows()
    steps = (TableStep("delete", int(table.offsets[0]), "shop", ""), TableStep("add", 1, "shop", ""))
    apply_steps(steps, address, LOGIN, directory / "rows.undo", 0)
    changed = read_transaction_table(address, "here", login=LOGIN).offsets.tolist()
    assert changed == [1, *table.offsets.tolist()[1:]]
    assert undo_steps((directory / "rows.undo").read_text(), "undo", LOGIN) == (address, 2)
    assert read_transaction_table(address, "here", login=LOGIN).rows == table.rows


@pytest.mark.parametrize(
    "server", [pytest.param(MYSQL, id=MYSQL.name), pytest.param(MARIADB_10, id=MARIADB_10.name, marks=thorough)]
)
def test_a_table_that_the_class_filled_is_read_and_changed_over_the_wire(tmp_path: Path, server: Server) -> None:
    needs_drivers()
    with running(server, tmp_path) as port:
        address = f"jdbc:mysql://127.0.0.1:{port}/{DATABASE}"
        exported = filled("com.mysql.jdbc.Driver", address, operations(events(opened(NAME))), tmp_path)
        assert exported.startswith("offset,producerGroup\n")
        there = TableAddress(f"mysql+pymysql://127.0.0.1:{port}/{DATABASE}")
        assert table_codes(read_transaction_table(there, "here", login=LOGIN)) == []
        changed_and_back(there, tmp_path)
        assert kept_without_transactions(there, LOGIN) is None
        with as_root(there.location) as run:
            run("ALTER TABLE t_transaction ENGINE=MyISAM")
        assert kept_without_transactions(there, LOGIN) == "MyISAM"


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
                (tmp_path / table).mkdir()
                changed_and_back(TableAddress(url, table, offset, "group"), tmp_path / table)


#: Where a process is killed, and whether the rows are changed then.
INSTANTS = {
    "begun": ("write_undo", 1, False), "row-1": ("_make", 1, False), "row-3": ("_make", 3, False),
    "row-4": ("_make", 4, False), "proof": ("_prove", 1, True), "ended": ("end", 1, True),
}  # fmt: skip


def killed(act: Callable[[], None], instant: str) -> None:
    """Have a process begin to change rows, and kill it where it is about to do something for the nth time."""
    name, number, _ = INSTANTS[instant]
    child = os.fork()
    if child == 0:  # nothing of pytest's goes on here
        calls = 0
        place: Any = Journal if name == "end" else changes
        real = getattr(place, name)

        def dying(*given: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given, **named)

        setattr(place, name, dying)
        try:
            act()
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


def aged_table(run: Callable[..., object]) -> None:
    """A table without two of the pending rows, and with two that no transaction has any more."""
    run("DROP TABLE IF EXISTS t_transaction")
    run("CREATE TABLE t_transaction(`offset` NUMERIC(20) PRIMARY KEY, producerGroup VARCHAR(64), more DATETIME)")
    rows = [*pending_pairs()[2:], (5, "shop"), (6, None)]
    for row in rows:
        run("INSERT INTO t_transaction VALUES (%s, %s, '2016-02-29 12:00:00')", row)


def everything(run: Callable[..., Any]) -> list[tuple[object, ...]]:
    return [tuple(row) for row in run("SELECT * FROM t_transaction ORDER BY 1")]


@thorough
@pytest.mark.parametrize("server", [MYSQL, MARIADB_11], ids=lambda server: server.name)
def test_a_process_that_is_killed_leaves_all_rows_or_none_and_both_ways_lead_on(tmp_path: Path, server: Server) -> None:
    needs_drivers()
    added = [TableStep("add", offset, group, "") for offset, group in pending_pairs()[:2]]
    steps = (TableStep("delete", 5, "shop", ""), TableStep("delete", 6, None, ""), *added)
    with running(server, tmp_path) as port:
        address = TableAddress(f"mysql+pymysql://127.0.0.1:{port}/{DATABASE}")
        with as_root(address.location) as run:
            for instant, (_, _, is_changed) in INSTANTS.items():
                aged_table(run)
                before = everything(run)
                journal, undo = Journal(tmp_path / instant / "receipts.jsonl"), tmp_path / instant / "undo"
                plan = TablePlan("/some/store", address, steps)

                def act(journal: Journal = journal, undo: Path = undo, plan: TablePlan = plan) -> None:
                    receipt = TableReceipt(journal, plan, file="plan", text="", reason=None)
                    with receipt.ended(LOGIN):
                        apply_steps(
                            steps, address, LOGIN, undo, 0, receipts=(receipt.receipt.receipt_id,), begun=receipt.begin
                        )

                journal.prepare()
                killed(act, instant)
                assert standing_of_rows(steps, address, LOGIN) == ("after" if is_changed else "before"), instant
                assert [one.outcome for one in journal.read().receipts] == ["unknown"] * (instant != "begun")
                if undo.exists():
                    undo_steps(undo.read_text(), "undo", LOGIN)
                    assert everything(run) == before, instant
                act()
                assert [row[:2] for row in everything(run)] == pending_pairs()
                undo_steps(undo.read_text(), "undo", LOGIN)
                assert everything(run) == before, instant


@thorough
@pytest.mark.parametrize("server", [MYSQL, MARIADB_11], ids=lambda server: server.name)
def test_of_two_plans_at_once_one_is_carried_out(tmp_path: Path, server: Server) -> None:
    """The second waits for the first, and then finds the rows changed; where both want one row in it is the database
    that refuses.
    """
    needs_drivers()
    plans = ((TableStep("delete", 5, "shop", ""),), (TableStep("add", 7, "shop", ""),))
    with running(server, tmp_path) as port:
        address = TableAddress(f"mysql+pymysql://127.0.0.1:{port}/{DATABASE}")
        with as_root(address.location) as run:
            for number, steps in enumerate(plans):
                aged_table(run)
                both = threading.Barrier(2, timeout=20)

                def one(name: str, steps: tuple[TableStep, ...] = steps, both: threading.Barrier = both) -> str:
                    with contextlib.suppress(threading.BrokenBarrierError):
                        both.wait()
                    try:
                        apply_steps(steps, address, LOGIN, tmp_path / name, 0)
                    except (StoreChanged, UnwritableFile) as error:
                        return type(error).__name__
                    return "done"

                with ThreadPoolExecutor(2) as pool:
                    outcomes = sorted(pool.map(one, (f"{number}-first", f"{number}-second")))
                assert outcomes[-1] == "done"
                assert outcomes[0] in ("StoreChanged", "UnwritableFile")
                there = [row[0] for row in everything(run)]
                assert (5 not in there, 7 in there) == (number == 0, number == 1)


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
        step = TableStep("add", 1, "shop", "")
        with pytest.raises(UnwritableFile, match="command denied to user 'reader'") as denied:
            apply_steps((step,), address, ("reader", "topsecret"), tmp_path / "rows.undo", 0)
        with pytest.raises(BadRequest, match="its driver cannot log in") as unsent:
            read_transaction_table(address, "here", login=("reader", "пароль"))
    for caught in (wrong, denied, unsent):
        assert "\n" not in str(caught.value)
        assert not any(secret in str(caught.value) for secret in ("topsecre", "пароль"))
