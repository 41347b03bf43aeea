"""Verify and search on Spark give the rows of the local engine, on every store of the corpus and on damaged ones."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqtx.readers.jobs.job_runner import ScanJob, run_job
from rmqtx.readers.jobs.search import Search, SearchConditions
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.model.tables import RECORDS
from rmqtx.readers.store.store import Store, open_store
from rmqtx.spark_tasks.jobs import scan
from rmqtx.verdicts.verify.verify import FULL, Verify
from tests.brokers import corpus
from tests.conftest import READ_AT_MS
from tests.forge import damage
from tests.forge.stores import copy_of, opened
from tests.representatives import few_or_all, rest_is_slow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPLIT_BYTES = 64 << 10
COLUMNS = tuple(name for name in RECORDS.names if name != "body_crc_matches")


def rows(reading: Reading) -> list[str]:
    """The rows, sorted: the order of splits is Spark's."""
    found: list[dict[str, Any]] = reading.table().to_pylist()
    return sorted(map(str, found))


def answers(reading: Reading) -> tuple[list[str], list[str]]:
    """What was said beside the rows."""
    return sorted(finding.line() for finding in reading.findings), sorted(map(str, reading.coverage))


def require_same(spark: SparkSession, job: ScanJob, stores: list[Store]) -> list[str]:
    stores = [replace(store, taken_time_ms=min(store.taken_time_ms, READ_AT_MS)) for store in stores]  # for workers too
    local = run_job(job, plan_splits(stores))
    remote = scan.run_job(spark, job, stores, split_bytes=SPLIT_BYTES)
    wanted = rows(local)
    assert rows(remote) == wanted
    assert answers(remote) == answers(local)
    return wanted


@pytest.mark.parametrize("names", few_or_all(corpus.corpus_names()))
def test_every_store_of_the_corpus_is_verified_alike(spark: SparkSession, names: tuple[str, ...]) -> None:
    stores = [opened(name) for name in names]
    assert require_same(spark, Verify(FULL), stores)


@pytest.mark.parametrize("every", rest_is_slow([4, 1], quick=1))
def test_damaged_stores_are_verified_alike(spark: SparkSession, tmp_path: Path, every: int) -> None:
    stores = []
    for number, (name, wound) in list(enumerate(damage.RANDOM.items()))[::every]:
        root = copy_of(("killed-5.1.4", "common-5.3.3", "multipath-4.9.7")[number % 3], tmp_path / f"{number}")
        wound(root, random.Random(name))
        stores.append(open_store(root))
    found = require_same(spark, Verify(), stores)
    assert len(found) > len(stores)


@pytest.mark.parametrize("names", few_or_all(corpus.corpus_names()))
def test_every_store_of_the_corpus_is_searched_alike(spark: SparkSession, names: tuple[str, ...]) -> None:
    stores = [opened(name) for name in names]
    conditions = SearchConditions(topic="orders", properties=(("case", "late*"),), body_regex=rb'"sku":"[A-F]')
    assert require_same(spark, Search(conditions, COLUMNS, inflates=True), stores)
