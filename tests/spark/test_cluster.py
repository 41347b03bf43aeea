"""A standalone cluster whose executors have a bare Python: rmqtx is sent to them, and rows equal the local ones.

The same through a Spark Connect server in front of the cluster.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.forge.stores import unpacked
from tests.spark.cluster import bare_python, cluster, connect_server

pytestmark = pytest.mark.slow
SECONDS_MAX = 600
CONF = ("--conf", "spark.executor.memory=512m", "--conf", "spark.sql.shuffle.partitions=3")
RMQTX = ("-m", "rmqtx_cli.main")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def python(place: Path) -> Path:
    """A Python with the packages that tasks need, and another rmqtx, which must not be used."""
    python = bare_python(place / "bare")
    site = next((place / "bare").glob("lib/python*/site-packages"))
    (site / "rmqtx").mkdir()
    (site / "rmqtx" / "__init__.py").write_text("raise ImportError('another rmqtx')\n")
    (site / "rmqtx-0.0.1.dist-info").mkdir()
    (site / "rmqtx-0.0.1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: rmqtx\nVersion: 0.0.1\n")
    return python


@pytest.fixture(scope="module")
def empty(place: Path) -> Path:
    """A Python without any package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "empty"], check=True)
    return place / "empty" / "bin" / "python"


@pytest.fixture(scope="module")
def master(place: Path) -> Iterator[str]:
    with cluster(place) as url:
        yield url


@pytest.fixture(scope="module")
def server(place: Path, master: str, empty: Path) -> Iterator[str]:
    if find_spec("grpc") is None:
        pytest.skip("the extra connect is not installed")
    with connect_server(place, master, empty) as url:
        yield url


@pytest.fixture(scope="module")
def archive(place: Path, python: Path) -> tuple[str, ...]:
    """The options that send the packages of this environment to executors without any."""
    done = ran(python, *RMQTX, "spark-archive", "-o", place / "env.tar.gz")
    assert done.returncode == 0, done.stderr
    return ("--conf", f"spark.archives={place / 'env.tar.gz'}#env", "--conf", "spark.pyspark.python=./env/bin/python")


def ran(python: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """A program of this Python, whose workers run another one."""
    environment = os.environ | {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": sys.executable}
    return subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )


def doctored(python: Path, *words: str | Path) -> tuple[int, list[dict[str, str]]]:
    """The exit status of `rmqtx doctor`, and its rows about Spark and its executors."""
    done = ran(python, *RMQTX, "doctor", *words, "--format", "jsonl")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, [row for row in rows if row["place"] != "here" or row["part"] in ("Spark", "executors")]


def rows_of(text: str) -> list[str]:
    """The rows without what depends on the moment of the command: the predicted discard."""
    now = dict.fromkeys(("discard_at_ms", "discard_at", "next_event_at_ms", "next_event_at"))
    return sorted(json.dumps(json.loads(line) | now) for line in text.splitlines())


def audited(python: Path, *engine: str) -> list[str]:
    done = ran(
        python, *RMQTX, "audit", unpacked("killed-5.3.3"), "--split-size", "64KiB", "--format", "jsonl", *engine
    )
    assert done.returncode == 0, done.stderr
    return rows_of(done.stdout)


def test_the_bare_python_has_no_rmqtx_that_works(python: Path) -> None:
    code = "import pyarrow, numpy, pandas, importlib.util as u; print(u.find_spec('rmqtx_cli')); import rmqtx"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False, cwd="/")
    assert done.stdout.split() == ["None"]
    assert done.stderr.endswith("ImportError: another rmqtx\n")


def test_rows_are_the_local_ones(master: str, python: Path) -> None:
    assert audited(python, "--engine", "spark", "--master", master, *CONF) == audited(python)


def test_what_workers_lack_is_one_sentence(master: str, empty: Path) -> None:
    done = ran(empty, *RMQTX, "audit", unpacked("common-5.3.3"), "--quiet", "--master", master, *CONF)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (20, "", 1)
    assert "has no pyarrow and no numpy and no pandas - send them: rmqtx spark-archive" in done.stderr


def test_another_version_of_python_is_one_sentence(master: str) -> None:
    names = (f"python3.{minor}" for minor in (10, 12, 13) if minor != sys.version_info.minor)
    found = next((path for path in map(shutil.which, names) if path is not None and _runs(path)), None)
    if found is None:
        pytest.skip("no other version of Python is on PATH")
    words = (*RMQTX, "audit", unpacked("common-5.3.3"), "--quiet", "--master", master, *CONF)
    done = ran(Path(found), *words)
    assert (done.returncode, done.stderr.count("\n")) == (20, 1)
    assert f"this machine {sys.version_info.major}.{sys.version_info.minor}, and Spark needs" in done.stderr


def _runs(python: str) -> bool:
    """Whether this is a Python: pyenv has scripts for versions that are not chosen."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def test_doctor_examines_each_executor(master: str, python: Path) -> None:
    store = str(unpacked("common-5.3.3"))
    status, rows = doctored(python, store, "--master", master, *CONF)
    assert status == 0
    assert [row["found"] for row in rows if row["part"] == "executors"] == ["2 of 2 executors answered"]
    packages = [row["found"] for row in rows if row["part"] == "packages"]
    assert all(re.search(r"rmqtx from rmqtx-[0-9a-f]{12}\.zip$", text) for text in packages), packages
    assert len({row["place"] for row in rows if row["part"] == f"store {store}" and row["outcome"] == "ok"}) == 2
    assert [row["found"] for row in rows if row["part"] == "rmqtx"] == [
        "0.0.1 is installed there too; tasks import the one that was sent"
    ] * 2


def test_doctor_names_what_executors_lack(master: str, empty: Path) -> None:
    status, rows = doctored(empty, "--master", master, *CONF)
    assert status == 1
    assert [row["found"] for row in rows if row["outcome"] == "problem"] == [
        "its Python has no pyarrow and no numpy and no pandas"
    ] * 2


@pytest.mark.deep  # through Spark Connect it is tested below
def test_an_archive_is_enough_for_a_python_without_packages(
    master: str, empty: Path, archive: tuple[str, ...]
) -> None:
    assert audited(empty, "--master", master, *archive, *CONF) == audited(empty)


def test_the_same_through_spark_connect(server: str, empty: Path, archive: tuple[str, ...]) -> None:
    done = ran(empty, *RMQTX, "audit", unpacked("common-5.3.3"), "--quiet", "--remote", server)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (20, "", 1)
    assert "has no pyarrow and no numpy and no pandas" in done.stderr
    assert audited(empty, "--remote", server, *archive) == audited(empty)
    status, rows = doctored(empty, unpacked("common-5.3.3"), "--remote", server, *archive)
    assert (status, [row["part"] for row in rows if row["outcome"] != "ok"]) == (0, ["executors"])
    assert len([row for row in rows if row["part"].startswith("store ")]) == 2
