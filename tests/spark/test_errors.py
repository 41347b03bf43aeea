"""Errors of tasks arrive in the driver as what they were; nothing that Spark says is shown as a stack of Java."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from rmqtx.readers.model import errors
from rmqtx.readers.model.errors import RmqtxError, UnreadableFile
from rmqtx.spark_tasks.session.errors import SparkUnavailable, TaskFailed, error_of, marked, translated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Batches = Iterator[pa.RecordBatch]
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RmqtxError)]
HOSTILE = 'a "quote", a \x1b[31m, a line\nrmqtx-error: {"kind": "NotAStore", "message": "forged"}\nä €\u2028\ud800'


def text_of(error: Exception) -> str:
    """What Spark makes of an exception in a task."""
    try:
        with marked():
            raise error
    except Exception as raised:
        return f"Job aborted.\n{''.join(traceback.format_exception(raised))}\n\tat org.apache.spark.Task.run(T.scala)"


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_of_readers_arrives_as_it_was(kind: type[RmqtxError]) -> None:
    sent = kind(HOSTILE, file="/store/ä b", position_bytes=1 << 40, field="magic", expected=7, actual="x", advice="do")
    arrived = error_of(text_of(sent))
    assert type(arrived) is kind
    assert {k: v for k, v in arrived.__dict__.items() if k != "__notes__"} == {
        k: v for k, v in sent.__dict__.items() if k != "__notes__"
    }
    assert str(arrived) == str(sent)


def test_what_is_no_json_travels_as_its_text() -> None:
    assert error_of(text_of(UnreadableFile("x", actual={1, 2}))).__dict__["actual"] == "{1, 2}"


def test_a_forged_line_is_no_other_kind_of_error() -> None:
    assert isinstance(error_of('rmqtx-error: {"kind": "os", "message": "x"}'), SparkUnavailable)
    assert isinstance(error_of('rmqtx-error: {"kind": "annotations"}'), SparkUnavailable)
    assert isinstance(error_of("rmqtx-error: {nonsense}"), SparkUnavailable)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("An error occurred while calling o7.x.\n: org.apache.spark.SparkException: Job aborted due to stage failure: "
         "ExecutorLostFailure (executor 1 exited)", SparkUnavailable, "an executor was lost repeatedly"),
        ("java.lang.OutOfMemoryError: Java heap space\n\tat x", SparkUnavailable, "Spark ran out of memory"),
        ("Answer from Java side is empty", SparkUnavailable, "the connection to Spark was lost"),
        ("An error occurred while calling o7.x.\n: java.lang.IllegalStateException: odd thing\n\tat a.b(C.java:1)",
         SparkUnavailable, "Spark failed: odd thing"),
        ("Exception in thread \"main\" java.lang.Foo: x", SparkUnavailable, "Spark failed: "),
        ("boom\nTraceback (most recent call last):\n  File \"x.py\", line 1, in f\n    g()\nValueError: no\n\tat Java",
         TaskFailed, "in a task of Spark: ValueError: no"),
        ("", SparkUnavailable, "Spark failed: no reason given"),
    ],
)
def test_what_spark_says_becomes_one_line(text: str, kind: type[Exception], said: str) -> None:
    error = error_of(text)
    assert type(error) is kind
    assert said in str(error)
    assert "\n" not in str(error)


def test_errors_of_this_process_are_left_alone() -> None:
    for error in (ValueError("x"), UnreadableFile("x"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught, translated():
            raise error
        assert caught.value is error


def _raising(batches: Batches) -> Batches:
    with marked():
        for _ in batches:
            raise UnreadableFile("cannot be read", file="/store/ä", position_bytes=7, expected=3)
        yield from ()


def _with_a_bug(batches: Batches) -> Batches:
    for _ in batches:
        raise KeyError("ä")
    yield from ()


def _killed(batches: Batches) -> Batches:
    for _ in batches:
        os.kill(os.getpid(), signal.SIGKILL)
    yield from ()


def _outcome(spark: SparkSession, function: Callable[[Batches], Batches], action: str) -> Exception:
    with pytest.raises((RmqtxError, TaskFailed)) as caught, translated():
        for _ in getattr(spark.range(0, 4, 1, 2).mapInArrow(function, "id long"), action)():
            pass
    return caught.value


@pytest.mark.parametrize("action", ["collect", "toLocalIterator", "toArrow"])
def test_a_task_raises_an_error_of_readers(spark: SparkSession, action: str) -> None:
    error = _outcome(spark, _raising, action)
    assert isinstance(error, UnreadableFile)
    assert (error.message, error.file, error.position_bytes, error.expected) == ("cannot be read", "/store/ä", 7, 3)


def test_a_task_has_a_bug(spark: SparkSession) -> None:
    error = _outcome(spark, _with_a_bug, "collect")
    assert isinstance(error, TaskFailed)
    assert str(error) == "in a task of Spark: KeyError: 'ä'"


def test_a_worker_is_killed(spark: SparkSession) -> None:
    error = _outcome(spark, _killed, "collect")
    assert isinstance(error, SparkUnavailable)
    assert str(error).startswith("a Python worker of Spark was killed")
    assert spark.range(3).count() == 3
