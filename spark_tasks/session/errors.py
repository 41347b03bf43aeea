"""Pass errors from a task to the driver, so that the driver raises the reader's error.

Spark passes an exception of a Python worker to the driver as the text of its traceback. The error is therefore written
into this text, as one line of JSON in a note of the exception, and restored from it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import rmqtx.readers.model.errors
from rmqtx.readers.model.errors import RmqtxError

if TYPE_CHECKING:
    import pyarrow as pa

#: The begin of the line in the traceback from which an error is restored.
MARK = "rmqtx-error: "
_MARKED = re.compile(re.escape(MARK) + r"(\{.*\})")
_FIELDS = ("message", "file", "position_bytes", "field", "expected", "actual", "advice")
_CLASS = re.compile(r'^:?\s*(?:Exception in thread "[^"]*" )?(?:[a-z_]\w*\.)+\w+(?:Exception|Error)\b:?\s*')
_TRACEBACK = "Traceback (most recent call last):"

_OTHER_PYTHON = re.compile(r"Python in worker has different version: ([\d.]+) than that in driver: ([\d.]+)")
_MASTERS = "give --master as local[2], spark://HOST:7077, yarn or k8s://https://HOST:443"
#: Texts in the output of Spark and the JVM for causes outside of rmqtx, with the message and the advice to report.
_CAUSES = (
    ("OutOfMemoryError", "Spark ran out of memory", "add --conf spark.driver.memory=4g"),
    ("No space left on device", "the disk of Spark's temporary folder is full", "give another folder with --temp-dir"),
    ("ExecutorLostFailure", "an executor was lost repeatedly", "see the cluster's log"),
    ("executor heartbeat timed out", "an executor stopped answering", "see the cluster's log"),
    ("Python worker exited unexpectedly", "a Python worker of Spark was killed", "check the machine's free memory"),
    ("Python worker failed to connect back", "Spark could not start a Python worker", None),
    ("All masters are unresponsive", "the Spark master cannot be reached", "check --master"),
    ("Could not parse Master URL", "--master is not a Spark master", _MASTERS),
    ("Master must either be", "--master is not a Spark master", _MASTERS),
    ("No module named 'rmqtx'", "Spark's workers did not get the packages of rmqtx", "see docs/clusters.md"),
    *((words, f"the Python of Spark's workers has no {name}",
       f"install {name} there, or send it with --conf spark.archives: see docs/clusters.md")
      for name, words in (("pyarrow", "No module named 'pyarrow'"), ("pyarrow", "PyArrow >= "),
                          ("numpy", "No module named 'numpy'"), ("pandas", "Pandas >= "))),
    ("No module named 'rmqtx.", "Spark's workers import another package named rmqtx before this one",
     "remove that package from their PYTHONPATH"),
    ("cancelled", "the Spark job was cancelled", None),
)
#: The begins of lines that Spark's start always writes, or writes beside a line with the cause.
_NOISE = (
    "WARNING:", "Setting default log level", "To adjust logging level", "Using Spark's", "Picked up ",
    "Error occurred during initialization of VM", "Error: Could not create the Java Virtual Machine",
    "Error: A fatal exception", "ERROR SparkContext: Error initializing", "An error occurred while calling",
    "at ", ":  at", "...",
)
#: Messages of Py4J and gRPC when the other side has ended.
_LOST = ("Answer from Java side is empty", "Error while sending or receiving", "Connection refused", "UNAVAILABLE",
         "An error occurred while trying to connect to the Java server", "Connection reset by peer")


class SparkUnavailable(RmqtxError):
    """Spark or Java is not installed or too old, or the connection was lost."""

    status = 20


class TaskFailed(Exception):
    """A task failed because of a bug. The text is the last line of its traceback; the cause has the rest."""


@contextmanager
def marked() -> Iterator[None]:
    """In a task: add to errors of readers the line from which `translated` restores them."""
    try:
        yield
    except RmqtxError as error:
        values = {name: getattr(error, name) for name in _FIELDS}
        # ASCII on one line: no text of a store can end the line or begin another.
        error.add_note(MARK + json.dumps({"kind": type(error).__name__, **values}, default=str))
        raise


@contextmanager
def translated() -> Iterator[None]:
    """In the driver: convert Spark's exceptions to errors with one readable line.

    Raises: the error of readers that a task raised, with its file and position; SparkUnavailable if Spark failed;
            TaskFailed for a bug in a task.
    """
    try:
        yield
    except Exception as error:
        if not _is_of_spark(error):
            raise
        raise (_lost() if isinstance(error, ConnectionError | EOFError) else error_of(str(error))) from error


def translated_batches(batches: Iterable[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, None]:
    """In the driver: yield the same batches; see `translated`."""
    with translated():
        yield from batches


def error_of(text: str) -> Exception:
    """Return the error for a text from Spark: the message of its exception with tracebacks."""
    carried = _carried(text)
    if carried is not None:
        return carried
    if found := _OTHER_PYTHON.search(text):
        return SparkUnavailable(
            f"Spark's workers run Python {found[1]}, this machine {found[2]}, and Spark needs the same minor version",
            advice=f"set PYSPARK_PYTHON to a Python {found[2]} of the workers: see docs/clusters.md",
        )
    for words, message, advice in _CAUSES:
        if words in text:
            return SparkUnavailable(message, advice=advice)
    if any(words in text for words in _LOST):
        return _lost()
    if _TRACEBACK in text:
        return TaskFailed(f"in a task of Spark: {_last_line(text)}")
    return SparkUnavailable(f"Spark failed: {_first_line(text)}")


def _is_of_spark(error: Exception) -> bool:
    """Whether PySpark, Py4J, gRPC or the socket between the driver and the JVM raised the error."""
    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return bool(packages & {"pyspark", "py4j", "grpc"}) or isinstance(error, ConnectionError | EOFError)


def _lost() -> SparkUnavailable:
    return SparkUnavailable("the connection to Spark was lost: its process has ended or was killed")


def _carried(text: str) -> RmqtxError | None:
    for match in reversed(list(_MARKED.finditer(text))):
        try:
            values: dict[str, Any] = json.loads(match[1])
            kind = getattr(rmqtx.readers.model.errors, values.pop("kind"), None)
        except (ValueError, KeyError, AttributeError):
            continue
        if isinstance(kind, type) and issubclass(kind, RmqtxError):
            return kind(values.pop("message"), **{name: values.get(name) for name in _FIELDS[1:]})
    return None


def _last_line(text: str) -> str:
    """Return the line of a Python traceback with the exception."""
    lines = text[text.rindex(_TRACEBACK):].splitlines()[1:]
    return next((line.strip() for line in lines if line and not line[0].isspace()), "an unknown error")


def _first_line(text: str) -> str:
    """Return the message of a Java exception, without its class and its stack."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    others = [line for line in lines if not line.startswith(_NOISE)]
    raised = [line for line in others if re.search(r"(Exception|Error)\b", line)]
    return _CLASS.sub("", (raised or others or ["no reason given"])[0])
