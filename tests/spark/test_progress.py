"""Progress of Spark jobs: phases, tasks, bytes, and what tasks count."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from rmqtx.readers.log.segment_scan import Span
from rmqtx.readers.log.splits import WorkDivision
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.store.store import open_store
from rmqtx.spark_tasks.jobs.audit import audit
from rmqtx.spark_tasks.session import progress
from rmqtx.spark_tasks.session.progress import Phase, ScanCounts, tracked
from tests.forge.stores import settings_of, unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Watcher:
    """A progress that remembers everything; `gates` gets a file named after each number of tasks that was shown."""

    def __init__(self, gates: Path | None = None) -> None:
        self.bytes: list[tuple[int, int]] = []
        self.phases: list[tuple[str, int, int]] = []
        self.found: dict[int, str] = {}
        self._gates = gates

    def __call__(self, done: int, total: int) -> None:
        self.bytes.append((done, total))

    def show_phase(self, phase: str, done_tasks: int, tasks_count: int, found: str = "") -> None:
        self.phases.append((phase, done_tasks, tasks_count))
        self.found[done_tasks] = found
        if self._gates is not None:
            (self._gates / str(done_tasks)).touch()


class InPairs:
    """Tasks of which the third ends only after two were shown, and the fifth only after four."""

    def __init__(self, gates: Path, counts: ScanCounts | None) -> None:
        self.gates = gates
        self.counts = counts
        self.__name__ = "in_pairs"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            number = batch["id"][0].as_py()
            shown = self.gates / str(min(number // 2 * 2, 4))
            while not shown.exists():
                time.sleep(0.01)
            if self.counts is not None:
                self.counts.add(100 + number, [Span("damaged", 0, 9), Span("padding", 9, 9)], 1_000)
            yield batch


@pytest.mark.parametrize("is_counted", [False, True])
def test_bytes_and_tasks_rise_to_all(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_counted: bool
) -> None:
    monkeypatch.setattr(progress, "_INTERVAL_SECONDS", 0.05)
    watcher = Watcher(tmp_path)
    counts = ScanCounts.of(spark) if is_counted else None
    with tracked(spark, Phase("reading", 7, 7_000, counts), watcher):
        assert spark.range(0, 7, 1, 7).mapInArrow(InPairs(tmp_path, counts), "id long").count() == 7
    assert watcher.bytes == sorted(watcher.bytes)
    assert watcher.bytes[-1] == (7_000, 7_000)
    assert watcher.phases == sorted(watcher.phases)
    assert watcher.phases[-1] == ("reading", 7, 7)
    assert {0, 2, 4, 7} <= {done for _, done, _ in watcher.phases}, "it is reported on the way, not only at the end"
    if counts is None:
        assert set(watcher.found.values()) == {""}
        return
    assert {done for done, _ in watcher.bytes} - {0, 7_000} <= set(range(100, 721))
    assert watcher.found[2] == "2,000 records, 2 damaged spans"
    assert watcher.found[4] == "4,000 records, 4 damaged spans"
    assert (counts.bytes_count, counts.words) == (721, "7,000 records, 7 damaged spans")


def test_an_audit_reads_then_judges(spark: SparkSession) -> None:
    name = "common-5.3.3"
    store, watcher = open_store(unpacked(name)), Watcher()
    assert audit(spark, [store], settings_of(name), work=WorkDivision(64 << 10), progress=watcher).table().num_rows
    phases = list(dict.fromkeys(phase for phase, _, _ in watcher.phases))
    assert phases == ["opening the stores", "reading", "concluding the stores", "judging", "writing"]
    assert watcher.phases[-2][1] == watcher.phases[-2][2] > 1
    assert watcher.bytes[-1][0] == watcher.bytes[-1][1] > 0


def test_a_job_that_fails_is_not_reported_as_done(spark: SparkSession) -> None:
    watcher = Watcher()
    with pytest.raises(BadRequest), tracked(spark, Phase("reading", 7, 7_000), watcher):
        raise BadRequest("x")
    assert watcher.bytes == [(0, 7_000)]


def test_nobody_watches(spark: SparkSession) -> None:
    with tracked(spark, Phase("reading", 7), None):
        assert spark.range(3).count() == 3
