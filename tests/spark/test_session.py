"""The session in this process: what it is set to, what its workers import, and that a given one is left alone."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from rmqtx.spark_tasks.session.packages import packages_archive
from rmqtx.spark_tasks.session.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _packages(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import rmqtx.readers.log.splits
    import rmqtx.spark_tasks.session.session

    for _ in batches:
        files = [rmqtx.readers.log.splits.__file__, rmqtx.spark_tasks.session.session.__file__, sys.executable]
        yield pa.RecordBatch.from_pydict({"file": files})


def test_workers_run_this_python_and_import_the_packages_of_this_process(spark: SparkSession) -> None:
    import rmqtx.readers.log.splits
    import rmqtx.spark_tasks.session.session

    rows = spark.range(0, 4, 1, 2).mapInArrow(_packages, "file string").distinct().collect()
    files = {rmqtx.readers.log.splits.__file__, rmqtx.spark_tasks.session.session.__file__, sys.executable}
    assert {row.file for row in rows} == files


def test_it_keeps_to_this_machine_and_to_its_own_folder(spark: SparkSession) -> None:
    conf = dict(spark.sparkContext.getConf().getAll())
    assert (conf["spark.driver.host"], conf["spark.driver.bindAddress"]) == ("127.0.0.1", "127.0.0.1")
    assert spark.sparkContext.uiWebUrl is None
    folder = Path(conf["spark.local.dir"])
    assert folder.stat().st_mode & 0o777 == 0o700
    assert conf["spark.sql.warehouse.dir"] == f"file:{folder}/warehouse"
    assert Path(tempfile.gettempdir()) == folder


def test_the_environment_of_this_process_is_its_own_again(spark: SparkSession) -> None:
    assert spark.sparkContext.master == "local[2]"
    assert "SPARK_LOCAL_IP" not in os.environ
    assert os.environ.get("TMPDIR") != tempfile.gettempdir()


def test_a_given_session_is_left_alone(spark: SparkSession) -> None:
    before = dict(spark.sparkContext.getConf().getAll()), dict(os.environ)
    with session("local[7]", conf={"spark.sql.shuffle.partitions": "77"}) as given:
        assert given is spark
        assert given.conf.get("spark.sql.shuffle.partitions") == "3"
        assert given.sparkContext.master == "local[2]"
    assert spark.range(3).count() == 3
    assert (dict(spark.sparkContext.getConf().getAll()), dict(os.environ)) == before


def test_the_archive_for_other_machines_has_what_tasks_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import subprocess

    archive = packages_archive(tmp_path)
    program = (
        f"import sys; sys.path.insert(0, {str(archive)!r})\n"
        "import rmqtx.verdicts.evidence.witness_scan, rmqtx.verdicts.audit.local_audit\n"
        "import rmqtx.readers.log.accelerator.loops, rmqtx.spark_tasks.jobs.audit\n"
        "print(rmqtx.readers.log.accelerator.loops.__file__, rmqtx.spark_tasks.jobs.audit.__file__)"
    )
    pytest.importorskip("numba", reason="the accelerator is not installed")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "numba")},
    )
    assert all(path.startswith(str(archive)) for path in done.stdout.split())
