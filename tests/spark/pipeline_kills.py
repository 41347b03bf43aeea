"""`python -m tests.spark.pipeline_kills`: runs of deploy/spark/pipeline that are killed, while the store grows.

Each run is killed with all its processes, one of five before its first flow begins, the others after a part of the time
that the flows of a whole run take; the next run finds more records. At the end a run is left alone, and its tables are
compared with the store, with the queries of the views, and with what `rmqtx table --into` keeps.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.log.transaction_records import scan_halves
from rmqtx.readers.model.tables import VERDICT_CHANGES
from rmqtx.readers.store.store import open_store
from rmqtx.spark_tasks.session.session import session
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.follow.change_log import KEY
from rmqtx.verdicts.growing.tables import TableName
from tests.forge.stores import unpacked
from tests.spark.change_queries import COMPARED, SETTINGS, assert_sum
from tests.spark.conftest import CONF
from tests.spark.growing import Growing
from tests.spark.test_pipeline import PIPELINE, ROOT, select_of
from tests.verdicts.growing.grown import GrownTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEWS = ("verdicts", "hanging", "time_to_decision", "duplicates")
#: Spark waits 10 s for a new Python, which is not enough on a busy host: flows are tried again.
_SETTINGS = {
    "spark.sql.pipelines.maxFlowRetryAttempts": "20", "spark.sql.pipelines.execution.watchdog.minRetryTime": "1s",
    "spark.sql.shuffle.partitions": "1",
}
#: Runs without a kill that may fail for this reason.
_TRIES = 5
_EVENT = re.compile(r"(Flow \S+|Run) (?:is|has) (\w+)")


@dataclass(frozen=True, slots=True)
class Run:
    """A run: its exit status, its time, that of its flows, and the last event of a flow that it printed."""

    status: int
    spent_s: float
    flows_s: float
    last: str

    def __str__(self) -> str:
        return f"status {self.status} after {self.spent_s:.1f} s, {self.flows_s:.1f} s of flows: {self.last}"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A copy of the pipeline with its places in a directory; the store has the log `growing`."""

    directory: Path
    growing: Growing

    def __post_init__(self) -> None:
        shutil.copytree(PIPELINE, self.folder)
        declared = self.folder / "spark-pipeline.yml"
        text = declared.read_text("utf-8").replace("/data/rocketmq/store", str(self.growing.root))
        settings = "".join(f'  {name}: "{value}"\n' for name, value in _SETTINGS.items())
        declared.write_text(text.replace("/var/lib/rmqtx", str(self.directory)) + settings, "utf-8")

    @property
    def folder(self) -> Path:
        """The folder in which the command runs."""
        return self.directory / "folder"

    @property
    def warehouse(self) -> Path:
        """The folder with the tables."""
        return self.directory / "warehouse"

    def run(self, kill_after_s: float | None = None, *, is_early: bool = False) -> Run:
        """Run it. `kill_after_s`: kill it and all its processes after this time, which begins with the first flow.

        `is_early`: the time begins with the run.
        """
        command = [
            str(Path(sys.executable).with_name("spark-pipelines")), "run",
            "--conf", "spark.sql.catalogImplementation=hive", "--conf", f"spark.sql.warehouse.dir={self.warehouse}",
        ]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {"PYSPARK_PYTHON": sys.executable, **os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
        printed = self.directory / f"printed-{len(list(self.directory.glob('printed-*')))}"
        begun_s, flows_s = time.monotonic(), 0.0
        with printed.open("wb") as file:
            child = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )
            while child.poll() is None:
                if not flows_s and "STARTING" in printed.read_text("utf-8", "replace"):
                    flows_s = time.monotonic()
                from_s = begun_s if is_early else flows_s
                if kill_after_s is not None and from_s and time.monotonic() - from_s >= kill_after_s:
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
                time.sleep(0.05)
        events = _EVENT.findall(printed.read_text("utf-8", "replace"))
        last = " ".join(events[-1]).replace("Flow spark_catalog.default.", "") if events else "before its flows"
        ended_s = time.monotonic()
        return Run(child.returncode, ended_s - begun_s, ended_s - flows_s if flows_s else 0.0, last)

    def finish(self) -> Run:
        """Run it until it succeeds; return that run."""
        for _ in range(_TRIES):
            run = self.run()
            print(f"without a kill: {run}", flush=True)
            if run.status == 0:
                return run
        raise AssertionError("no run without a kill succeeded")


def require_right(spark: SparkSession, pipeline: Pipeline) -> dict[str, int]:
    """Compare the tables of a pipeline whose last run ended; return their numbers of rows.

    `records` and `halves` have each record once; the changes follow each other and their sum is an audit; the views are
    what their queries give now; the current rows of the history are those of a table of `rmqtx table --into`.
    """
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    store = open_store(pipeline.growing.root)
    frames = {
        name: spark.read.parquet(str(pipeline.warehouse / name))
        for name in ("records", "halves", "verdict_changes", *VIEWS)
    }
    for name, scanned in (("records", scan_records(store).table()), ("halves", scan_halves(store).table())):
        found = sorted(row[0] for row in frames[name].select("commit_log_offset").collect())
        assert found == sorted(scanned["commit_log_offset"].to_pylist()), name
    changes = frames["verdict_changes"].orderBy("sequence").toArrow().to_pylist()
    assert_sum([_in_ms(row) for row in changes], audit([store], SETTINGS).table())
    for name in VIEWS:
        frames[name].createOrReplaceTempView(name)
    frames["verdict_changes"].createOrReplaceTempView("verdict_changes")
    for name in VIEWS:
        assert _rows(spark.sql(select_of(name)).toArrow()) == _rows(frames[name].toArrow()), name
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        table = GrownTable(
            [pipeline.growing.root], TableName("parquet", str(place / "table")), place / "checkpoint", SETTINGS
        )
        table.step()
        names = [name.removesuffix("_ms") for name in (*KEY, *COMPARED)]
        wanted, kept = (
            sorted(repr([row[name] for name in names]) for row in rows if row["valid_to"] is None)
            for rows in (table.rows(), frames["verdicts"].toArrow().to_pylist())
        )
    assert kept == wanted
    return {name: frame.count() for name, frame in frames.items()}


def _rows(table: Any) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def _in_ms(row: dict[str, Any]) -> dict[str, Any]:
    """A row of VERDICT_CHANGES with times in epoch milliseconds, as without the option `timestamps`."""
    fields = zip(VERDICT_CHANGES, row.items(), strict=True)
    assert [field.name.removesuffix("_ms") for field in VERDICT_CHANGES] == list(row)
    return {field.name: _value_in_ms(field.type, value) for field, (_, value) in fields}


def _value_in_ms(kind: pa.DataType, value: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {one.name: _value_in_ms(one.type, part) for one, part in zip(kind, value.values(), strict=True)}
    if pa.types.is_list(kind):
        return [_value_in_ms(kind.value_type, one) for one in value]
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else value


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.pipeline_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", default="killed-5.3.3")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="rmqtx-pipeline-") as directory:
        place = Path(directory)
        growing = Growing(unpacked(options.store), place / "store")
        moments = growing.moments(options.kills + 2, options.seed)
        growing.write_to(moments[0])
        pipeline = Pipeline(place, growing)
        print(f"seed {options.seed}", flush=True)
        whole = pipeline.finish()
        killed: Counter[str] = Counter()
        for number, moment in enumerate(moments[1:-1]):
            growing.write_to(moment)
            is_early = number % 5 == 4
            most_s = whole.spent_s - whole.flows_s if is_early else whole.flows_s
            run = pipeline.run(chance.uniform(0, most_s), is_early=is_early)
            print(f"{number + 1}: {run}", flush=True)
            killed[run.last if run.status == -signal.SIGKILL else f"not killed, status {run.status}"] += 1
        growing.write_to(moments[-1])
        pipeline.finish()
        with session("local[2]", conf=CONF) as spark:
            print(require_right(spark, pipeline))
        print(f"killed at: {dict(killed.most_common())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
