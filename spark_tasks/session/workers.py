"""Whether the workers of a session can run the tasks of rmqtx: one sentence names what differs from this machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from rmqtx.spark_tasks.session.errors import SparkUnavailable, translated
from rmqtx.spark_tasks.session.packages import PACKAGES_DIRECTORY, archive_name, are_workers_elsewhere, is_connected
from rmqtx.spark_tasks.session.tasks import cores_count
from rmqtx.spark_tasks.session.worker_facts import NEEDED, Asked, WorkerFacts, restored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The oldest releases that PySpark 4.3 and rmqtx run with.
VERSIONS_MIN = {"pyarrow": (18,), "numpy": (1, 26), "pandas": (2, 2)}
SEND_ADVICE = (
    "send them: rmqtx spark-archive -o env.tar.gz, then --conf spark.archives=env.tar.gz#env "
    "--conf spark.pyspark.python=./env/bin/python"
)
#: Seconds for which a task holds its core, so that each executor gets one; rounds of tasks until all have answered.
HELD_SECONDS = 1.0
_ROUNDS_MAX = 5


def check_workers(spark: SparkSession) -> None:
    """Check that the workers of a cluster or server can run tasks, once for each session.

    Raises: SparkUnavailable, which names what differs there.
    """
    if not are_workers_elsewhere(spark) or spark in _CHECKED:
        return
    found = asked_workers(spark)
    differing = [facts for facts in found.values() if differences(spark, facts)]
    if differing:
        facts = differing[0]
        more = f", and {len(differing) - 1} more" if len(differing) > 1 else ""
        raise SparkUnavailable(
            f"the Python of Spark's workers ({facts.python}, {facts.executable} on {facts.host}{more}) "
            f"{_joined(differences(spark, facts))}",
            advice=SEND_ADVICE,
        )
    _CHECKED.add(spark)


#: The sessions whose workers were checked.
_CHECKED: WeakSet[Any] = WeakSet()


def asked_workers(spark: SparkSession, seconds: float = 0.0) -> dict[tuple[str, int], WorkerFacts]:
    """Return the facts of the workers that got a task, by executor. `seconds`: see `Asked`.

    Raises: SparkUnavailable, also for workers with another minor version of Python.
    """
    from pyspark.sql.functions import udf

    count = cores_count(spark)
    ask = udf(Asked(seconds), "string", useArrow=False)  # workers without pyarrow answer too
    with translated():
        rows = spark.range(0, count, 1, count).select(ask("id").alias("facts")).collect()
    found = (restored(row["facts"]) for row in rows)
    return {facts.executor: facts for facts in found}


def every_worker(spark: SparkSession) -> tuple[dict[tuple[str, int], WorkerFacts], int | None]:
    """Return the facts of a worker of each executor, and the number of executors; None with Spark Connect.

    Order:  of the answers. An executor that got no task in some rounds is missing.
    Raises: SparkUnavailable, also for workers with another minor version of Python.
    """
    found: dict[tuple[str, int], WorkerFacts] = {}
    for _ in range(_ROUNDS_MAX):
        found |= asked_workers(spark, HELD_SECONDS)
        expected = executors_count(spark)
        if expected is None or len(found) >= expected:
            break
    return found, executors_count(spark)


def executors_count(spark: SparkSession) -> int | None:
    """Return the number of executors that are registered; None with Spark Connect, which does not show it."""
    if is_connected(spark):
        return None
    context: Any = spark.sparkContext
    processes = len(context._jsc.sc().statusTracker().getExecutorInfos())  # the driver is one of them
    return max(1, processes - 1) if are_workers_elsewhere(spark) else 1


def differences(spark: SparkSession, facts: WorkerFacts) -> list[str]:
    """Return what stops the workers of an executor from running tasks: ends of a sentence about their Python."""
    return [*_lacking(facts), *_too_old(facts), *_failing(facts), *_other_rmqtx(spark, facts)]


def _lacking(facts: WorkerFacts) -> Iterable[str]:
    lacking = [name for name in NEEDED if facts.versions[name] is None]
    if lacking:
        yield f"has no {_joined(lacking, 'and no')}"


def _too_old(facts: WorkerFacts) -> Iterable[str]:
    for name, least in VERSIONS_MIN.items():
        version = facts.versions[name]
        if version and _numbers(version) < least:
            yield f"has {name} {version} (needed: {'.'.join(map(str, least))} or later)"


def _failing(facts: WorkerFacts) -> Iterable[str]:
    for name, reason in facts.failures.items():
        yield f"cannot import {name} ({reason})"


def _other_rmqtx(spark: SparkSession, facts: WorkerFacts) -> Iterable[str]:
    own = archive_name() if are_workers_elsewhere(spark) else str(PACKAGES_DIRECTORY)
    if facts.origin is None:
        yield "did not get the packages of rmqtx"
    elif own not in facts.origin:
        version = f" {facts.installed}" if facts.installed else ""
        yield f"imports another rmqtx{version}, from {facts.origin}"


def _joined(texts: list[str], word: str = "and") -> str:
    return f" {word} ".join(texts)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version."""
    numbers = []
    for part in version.split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)
