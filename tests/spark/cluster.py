"""A standalone cluster of Spark on this machine: a master and workers as processes, with a Python of their own."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from rmqtx.spark_tasks.session.java import find_java

_START_SECONDS_MAX = 300
#: What Spark's own scripts give a JVM: its parts read fields of Java's classes.
_OPENED = [
    "-XX:+IgnoreUnrecognizedVMOptions", "-Dio.netty.tryReflectionSetAccessible=true",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in (
        "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
        "java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch", "sun.nio.cs", "sun.security.action",
        "sun.util.calendar",
    )),
]
#: What a worker's Python needs; rmqtx is sent to it.
_NEEDED = ("pyarrow", "numpy", "pandas", "dateutil", "six", "pytz", "tzdata")


def bare_python(folder: Path) -> Path:
    """A Python with pyarrow, numpy and pandas, and without rmqtx."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for name in _NEEDED:
        if (spec := find_spec(name)) is None or spec.origin is None:
            continue
        origin = Path(spec.origin)
        place = origin.parent if spec.submodule_search_locations else origin
        for entry in (place, *place.parent.glob(f"{name}*.libs")):
            (site / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


@contextmanager
def cluster(folder: Path, workers_count: int = 2) -> Iterator[str]:
    """The URL of the master of a cluster whose workers have one core each; its processes end with the block."""
    with ExitStack() as stack:
        master = stack.enter_context(_process(folder, "master", "Master", "--host", "127.0.0.1", "--port", "0"))
        url = _line(master, r"Starting Spark master at (spark://\S+)")
        for number in range(workers_count):
            worker = stack.enter_context(_process(
                folder, f"worker{number}", "Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g",
                "--work-dir", str(folder / f"work{number}"), url,
            ))
            _line(worker, r"(Successfully registered) with master")
        yield url


@contextmanager
def connect_server(folder: Path, master: str, python: Path) -> Iterator[str]:
    """The address of a Spark Connect server, whose workers run this Python; it ends with the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false", "spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "3",
        "spark.sql.warehouse.dir": f"file:{folder}/warehouse", "spark.local.dir": str(folder / "local"),
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    }
    conf = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    program = ("org.apache.spark.deploy.SparkSubmit", "--master", master, *conf, "--class",
               "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal")
    with _started(folder, "connect", *program, PYSPARK_PYTHON=str(python), TMPDIR=str(folder)) as log:
        _line(log, r"(Spark Connect server started)")
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def _process(folder: Path, name: str, kind: str, *arguments: str) -> Iterator[Path]:
    """A process of the cluster; the file that it logs into."""
    program = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
    with _started(folder, name, program, *arguments, "--webui-port", "0") as log:
        yield log


@contextmanager
def _started(folder: Path, name: str, *program: str, **variables: str) -> Iterator[Path]:
    """A JVM of Spark; the file that it logs into."""
    import pyspark

    home = Path(pyspark.__file__).parent
    java = find_java()
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))
    }
    # A Spark from PyPI lacks the file from which a worker would learn its version of Scala.
    environment |= {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": "2.13"}
    environment |= _texts(java.environment(folder)) | variables
    log = folder / f"{name}.log"
    command = [str(java.executable), "-Xmx512m", *_OPENED, "-cp", f"{home}/jars/*", *program]
    with log.open("wb") as stream, subprocess.Popen(command, env=environment, stdout=stream, stderr=stream) as process:
        try:
            yield log
        finally:
            process.terminate()
            process.wait()


def _texts(values: dict[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def _line(log: Path, pattern: str) -> str:
    """What a process logs when it is ready."""
    end = time.monotonic() + _START_SECONDS_MAX
    while time.monotonic() < end:
        if found := re.search(pattern, log.read_text(errors="replace")):
            return found[1]
        time.sleep(0.2)
    raise AssertionError(log.read_text(errors="replace")[-2000:])
