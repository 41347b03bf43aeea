"""A standalone cluster whose workers have a bare Python: rmqtx is sent to them, and rows equal the local ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.forge.stores import unpacked
from tests.spark.cluster import bare_python, cluster

pytestmark = pytest.mark.slow
SECONDS_MAX = 600
CONF = ("--conf", "spark.executor.memory=512m", "--conf", "spark.sql.shuffle.partitions=3")
WHERE = """
import json, sys
from spark_tasks.session.session import session

def where(batches):
    import os, sys
    import pyarrow as pa
    import readers.log.splits
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"file": [readers.log.splits.__file__], "python": [sys.executable]})

with session(sys.argv[1]) as spark:
    rows = spark.range(0, 4, 1, 4).mapInArrow(where, "file string, python string").collect()
    print(json.dumps([row.asDict() for row in rows]))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def python(place: Path) -> Path:
    return bare_python(place / "bare")


@pytest.fixture(scope="module")
def master(place: Path) -> Iterator[str]:
    with cluster(place) as url:
        yield url


def ran(python: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """A program of this Python, whose workers run another one."""
    environment = os.environ | {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": sys.executable}
    return subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )


def rows_of(text: str) -> list[str]:
    """The rows without what depends on the moment of the command: the predicted discard."""
    now = {"discard_at_ms": None, "discard_at": None}
    return sorted(json.dumps(json.loads(line) | now) for line in text.splitlines())


def test_the_bare_python_has_no_rmqtx(python: Path) -> None:
    code = "import pyarrow, numpy, pandas, importlib.util as u; print(u.find_spec('readers'), u.find_spec('rmqtx_cli'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.split() == ["None", "None"]


def test_workers_import_what_was_sent(master: str, python: Path) -> None:
    done = ran(python, "-c", WHERE, master)
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    assert {row["python"] for row in rows} == {str(python)}
    assert all("rmqtx.zip" in row["file"] for row in rows)


def test_rows_are_the_local_ones(master: str, python: Path) -> None:
    words = ("-m", "rmqtx_cli.main", "audit", unpacked("killed-5.3.3"), "--split-size", "64KiB", "--format", "jsonl")
    local, far = ran(python, *words), ran(python, *words, "--engine", "spark", "--master", master, *CONF)
    assert far.returncode == local.returncode == 0, far.stderr
    assert rows_of(far.stdout) == rows_of(local.stdout)


def test_what_workers_lack_is_one_sentence(master: str, place: Path) -> None:
    empty = place / "empty"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", empty], check=True)
    words = ("-m", "rmqtx_cli.main", "audit", unpacked("common-5.3.3"), "--engine", "spark", "--master", master, *CONF)
    done = ran(empty / "bin" / "python", *words)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "the Python of Spark's workers has no numpy" in done.stderr  # pyarrow is looked for later
