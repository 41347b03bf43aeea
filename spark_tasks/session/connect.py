"""A session of a Spark Connect server: the driver is on the server, and rmqtx's packages are sent to its workers."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from rmqtx.readers.jobs.signals import interruptible
from rmqtx.readers.storage.temporary import RunFolder
from rmqtx.spark_tasks.session.errors import SparkUnavailable, translated
from rmqtx.spark_tasks.session.packages import send_packages

#: Requirements of PySpark's client of Spark Connect: a module, and the package that contains it.
_NEEDED = {"grpc": "grpcio", "grpc_status": "grpcio-status", "google.rpc": "googleapis-common-protos",
           "zstandard": "zstandard"}
_PORT = 15002
_ARCHIVES, _PYTHON = "spark.archives", "spark.pyspark.python"
#: Settings of a cluster's driver that Spark Connect has as calls.
_SENT_LATER = (_ARCHIVES, _PYTHON)
_REACH_SECONDS_MAX = 10


@contextmanager
def remote_session(url: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """Open a session of the server at `sc://HOST:PORT`, which ends with the block.

    The server's workers need pyarrow and numpy; rmqtx is sent to them.
    Raises: SparkUnavailable if packages are missing, or the server does not answer.
    """
    lacking = [package for module, package in _NEEDED.items() if not _is_installed(module)]
    if lacking:
        raise SparkUnavailable(
            f"Spark Connect needs {', '.join(lacking)} on this machine", advice="pip install 'rmqtx[connect]'"
        )
    if not url.startswith("sc://"):
        raise SparkUnavailable(f"{url!r} is not a Spark Connect address", advice="give an address like sc://HOST:15002")
    _reach(url)
    builder = SparkSession.builder.remote(url)
    for name, value in conf.items():
        if name not in _SENT_LATER:
            builder = builder.config(name, value)
    with interruptible(), RunFolder("spark") as folder:
        spark = builder.getOrCreate()
        try:
            _send_environment(spark, conf)
            send_packages(spark, Path(folder))
            yield spark
        except KeyboardInterrupt:
            spark.interruptAll()
            raise
        finally:
            spark.stop()


def _send_environment(spark: SparkSession, conf: Mapping[str, str]) -> None:
    """Send archives of Python packages to the server, and name the Python that its workers run.

    Raises: SparkUnavailable for an archive that is not a file.
    """
    for archive in filter(None, conf.get(_ARCHIVES, "").split(",")):
        file = Path(archive.partition("#")[0])
        if not file.is_file():
            raise SparkUnavailable(f"--conf {_ARCHIVES}: {file} is not a file")
        with translated():
            spark.addArtifacts(archive, archive=True)
    if python := conf.get(_PYTHON):
        spark.conf.set("spark.sql.execution.pyspark.python", python)


def _reach(url: str) -> None:
    """Check that the port is open: PySpark would retry for 10 minutes."""
    if any(name.lower() in ("grpc_proxy", "https_proxy", "http_proxy") for name in os.environ):
        return  # gRPC may use the proxy
    server = urlsplit(url)
    try:
        with socket.create_connection((server.hostname or "localhost", server.port or _PORT), _REACH_SECONDS_MAX):
            pass
    except (OSError, ValueError) as error:
        raise SparkUnavailable(f"no Spark Connect server answers at {server.hostname}: {error}") from error


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False
