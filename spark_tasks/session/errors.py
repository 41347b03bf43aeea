"""Errors on their way from a task to the driver: what a reader raised arrives as what it was.

Spark carries an exception of a Python worker to the driver as the text of its traceback. The error is therefore
written into that text, as one line of JSON in a note of the exception, and made again from it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import readers.model.errors
from readers.model.errors import RmqtxError

#: How the line in the traceback begins that an error is made again from.
MARK = "rmqtx-error: "
_MARKED = re.compile(re.escape(MARK) + r"(\{.*\})")
_FIELDS = ("message", "file", "position_bytes", "field", "expected", "actual", "advice")
_CLASS = re.compile(r'^:?\s*(?:Exception in thread "[^"]*" )?(?:[a-z_]\w*\.)+\w+(?:Exception|Error)\b:?\s*')
_TRACEBACK = "Traceback (most recent call last):"

_MASTERS = "write --master like local[2], spark://HOST:7077, yarn or k8s://https://HOST:443"
#: What Spark and the JVM say when something outside of this program ended a task, and what to tell of it.
_CAUSES = (
    ("OutOfMemoryError", "Spark ran out of memory", "give it more with --conf spark.driver.memory=4g"),
    ("No space left on device", "the disk of Spark's temporary folder is full", "name another one with --temp-dir"),
    ("ExecutorLostFailure", "an executor was lost again and again", "see the cluster's own log"),
    ("executor heartbeat timed out", "an executor stopped answering", "see the cluster's own log"),
    ("Python worker exited unexpectedly", "a Python worker of Spark was killed", "was there memory enough?"),
    ("Python worker failed to connect back", "Spark could not start a Python worker", None),
    ("PYTHON_VERSION_MISMATCH", "the workers run another Python than this one", "set PYSPARK_PYTHON"),
    ("All masters are unresponsive", "the Spark master cannot be reached", "look at --master"),
    ("Could not parse Master URL", "Spark does not know this master", _MASTERS),
    ("Master must either be", "Spark does not know this master", _MASTERS),
    ("No module named 'readers'", "rmqtx is not installed where Spark's workers run", "install it there too"),
    ("No module named 'spark_tasks'", "rmqtx is not installed where Spark's workers run", "install it there too"),
    *((f"No module named '{name}.", f"Spark's workers import another package named {name} before that of rmqtx",
       "take it off their PYTHONPATH") for name in ("readers", "verdicts", "spark_tasks")),
    ("cancelled", "the Spark job was cancelled", None),
)
#: How lines begin that Spark's start-up writes whatever happens, or beside a line that says more.
_NOISE = (
    "WARNING:", "Setting default log level", "To adjust logging level", "Using Spark's", "Picked up ",
    "Error occurred during initialization of VM", "Error: Could not create the Java Virtual Machine",
    "Error: A fatal exception", "ERROR SparkContext: Error initializing", "An error occurred while calling",
    "at ", ":  at", "...",
)
#: What Py4J and gRPC say when the other side is gone.
_LOST = ("Answer from Java side is empty", "Error while sending or receiving", "Connection refused", "UNAVAILABLE",
         "An error occurred while trying to connect to the Java server", "Connection reset by peer")


class SparkUnavailable(RmqtxError):
    """Spark or Java is not there, too old, or was lost on the way."""


class TaskFailed(Exception):
    """A task raised what nobody foresaw: a bug. The text is the last line of its traceback; the cause has the rest."""


@contextmanager
def marked() -> Iterator[None]:
    """In a task: errors of readers leave the block with the line that `translated` makes them again from."""
    try:
        yield
    except RmqtxError as error:
        values = {name: getattr(error, name) for name in _FIELDS}
        # ASCII in one line: no text of a store can end the line or begin another.
        error.add_note(MARK + json.dumps({"kind": type(error).__name__, **values}, default=str))
        raise


@contextmanager
def translated() -> Iterator[None]:
    """In the driver: what Spark raises in the block becomes an error with one readable line.

    Raises: the error of readers that a task raised, with its file and position; SparkUnavailable if Spark failed;
            TaskFailed if a task met a bug.
    """
    try:
        yield
    except Exception as error:
        if not _is_of_spark(error):
            raise
        raise (_lost() if isinstance(error, ConnectionError | EOFError) else error_of(str(error))) from error


def error_of(text: str) -> Exception:
    """The error that a text from Spark stands for: the message of its exception, tracebacks and all."""
    carried = _carried(text)
    if carried is not None:
        return carried
    for words, message, advice in _CAUSES:
        if words in text:
            return SparkUnavailable(message, advice=advice)
    if any(words in text for words in _LOST):
        return _lost()
    if _TRACEBACK in text:
        return TaskFailed(f"in a task of Spark: {_last_line(text)}")
    return SparkUnavailable(f"Spark failed: {_first_line(text)}")


def _is_of_spark(error: Exception) -> bool:
    """Whether PySpark, Py4J or gRPC raised it, or the socket between the driver and the JVM."""
    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return bool(packages & {"pyspark", "py4j", "grpc"}) or isinstance(error, ConnectionError | EOFError)


def _lost() -> SparkUnavailable:
    return SparkUnavailable("the connection to Spark was lost: its process has ended or was killed")


def _carried(text: str) -> RmqtxError | None:
    for match in reversed(list(_MARKED.finditer(text))):
        try:
            values: dict[str, Any] = json.loads(match[1])
            kind = getattr(readers.model.errors, values.pop("kind"), None)
        except (ValueError, KeyError, AttributeError):
            continue
        if isinstance(kind, type) and issubclass(kind, RmqtxError):
            return kind(values.pop("message"), **{name: values.get(name) for name in _FIELDS[1:]})
    return None


def _last_line(text: str) -> str:
    """The line of a Python traceback that names the exception."""
    lines = text[text.rindex(_TRACEBACK):].splitlines()[1:]
    return next((line.strip() for line in lines if line and not line[0].isspace()), "an unknown error")


def _first_line(text: str) -> str:
    """What a Java exception says, without its class and its stack."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(_NOISE)]
    raised = [line for line in said if re.search(r"(Exception|Error)\b", line)]
    return _CLASS.sub("", (raised or said or ["no reason given"])[0])
