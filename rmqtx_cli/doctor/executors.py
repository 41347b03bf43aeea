"""Examine Spark's executors: one task for each reports its Python, its packages, and whether it reads the stores."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqtx.readers.model.errors import RmqtxError
from rmqtx.spark_tasks.jobs.stores_seen import StoreSeen, store_seen, stores_seen
from rmqtx.spark_tasks.session.packages import is_connected
from rmqtx.spark_tasks.session.worker_facts import USEFUL, WorkerFacts, facts_here
from rmqtx.spark_tasks.session.workers import SEND_ADVICE, differences, every_worker
from rmqtx_cli.doctor.here import credentials_text, store_text
from rmqtx_cli.pages.installation import HERE, Part, note, ok, problem
from rmqtx_cli.sources.engines import spark_session
from rmqtx_cli.words.text import count, size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmqtx_cli.options.engine import EngineOptions


def parts_of_executors(options: EngineOptions, stores: Sequence[str]) -> Iterator[Part]:
    """Yield the parts of a session of Spark and of its executors; what fails is a part too.

    `stores`: places that each executor must be able to read.
    """
    began = time.monotonic()
    try:
        with spark_session(options, is_checked=False) as spark:
            yield ok(HERE, "Spark", f"{_session_text(spark)}, started in {time.monotonic() - began:.0f} s")
            yield from _executors(spark, stores)
    except RmqtxError as error:
        yield problem(HERE, "Spark", error.message, error.advice)


def _session_text(spark: SparkSession) -> str:
    if is_connected(spark):
        return f"{spark.version}, Spark Connect"
    context: Any = spark.sparkContext
    return f"{spark.version}, master {context.master}, application {context.applicationId}"


def _executors(spark: SparkSession, stores: Sequence[str]) -> Iterator[Part]:
    found, expected = every_worker(spark)
    yield _answers(len(found), expected)
    are_able = True
    for facts in found.values():
        place = _place(facts)
        differing = differences(spark, facts)
        are_able = are_able and not differing
        yield ok(place, "Python", f"{facts.python}, {facts.executable}, {facts.platform}")
        for text in differing:
            yield problem(place, "packages", f"its Python {text}", SEND_ADVICE)
        if not differing:
            yield ok(place, "packages", _packages_text(facts))
        yield from _lesser(place, facts)
    if stores and not are_able:
        yield note(HERE, "stores", "not read by the executors: their packages come first")
    elif stores:
        yield from _stores(spark, stores, [*found])


def _place(facts: WorkerFacts) -> str:
    return f"executor {facts.host}:{facts.parent}"


def _answers(answered: int, expected: int | None) -> Part:
    if expected is None:
        return note(HERE, "executors", f"{answered} answered; Spark Connect does not show how many there are")
    text = f"{answered} of {count(expected, 'executor')} answered"
    if answered < expected:
        return problem(HERE, "executors", text, "run it again when the cluster has free cores")
    return ok(HERE, "executors", text)


def _packages_text(facts: WorkerFacts) -> str:
    names = [f"{name} {version}".strip() for name, version in facts.versions.items() if version is not None]
    place = Path(facts.origin or "").parent.parent
    sent = f"rmqtx from {place.name if place.suffix == '.zip' else place}"
    return ", ".join([*names, sent])


def _lesser(place: str, facts: WorkerFacts) -> Iterator[Part]:
    """Yield what stops nothing: an old rmqtx, optional packages, the machine."""
    here = facts_here()
    for name in USEFUL:
        if facts.versions[name] is None and here.versions[name] is not None:
            without = "scans are slower" if name == "numba" else "stores in RocksDB cannot be read"
            yield note(place, name, f"not installed there, as it is here; {without}", "rmqtx spark-archive has it")
    if facts.installed is not None and facts.installed != here.installed:
        yield note(place, "rmqtx", f"{facts.installed} is installed there too; tasks import the one that was sent")
    free = "unknown free space" if facts.free_bytes is None else f"{size(facts.free_bytes)} free"
    yield ok(
        place, "machine", f"{count(facts.cores_count, 'core')}, {size(facts.memory_bytes)} of memory, "
        f"{facts.temporary_directory} with {free}",
    )
    lacking = [name for name in here.credentials if name.isupper() and name not in facts.credentials]
    text = credentials_text(list(facts.credentials))
    if lacking:
        yield note(place, "credentials of object stores", f"{text}; not set as here: {', '.join(lacking)}")
    else:
        yield ok(place, "credentials of object stores", text)


def _stores(spark: SparkSession, stores: Sequence[str], executors: Sequence[tuple[str, int]]) -> Iterator[Part]:
    """Yield whether each executor reads the stores as this machine does."""
    here = [store_seen(store) for store in stores]
    found = stores_seen(spark, stores)
    for executor in executors:
        place = f"executor {executor[0]}:{executor[1]}"
        if executor not in found:
            yield problem(place, "stores", "not read: it got no task", "run it again when the cluster has free cores")
            continue
        for own, other in zip(here, found[executor], strict=True):
            yield _store(place, own, other)


def _store(place: str, own: StoreSeen, other: StoreSeen) -> Part:
    part, text = f"store {own.store}", store_text(other)
    if other.failure is not None:
        return problem(place, part, text, "give executors the path or the credentials: docs/clusters.md")
    if own.failure is None and other.segments_count != own.segments_count:
        return problem(
            place, part, f"{text}; here {store_text(own)}", "executors must read the files of this machine: share them"
        )
    return ok(place, part, text)
