"""Start a Spark driver: a JVM on this machine, without output, that leaves no files when it ends."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from rmqtx.readers.jobs.signals import interruptible, uninterrupted
from rmqtx.readers.storage.temporary import folder_prefix, temporary_files_in
from rmqtx.spark_tasks.session.errors import error_of
from rmqtx.spark_tasks.session.java import find_java
from rmqtx.spark_tasks.session.packages import PACKAGES_DIRECTORY, is_local, send_packages

_LOG_CONFIGURATION = Path(__file__).with_name("log4j2.properties")
#: How long a JVM may take to end and to remove its files before it is killed.
_END_SECONDS_MAX = 20
_REMOVALS_MAX = 20
_REMOVAL_SECONDS = 0.25
_GIB = 1 << 30


@contextmanager
def own_session(master: str, conf: Mapping[str, str], temporary_directory: str | None) -> Iterator[SparkSession]:
    """Open a session whose JVM, workers and files exist as long as the block.

    Raises: SparkUnavailable if Java is missing, or Spark does not start.
    """
    java = find_java()
    with interruptible(), quiet_gateway(), _private_folder(temporary_directory) as folder, ExitStack() as stack:
        # Variables for the JVM to inherit; when it runs, this process restores its own.
        with _environment_set({**_environment(master, conf, folder), **java.environment(folder)}):
            gateway = stack.enter_context(_gateway({**driver_settings(master, folder), **conf}, folder))
            spark = _session_of(gateway, folder)
        send_packages(spark, folder)
        yield spark


def driver_settings(master: str, folder: Path) -> dict[str, str]:
    """Return the settings of a driver started by rmqtx; settings of --conf override them."""
    found = {
        "spark.master": master,
        "spark.app.name": "rmqtx",
        "spark.submit.deployMode": "client",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": f"{_driver_memory_bytes() >> 20}m",
        "spark.driver.maxResultSize": "0",
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile={_LOG_CONFIGURATION.as_uri()} -Djava.io.tmpdir={folder} -XX:-UsePerfData "
            # The JVM plans and moves bytes, and Python computes: code that is optimized twice costs 10 core-seconds,
            # a third of an audit of 700 MB, and saves none.
            # With this setting a JVM has room for 48 MB of compiled code, and Spark generates code for each query: a
            # session of three hundred queries filled 47.6 MB. 240 MB are a JVM's room without it.
            "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
        ),
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": f"file:{folder}/warehouse",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
    }
    if is_local(master):
        found |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return found


def _driver_memory_bytes() -> int:
    """Return the driver's memory: a quarter of the machine's, within limits; the workers need more than the JVM."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(_GIB, min(total // 4, 8 * _GIB))


def _environment(master: str, conf: Mapping[str, str], folder: Path) -> dict[str, str | None]:
    """Return the variables that the JVM and its workers inherit; None removes one."""
    # PySpark reads the setting only from spark-submit, and the variable here.
    python = conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    found: dict[str, str | None] = {
        "PYSPARK_PYTHON": sys.executable if is_local(master) or python is None else python,
        "PYSPARK_SUBMIT_ARGS": None,  # a notebook's; all options are passed as settings
        "PYSPARK_PIN_THREAD": None,
        "SPARK_REMOTE": None,
        "SPARK_CONNECT_MODE_ENABLED": None,
        "SPARK_API_MODE": None,
        "TMPDIR": str(folder),
        # A worker's working directory is the user's: a file there must not be imported as a module.
        "PYTHONSAFEPATH": "1",
    }
    if is_local(master):
        found["SPARK_LOCAL_IP"] = "127.0.0.1"
    installed = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    if str(PACKAGES_DIRECTORY) not in installed:  # a source checkout
        found["PYTHONPATH"] = os.pathsep.join(
            [str(PACKAGES_DIRECTORY), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
    return found


@contextmanager
def quiet_gateway() -> Iterator[None]:
    """Suppress Py4J's traceback on an interrupt or when the JVM has ended; the exception is still raised."""

    def is_of_another(record: logging.LogRecord) -> bool:
        return "py4j" not in Path(record.pathname).parts

    own = logging.getLogger("py4j")
    level = own.level
    logging.root.addFilter(is_of_another)  # some modules of Py4J log to the root logger, others to their own
    own.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        own.setLevel(level)
        logging.root.removeFilter(is_of_another)


@contextmanager
def _private_folder(directory: str | None) -> Iterator[Path]:
    """Return a folder that is removed when its last writer has ended, also for temporary files of this process."""
    folder = Path(tempfile.mkdtemp(prefix=folder_prefix("spark", directory), dir=directory)).resolve()
    try:
        with temporary_files_in(str(folder)):
            yield folder
    finally:
        for _ in range(_REMOVALS_MAX):  # a worker that is ending may still write
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
            time.sleep(_REMOVAL_SECONDS)


@contextmanager
def _environment_set(values: Mapping[str, str | None]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    _set_environment(values)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def _gateway(conf: Mapping[str, str], folder: Path) -> Iterator[Any]:
    """Start the JVM and open a gateway. When its stdin is closed, it stops its jobs and workers and removes files.

    No call is made at the end, because after an interrupt the JVM may still be answering another call.
    """
    before = SparkContext._gateway, SparkContext._jvm
    gateway = None
    try:
        with uninterrupted():  # a JVM that is starting cannot be ended
            gateway = _launched(conf, folder)
        # A JVM without a session in this process was not started by rmqtx: it is set aside until ours has ended.
        SparkContext._gateway = SparkContext._jvm = None
        yield gateway
    finally:
        with uninterrupted():
            if gateway is not None:
                _end(gateway)
            SparkContext._gateway, SparkContext._jvm = before


def _launched(conf: Mapping[str, str], folder: Path) -> Any:
    with _log_file(folder) as log:
        try:
            settings = SparkConf(loadDefaults=False).setAll(list(conf.items()))
            return launch_gateway(settings, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        except PySparkException as error:
            raise _failed(folder, error) from error


@contextmanager
def _log_file(folder: Path) -> Iterator[Any]:
    """Return the file for output of the JVM and its workers; stderr if tracebacks are requested."""
    if os.environ.get("RMQTX_DEBUG"):
        yield sys.stderr
        return
    with (folder / "spark.log").open("ab") as log:
        yield log


def _failed(folder: Path, error: Exception) -> Exception:
    """Return the reason why Spark did not start, from the output of its JVM and the error of PySpark."""
    log = folder / "spark.log"
    written = log.read_text(errors="replace") if log.exists() else ""
    return error_of(f"{written}\n{error}" if isinstance(error, Py4JError) else written)


def _session_of(gateway: Any, folder: Path) -> SparkSession:
    before = signal.getsignal(signal.SIGINT)
    try:
        context = SparkContext(gateway=gateway, conf=_given_conf(gateway))
        session = SparkSession(context)
    except Py4JError as error:
        raise _failed(folder, error) from error
    # PySpark's server for accumulators, which rmqtx does not use, prints a traceback if the JVM is killed.
    setattr(context._accumulatorServer, "handle_error", lambda *_: None)  # noqa: B010  # mypy: it is a method
    # PySpark's handler calls the JVM in the middle of another call.
    with contextlib.suppress(ValueError):  # not in the main thread, so PySpark has set no handler
        signal.signal(signal.SIGINT, before)
    return session


def _given_conf(gateway: Any) -> Any:
    return SparkConf(_jvm=gateway.jvm)


def _end(gateway: Any) -> None:
    """End the JVM and reset PySpark's state, so that another JVM can be started."""
    context = SparkContext._active_spark_context
    if context is not None:
        context._jsc = None  # so that it stops its local parts and does not call the JVM
        context.stop()
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(_END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
    gateway.shutdown()
    SparkSession._instantiatedSession = None
